// What befalls a software device, and who keeps it busy: a page or two of memory shared by all
// processes of a state directory (without one: of this process alone).
//
// Faults are put in from outside, by `python -m remoting.softgpu.faults`, which knows the layout of
// FaultBlock; driver and NVML of every process see them at once, without being told.
//
// Compute is shared as time slices would share it: when n processes have kernels on the device,
// each process gets 1/n of it, and its kernels share that. Kernels that really run are shared by
// the operating system; those whose time is modelled take it from this account. The account is
// settled at every change, so that it is exact, also after a process was killed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace headrace::softgpu {

inline constexpr std::uint32_t kXidsKept = 16;
inline constexpr std::uint32_t kAll = 0xffffffffu;

// All fields are naturally aligned words that are read and written whole. The file begins with it.
struct FaultBlock {
  std::uint64_t magic;
  // Counted up when something destroys the contexts of the device; `error` (a CUresult) is what
  // every call in them answers from then on.
  std::uint32_t failures;
  std::uint32_t error;
  std::uint32_t refused_allocations;  // so many more fail; kAll: all
  std::uint32_t hung_launches;        // so many more never end; kAll: all
  std::uint32_t releases;             // counted up when hung kernels may end
  std::uint32_t lost;                 // fallen off the bus: nothing works any more
  std::uint32_t xid_count;            // events so far; the last kXidsKept of them are below
  std::uint32_t reserved;
  std::uint64_t ecc_corrected;
  std::uint64_t ecc_uncorrected;
  struct Xid {
    std::uint32_t code;
    std::uint32_t reserved;
    std::uint64_t unix_seconds;
  } xids[kXidsKept];
};
static_assert(sizeof(FaultBlock) == 56 + 16 * kXidsKept);

struct ComputeUsage {
  std::uint32_t pid = 0;
  std::uint32_t contexts = 0;
  std::uint64_t busy_ns = 0;       // of the device's time, so far
  std::uint32_t busy_percent = 0;  // of the last sample
};

class Condition {
 public:
  // The one of a device of this machine. Never destroyed. Where the file cannot be used the log
  // says why, and the process is alone.
  static Condition& of(int device_index);
  // For tests: another directory than the settings'.
  static std::unique_ptr<Condition> open(const std::string& state_dir, int device_index,
                                         std::string* why);
  ~Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  // ---- faults
  std::uint32_t failures() const;
  // The error of the last failure, as a CUresult.
  int failure() const;
  bool lost() const;
  // True: the allocation that is about to be made has to fail.
  bool refuses_allocation();
  // True: the launch at hand hangs, until released() differs from what it is now.
  bool hangs_launch();
  std::uint32_t released() const;
  std::uint64_t ecc_errors(bool uncorrected) const;
  std::uint32_t xid_count() const;
  std::uint32_t xid(std::uint32_t number) const;  // the code of event `number` (from 0)

  // ---- compute
  // Whether anybody else can see it.
  bool shared() const { return shared_; }
  void add_context(int change);
  void begin_kernel();
  void end_kernel();
  // How far a kernel of this process that has run all the time has come: nanoseconds of the whole
  // device.
  std::uint64_t progress_ns();
  // In how many parts the device is divided for such a kernel right now.
  std::uint32_t parts();
  std::uint32_t busy_percent();
  // Processes with contexts.
  std::vector<ComputeUsage> usage();

 private:
  struct Block;
  class Lock;
  struct Slot;
  Condition() = default;
  Slot* own_slot_locked();
  std::span<Slot> slots_locked();
  void settle_locked(std::uint64_t now);
  void reap_locked();

  Block* block_ = nullptr;
  bool shared_ = false;
  int slot_ = -1;
};

}  // namespace headrace::softgpu
