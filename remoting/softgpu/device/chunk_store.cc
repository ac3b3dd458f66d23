#include "remoting/softgpu/device/chunk_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>

#include "remoting/softgpu/device/process_state.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kMagic = 0x31534b4e48435247ull;  // "GRCHNKS1"
constexpr int kSlots = 1024;                             // processes that hold memory at one time

std::string errno_text(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

struct ChunkStore::Table {
  std::uint64_t magic;
  std::uint64_t chunk_bytes;
  std::uint32_t total;
  std::uint32_t reserved;
  struct Slot {
    std::uint32_t pid;  // 0: free
    std::uint32_t reserved;
    std::uint64_t started;
  } slots[kSlots];
  // std::uint16_t owners[total] follows: 0 free, else slot + 1
};

// The lock between processes is flock, which the kernel releases for the dead; the mutex is there
// because flock does not keep threads of one process apart.
class ChunkStore::Lock {
 public:
  explicit Lock(ChunkStore& store) : store_(store), guard_(store.mutex_) {
    while (flock(store_.table_fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Lock() { flock(store_.table_fd_, LOCK_UN); }

 private:
  ChunkStore& store_;
  std::lock_guard<std::mutex> guard_;
};

std::unique_ptr<ChunkStore> ChunkStore::open(const std::string& state_dir, int device_index,
                                             std::uint64_t bytes, std::string* why) {
  std::unique_ptr<ChunkStore> out(new ChunkStore());
  out->total_ = static_cast<std::uint32_t>(bytes / kChunkBytes);
  if (out->total_ == 0) {
    *why = "a device needs at least 2 MiB";
    return nullptr;
  }
  if (state_dir.empty()) {
    out->data_fd_ = memfd_create("headrace-softgpu", MFD_CLOEXEC);
    out->table_fd_ = memfd_create("headrace-softgpu-table", MFD_CLOEXEC);
  } else {
    if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
      *why = errno_text("cannot make " + state_dir);
      return nullptr;
    }
    std::string stem = state_dir + "/device-" + std::to_string(device_index);
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC;
    out->data_fd_ = ::open((stem + ".memory").c_str(), flags, 0600);
    out->table_fd_ = ::open((stem + ".chunks").c_str(), flags, 0600);
  }
  if (out->data_fd_ < 0 || out->table_fd_ < 0) {
    *why = errno_text("cannot open the device memory");
    return nullptr;
  }
  out->table_bytes_ = sizeof(Table) + out->total_ * sizeof(std::uint16_t);
  while (flock(out->table_fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat info {};
  bool fresh = fstat(out->table_fd_, &info) == 0 && info.st_size == 0;
  bool fits = fresh || static_cast<std::size_t>(info.st_size) == out->table_bytes_;
  if (fresh) {
    std::uint64_t size = std::uint64_t{out->total_} * kChunkBytes;
    fits = ftruncate(out->data_fd_, static_cast<off_t>(size)) == 0 &&
           ftruncate(out->table_fd_, static_cast<off_t>(out->table_bytes_)) == 0;
  }
  void* at = MAP_FAILED;
  if (fits) {
    at = mmap(nullptr, out->table_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, out->table_fd_, 0);
  }
  if (at != MAP_FAILED) {
    out->table_ = static_cast<Table*>(at);
    if (fresh || out->table_->magic == 0) {
      out->table_->chunk_bytes = kChunkBytes;
      out->table_->total = out->total_;
      out->table_->magic = kMagic;  // last: a table without it is made anew
    }
    fits = out->table_->magic == kMagic && out->table_->total == out->total_ &&
           out->table_->chunk_bytes == kChunkBytes;
  }
  flock(out->table_fd_, LOCK_UN);
  if (at == MAP_FAILED || !fits) {
    *why = "the state directory " + state_dir + " belongs to a device of another size";
    return nullptr;
  }
  return out;
}

ChunkStore::~ChunkStore() {
  if (table_ != nullptr) {
    {
      Lock lock(*this);
      if (slot_ >= 0) {
        for (std::uint32_t i = 0; i < total_; ++i) {
          if (owners()[i] == slot_ + 1) owners()[i] = 0;
        }
        table_->slots[slot_].pid = 0;
      }
    }
    munmap(table_, table_bytes_);
  }
  if (data_fd_ >= 0) close(data_fd_);
  if (table_fd_ >= 0) close(table_fd_);
}

std::uint16_t* ChunkStore::owners() const { return reinterpret_cast<std::uint16_t*>(table_ + 1); }

void ChunkStore::reap_locked() {
  std::uint32_t self = static_cast<std::uint32_t>(getpid());
  for (int slot = 0; slot < kSlots; ++slot) {
    Table::Slot& entry = table_->slots[slot];
    if (entry.pid == 0 || entry.pid == self) continue;
    if (process_alive(entry.pid, entry.started)) continue;
    for (std::uint32_t i = 0; i < total_; ++i) {
      if (owners()[i] == slot + 1) owners()[i] = 0;
    }
    entry.pid = 0;  // last: a slot with owners is never free
  }
}

int ChunkStore::own_slot_locked() {
  if (slot_ >= 0) return slot_;
  for (int slot = 0; slot < kSlots; ++slot) {
    Table::Slot& entry = table_->slots[slot];
    if (entry.pid != 0) continue;
    entry.started = process_started(static_cast<std::uint32_t>(getpid()));
    entry.pid = static_cast<std::uint32_t>(getpid());
    return slot_ = slot;
  }
  return -1;
}

bool ChunkStore::take(std::uint32_t count, std::vector<std::uint32_t>* chunks) {
  chunks->clear();
  if (count == 0 || count > total_) return false;
  chunks->reserve(count);
  struct statvfs room {};
  if (fstatvfs(data_fd_, &room) == 0 && room.f_blocks != 0) {
    // A file system without room would be found out by a bus error in the middle of a kernel.
    std::uint64_t need = std::uint64_t{count} * kChunkBytes;
    if (std::uint64_t{room.f_bavail} * room.f_bsize < need) return false;
  }
  Lock lock(*this);
  reap_locked();
  int slot = own_slot_locked();
  if (slot < 0) return false;
  std::uint16_t* owner = owners();
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < total_ && run < count; ++i) {
    run = owner[i] == 0 ? run + 1 : 0;
    if (run == count) {
      for (std::uint32_t k = i + 1 - count; k <= i; ++k) chunks->push_back(k);
    }
  }
  for (std::uint32_t i = 0; i < total_ && chunks->size() < count; ++i) {
    if (owner[i] == 0) chunks->push_back(i);
  }
  if (chunks->size() < count) {
    chunks->clear();
    return false;
  }
  for (std::uint32_t chunk : *chunks) owner[chunk] = static_cast<std::uint16_t>(slot + 1);
  return true;
}

void ChunkStore::give(const std::vector<std::uint32_t>& chunks) {
  Lock lock(*this);
  for (std::uint32_t chunk : chunks) {
    if (chunk < total_ && owners()[chunk] == slot_ + 1) owners()[chunk] = 0;
  }
}

std::uint32_t ChunkStore::free_chunks() {
  Lock lock(*this);
  reap_locked();
  std::uint32_t out = 0;
  for (std::uint32_t i = 0; i < total_; ++i) out += owners()[i] == 0;
  return out;
}

std::vector<ProcessUsage> ChunkStore::usage() {
  Lock lock(*this);
  reap_locked();
  std::vector<std::uint64_t> held(kSlots, 0);
  for (std::uint32_t i = 0; i < total_; ++i) {
    std::uint16_t owner = owners()[i];
    if (owner != 0 && owner <= kSlots) held[owner - 1] += kChunkBytes;
  }
  std::vector<ProcessUsage> out;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (table_->slots[slot].pid != 0) out.push_back({table_->slots[slot].pid, held[slot]});
  }
  return out;
}

}  // namespace headrace::softgpu
