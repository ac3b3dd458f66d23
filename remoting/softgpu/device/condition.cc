#include "remoting/softgpu/device/condition.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/process_state.h"
#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kMagic = 0x31444e4f43524748ull;  // "HGRCOND1"
constexpr int kSlots = 1024;                             // processes with contexts at one time
constexpr int kMaxDevices = 64;
constexpr std::uint64_t kSample = 100'000'000;     // ns that busy_percent looks back, at least
constexpr std::uint64_t kReapEvery = 100'000'000;  // ns

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // the same for all processes
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

template <typename T>
T load(const T& word) {
  return std::atomic_ref<const T>(word).load(std::memory_order_acquire);
}

// Takes one of a count that is set from outside; kAll stays.
bool take_one(std::uint32_t& count) {
  std::atomic_ref<std::uint32_t> word(count);
  std::uint32_t value = word.load(std::memory_order_acquire);
  while (value != 0) {
    if (value == kAll || word.compare_exchange_weak(value, value - 1)) return true;
  }
  return false;
}

std::uint32_t percent_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0
                    : static_cast<std::uint32_t>(std::min<std::uint64_t>(part * 100 / whole, 100));
}

}  // namespace

struct Condition::Slot {
  std::uint32_t pid;  // 0: free
  std::uint32_t contexts;
  std::uint64_t started;
  std::uint32_t kernels;  // that are running
  std::uint32_t busy_percent;
  std::uint64_t busy_ns;
  std::uint64_t progress_ns;
  std::uint64_t sampled_ns;  // busy_ns at the last sample
};

struct Condition::Block {
  FaultBlock faults;
  std::uint8_t room[512 - sizeof(FaultBlock)];
  pthread_mutex_t mutex;  // of all that follows
  std::uint64_t settled_ns;
  std::uint64_t busy_ns;
  std::uint64_t reaped_ns;
  std::uint64_t sample_ns, sampled_ns;  // when the last sample was taken, and busy_ns then
  std::uint32_t busy_percent;
  std::uint32_t busy_processes;
  std::uint32_t slots_used;  // no slot from here on has ever been taken
  std::uint32_t reserved;
  Slot slots[kSlots];
};

// Robust: the kernel gives it on when its holder dies. What a holder changes are counts and sums,
// and settling and reaping put right what was half done.
class Condition::Lock {
 public:
  explicit Lock(Condition& condition) : mutex_(condition.block_->mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

std::unique_ptr<Condition> Condition::open(const std::string& state_dir, int device_index,
                                           std::string* why) {
  std::unique_ptr<Condition> out(new Condition());
  out->shared_ = !state_dir.empty();
  const auto failed = [&](const std::string& what) {
    *why = what + ": " + std::strerror(errno);
    return nullptr;
  };
  int fd = -1;
  if (state_dir.empty()) {
    fd = memfd_create("headrace-softgpu-condition", MFD_CLOEXEC);
  } else {
    if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
      return failed("cannot make " + state_dir);
    }
    const std::string path = state_dir + "/device-" + std::to_string(device_index) + ".condition";
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  }
  if (fd < 0) return failed("cannot open the device's condition");
  while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat info {};
  // The program that puts faults in may have come first, and knows nothing of the rest.
  const bool sized =
      fstat(fd, &info) == 0 && (info.st_size >= static_cast<off_t>(sizeof(Block)) ||
                                ftruncate(fd, static_cast<off_t>(sizeof(Block))) == 0);
  void* at =
      sized ? mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (at != MAP_FAILED) {
    out->block_ = static_cast<Block*>(at);
    if (out->block_->settled_ns == 0) {
      pthread_mutexattr_t attributes;
      pthread_mutexattr_init(&attributes);
      pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
      pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
      pthread_mutex_init(&out->block_->mutex, &attributes);
      pthread_mutexattr_destroy(&attributes);
      out->block_->faults.magic = kMagic;
      out->block_->settled_ns = out->block_->sample_ns = now_ns();
    }
  }
  flock(fd, LOCK_UN);
  close(fd);
  if (at == MAP_FAILED) return failed("cannot map the device's condition");
  return out;
}

Condition::~Condition() {
  if (block_ == nullptr) return;
  if (slot_ >= 0) {
    const Lock lock(*this);
    settle_locked(now_ns());
    block_->slots[slot_].pid = 0;
  }
  munmap(block_, sizeof(Block));
}

Condition& Condition::of(int device_index) {
  static std::mutex mutex;
  static std::unique_ptr<Condition>* const all = new std::unique_ptr<Condition>[kMaxDevices];
  const std::lock_guard<std::mutex> guard(mutex);
  std::unique_ptr<Condition>& one = all[device_index];
  if (one != nullptr) return *one;
  std::string why;
  one = open(settings().state_dir, device_index, &why);
  if (one == nullptr) {
    log("device " + std::to_string(device_index) + ": " + why);
    one = open("", device_index, &why);
  }
  if (one == nullptr) throw std::bad_alloc();
  return *one;
}

// ------------------------------------------------------------------ faults

std::uint32_t Condition::failures() const { return load(block_->faults.failures); }
int Condition::failure() const { return static_cast<int>(load(block_->faults.error)); }
bool Condition::lost() const { return load(block_->faults.lost) != 0; }
bool Condition::refuses_allocation() { return take_one(block_->faults.refused_allocations); }
bool Condition::hangs_launch() { return take_one(block_->faults.hung_launches); }
std::uint32_t Condition::released() const { return load(block_->faults.releases); }
std::uint64_t Condition::ecc_errors(bool uncorrected) const {
  return load(uncorrected ? block_->faults.ecc_uncorrected : block_->faults.ecc_corrected);
}
std::uint32_t Condition::xid_count() const { return load(block_->faults.xid_count); }
std::uint32_t Condition::xid(std::uint32_t number) const {
  return load(block_->faults.xids[number % kXidsKept].code);
}

// ------------------------------------------------------------------ compute

Condition::Slot* Condition::own_slot_locked() {
  if (slot_ >= 0) return &block_->slots[slot_];
  reap_locked();
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = block_->slots[i];
    if (slot.pid != 0) continue;
    slot = Slot{};
    slot.started = process_started(static_cast<std::uint32_t>(getpid()));
    slot.pid = static_cast<std::uint32_t>(getpid());
    slot_ = i;
    block_->slots_used = std::max(block_->slots_used, static_cast<std::uint32_t>(i) + 1);
    return &slot;
  }
  return nullptr;
}

