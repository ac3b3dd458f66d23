// What befalls a device, and who keeps it busy: ECC counters, Xid events, utilisation by process.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/nvml/answers.h"

namespace headrace::softgpu::nvml {
namespace {

constexpr std::uint64_t kSingleBitEcc = 1, kDoubleBitEcc = 2, kXidCritical = 8;
constexpr std::uint64_t kAllEvents = kSingleBitEcc | kDoubleBitEcc | kXidCritical;
constexpr int kCorrected = 0, kUncorrected = 1;
constexpr int kCounterTypes = 2;  // volatile, aggregate: the same here
constexpr int kDeviceMemory = 2, kLocations = 8;
constexpr unsigned kNoInstance = 0xffffffffu;

std::uint64_t milliseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// What one device has to tell to one set, and what of it was told.
struct Watch {
  void* handle;
  int index;
  std::uint64_t types;
  std::uint32_t xids;
  std::uint64_t ecc[2];

  bool next(EventDataV2* out) {
    Condition& condition = Condition::of(index);
    if ((types & kXidCritical) != 0 && xids != condition.xid_count()) {
      // Only the latest are kept.
      const std::uint32_t count = condition.xid_count();
      if (count - xids > kXidsKept) xids = count - kXidsKept;
      *out = {handle, kXidCritical, condition.xid(xids++), kNoInstance, kNoInstance};
      return true;
    }
    for (const int kind : {kCorrected, kUncorrected}) {
      const std::uint64_t type = kind == kCorrected ? kSingleBitEcc : kDoubleBitEcc;
      const std::uint64_t count = condition.ecc_errors(kind == kUncorrected);
      if ((types & type) == 0 || count == ecc[kind]) continue;
      ecc[kind] = count;
      *out = {handle, type, 0, kNoInstance, kNoInstance};
      return true;
    }
    return false;
  }
};

struct EventSet {
  std::vector<Watch> watches;
};

std::mutex event_mutex;  // guards all sets and what is in them

std::set<EventSet*>& event_sets() {
  static std::set<EventSet*>* const all = new std::set<EventSet*>();
  return *all;
}

Return wait(void* set, EventDataV2* out, unsigned timeout_ms) {
  return with_library([&] {
    if (out == nullptr) return kInvalidArgument;
    const std::uint64_t end = milliseconds(CLOCK_MONOTONIC) + timeout_ms;
    for (;;) {
      {
        const std::lock_guard<std::mutex> guard(event_mutex);
        if (!event_sets().contains(static_cast<EventSet*>(set))) return kInvalidArgument;
        for (Watch& watch : static_cast<EventSet*>(set)->watches) {
          if (watch.next(out)) return kSuccess;
        }
      }
      const std::uint64_t now = milliseconds(CLOCK_MONOTONIC);
      if (now >= end) return kTimeout;
      constexpr std::uint64_t kLook = 10;
      usleep(static_cast<useconds_t>(std::min(end - now, kLook) * 1000));
    }
  });
}

}  // namespace

// ------------------------------------------------------------------ ECC

NVML_EXPORT int nvmlDeviceGetEccMode(void* handle, int* current, int* pending) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (current == nullptr || pending == nullptr) return kInvalidArgument;
    *current = *pending = 1;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetTotalEccErrors(void* handle, int kind, int counter,
                                            unsigned long long* out) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr || kind < kCorrected || kind > kUncorrected || counter < 0 ||
        counter >= kCounterTypes) {
      return kInvalidArgument;
    }
    *out = Condition::of(device.index).ecc_errors(kind == kUncorrected);
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryErrorCounter(void* handle, int kind, int counter, int location,
                                                unsigned long long* out) {
  if (location < 0 || location >= kLocations) return kInvalidArgument;
  const int result = nvmlDeviceGetTotalEccErrors(handle, kind, counter, out);
  if (result == kSuccess && location != kDeviceMemory) *out = 0;
  return result;
}

NVML_EXPORT int nvmlDeviceGetRemappedRows(void* handle, unsigned* correctable,
                                          unsigned* uncorrectable, unsigned* pending,
                                          unsigned* failed) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (correctable == nullptr || uncorrectable == nullptr || pending == nullptr ||
        failed == nullptr) {
      return kInvalidArgument;
    }
    const std::uint64_t errors = Condition::of(device.index).ecc_errors(true);
    *correctable = *failed = 0;
    *uncorrectable = static_cast<unsigned>(errors);
    *pending = errors != 0;
    return kSuccess;
  });
}

// ------------------------------------------------------------------ events

NVML_EXPORT int nvmlDeviceGetSupportedEventTypes(void* handle, unsigned long long* out) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (out == nullptr) return kInvalidArgument;
    *out = kAllEvents;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlEventSetCreate(void** out) {
  return with_library([&] {
    if (out == nullptr) return kInvalidArgument;
    const std::lock_guard<std::mutex> guard(event_mutex);
    EventSet* made = new EventSet();
    event_sets().insert(made);
    *out = made;
    return kSuccess;
  });
}

// Of a lost device, too: who watches wants to hear of it.
NVML_EXPORT int nvmlDeviceRegisterEvents(void* handle, unsigned long long types, void* set) {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    if ((types & ~kAllEvents) != 0) return kNotSupported;
    const std::lock_guard<std::mutex> guard(event_mutex);
    if (!event_sets().contains(static_cast<EventSet*>(set))) return kInvalidArgument;
    const Condition& condition = Condition::of(device.index);
    static_cast<EventSet*>(set)->watches.push_back(
        {handle,
         device.index,
         types,
         condition.xid_count(),
         {condition.ecc_errors(false), condition.ecc_errors(true)}});
    return kSuccess;
  });
}

NVML_EXPORT int nvmlEventSetWait_v2(void* set, EventDataV2* out, unsigned timeout_ms) {
  return wait(set, out, timeout_ms);
}

NVML_EXPORT int nvmlEventSetWait(void* set, EventDataV1* out, unsigned timeout_ms) {
  if (out == nullptr) return kInvalidArgument;
  EventDataV2 data{};
  const Return result = wait(set, &data, timeout_ms);
  if (result == kSuccess) *out = {data.device, data.type, data.data};
  return result;
}

NVML_EXPORT int nvmlEventSetFree(void* set) {
  return with_library([&] {
    const std::lock_guard<std::mutex> guard(event_mutex);
    EventSet* known = static_cast<EventSet*>(set);
    if (event_sets().erase(known) == 0) return kInvalidArgument;
    delete known;
    return kSuccess;
  });
}

// ------------------------------------------------------------------ who keeps it busy

NVML_EXPORT int nvmlDeviceGetProcessUtilization(void* handle, ProcessUtilization* out,
                                                unsigned* count, unsigned long long last_seen) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (count == nullptr) return kInvalidArgument;
    const std::uint64_t now = milliseconds(CLOCK_REALTIME) * 1000;
    std::vector<ComputeUsage> busy = Condition::of(device.index).usage();
    std::erase_if(busy, [](const ComputeUsage& one) { return one.busy_percent == 0; });
    if (now <= last_seen) busy.clear();
    const unsigned room = *count;
    *count = static_cast<unsigned>(busy.size());
    if (busy.empty()) return kNotFound;
    if (out == nullptr || room < busy.size()) return kInsufficientSize;
    for (std::size_t i = 0; i < busy.size(); ++i) {
      out[i] = {busy[i].pid, now, busy[i].busy_percent, 0, 0, 0};
    }
    return kSuccess;
  });
}

}  // namespace headrace::softgpu::nvml
