// What a pointer is: device memory, page-locked host memory that was allocated or registered here.
// Pointer queries, copies of unknown direction and frees are answered from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace headrace::client {

struct Context;
struct Device;

enum class RangeKind { device, host_allocated, host_registered };

struct MemoryRange {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  RangeKind kind = RangeKind::device;
  Context* context = nullptr;
  std::uint64_t id = 0;  // unique in the process (buffer id)
  std::uint32_t flags = 0;
  bool pooled = false;       // from a stream-ordered allocator
  bool sync_memops = false;  // pointer attribute
  bool shared = false;       // host memory that the server has, too (host_twins.h)
  std::uint64_t module = 0;  // a global variable of this module: lives and goes with it
  // Virtual memory management: the physical memory that is mapped here, of no context.
  std::uint64_t physical = 0;
  Device* mapped_on = nullptr;
  bool accessible = true;

  bool host() const { return kind != RangeKind::device; }
  bool mapped() const { return physical != 0; }
  // The server acts on this memory when it is given an address of it.
  bool at_server() const { return !host() || shared; }
};

class MemoryRanges {
 public:
  // False when it overlaps a known range. Gives the range its id.
  bool insert(MemoryRange range);
  // The range that holds the address; its last byte is the last address inside.
  std::optional<MemoryRange> find(std::uint64_t address) const;
  // Whether a run of device memory lies in ranges that may be accessed and follow each other.
  bool covered(std::uint64_t address, std::uint64_t size) const;
  // What is mapped in a run of addresses: taken out, or set accessible or not.
  void take_mapped(std::uint64_t base, std::uint64_t size);
  void set_accessible(std::uint64_t base, std::uint64_t size, bool accessible);
  // Takes out the range that starts here, if it is of this nature.
  std::optional<MemoryRange> take(std::uint64_t base, RangeKind kind);
  bool set_sync_memops(std::uint64_t address, bool value);
  // False when no host memory starts here (any more).
  bool set_shared(std::uint64_t base);
  // When a context goes, its memory goes with it. Returned so that host memory can be released.
  std::vector<MemoryRange> take_all_of(const Context* context);
  void forget_module(std::uint64_t module);

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, MemoryRange> ranges_;  // by base
  std::uint64_t next_id_ = 1;
};

}  // namespace headrace::client