std::span<Condition::Slot> Condition::slots_locked() {
  return {block_->slots, std::min<std::size_t>(block_->slots_used, kSlots)};
}

void Condition::reap_locked() {
  const std::uint32_t self = static_cast<std::uint32_t>(getpid());
  for (Slot& slot : slots_locked()) {
    if (slot.pid == 0 || slot.pid == self) continue;
    if (!process_alive(slot.pid, slot.started)) slot.pid = 0;
  }
}

// Gives the time since the last change to those who were busy in it.
void Condition::settle_locked(std::uint64_t now) {
  Block& block = *block_;
  if (now - block.reaped_ns > kReapEvery) {
    block.reaped_ns = now;
    reap_locked();
  }
  std::uint32_t busy = 0;
  const std::span<Slot> slots = slots_locked();
  for (const Slot& slot : slots) busy += slot.pid != 0 && slot.kernels != 0;
  const std::uint64_t passed = now > block.settled_ns ? now - block.settled_ns : 0;
  block.settled_ns = now;
  block.busy_processes = busy;
  if (busy != 0) block.busy_ns += passed;
  for (Slot& slot : slots) {
    if (slot.pid == 0 || slot.kernels == 0) continue;
    slot.busy_ns += passed / busy;
    slot.progress_ns += passed / busy / slot.kernels;
  }
  if (now - block.sample_ns < kSample) return;
  const std::uint64_t sample = now - block.sample_ns;
  block.busy_percent = percent_of(block.busy_ns - block.sampled_ns, sample);
  block.sample_ns = now;
  block.sampled_ns = block.busy_ns;
  for (Slot& slot : slots) {
    if (slot.pid == 0) continue;
    slot.busy_percent = percent_of(slot.busy_ns - slot.sampled_ns, sample);
    slot.sampled_ns = slot.busy_ns;
  }
}

void Condition::add_context(int change) {
  const Lock lock(*this);
  Slot* slot = own_slot_locked();
  if (slot == nullptr) return;
  slot->contexts = static_cast<std::uint32_t>(static_cast<int>(slot->contexts) + change);
}

void Condition::begin_kernel() {
  const Lock lock(*this);
  settle_locked(now_ns());
  if (Slot* slot = own_slot_locked()) ++slot->kernels;
}

void Condition::end_kernel() {
  const Lock lock(*this);
  settle_locked(now_ns());
  Slot* slot = own_slot_locked();
  if (slot != nullptr && slot->kernels != 0) --slot->kernels;
}

std::uint64_t Condition::progress_ns() {
  const Lock lock(*this);
  settle_locked(now_ns());
  Slot* slot = own_slot_locked();
  // More processes than can be counted: nobody is slowed down.
  return slot != nullptr ? slot->progress_ns : block_->settled_ns;
}

std::uint32_t Condition::parts() {
  const Lock lock(*this);
  const Slot* slot = own_slot_locked();
  return std::max(1u, block_->busy_processes) * std::max(1u, slot != nullptr ? slot->kernels : 1);
}

std::uint32_t Condition::busy_percent() {
  const Lock lock(*this);
  settle_locked(now_ns());
  return block_->busy_percent;
}

std::vector<ComputeUsage> Condition::usage() {
  const Lock lock(*this);
  reap_locked();
  settle_locked(now_ns());
  std::vector<ComputeUsage> out;
  for (const Slot& slot : slots_locked()) {
    if (slot.pid == 0 || slot.contexts == 0) continue;
    out.push_back({slot.pid, slot.contexts, slot.busy_ns, slot.busy_percent});
  }
  return out;
}

}  // namespace headrace::softgpu
