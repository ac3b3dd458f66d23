// Device memory of one device as this process sees it: a reserved window of addresses, into which
// chunks of the device's store are mapped, and the allocations in it.
//
// Large allocations are whole chunks, mapped next to each other however they lie in the store;
// small ones share chunks ("slabs"). Everything else in the window is inaccessible, so a stray
// access of a kernel faults. Allocation never clears; freeing never clears.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "remoting/softgpu/device/chunk_store.h"

namespace headrace::softgpu {

struct Allocation {
  std::uint64_t base = 0;
  std::uint64_t size = 0;      // as asked for
  std::uint64_t reserved = 0;  // as taken
  std::uint64_t id = 0;        // never reused (CU_POINTER_ATTRIBUTE_BUFFER_ID)
  std::uint64_t context = 0;   // handle of the owning context
  std::uint64_t pool = 0;      // handle of the pool it came from, 0: cuMemAlloc
  bool internal = false;       // module globals, mapped ranges: not for cuMemFree
};

// Physical memory at an address that was reserved for it (cuMemMap).
struct Mapping {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  std::uint64_t handle = 0;  // of the physical memory
  std::uint64_t id = 0;      // from the same count as allocations' ids
  bool accessible = false;
};

class DeviceMemory {
 public:
  // The window must outlive every kernel; it is never given back.
  static std::unique_ptr<DeviceMemory> create(std::unique_ptr<ChunkStore> store);

  // 0 when the device has no room.
  std::uint64_t allocate(std::uint64_t size, std::uint64_t context, std::uint64_t pool,
                         bool internal);
  // False when no allocation begins there or it is internal and `internal` is not set.
  bool free(std::uint64_t base, bool internal = false);
  void free_all_of(std::uint64_t context);

  bool find(std::uint64_t address, Allocation* out) const;
  // The whole range lies in one allocation, or in mappings side by side that may be accessed. Empty
  // ranges always do.
  bool contains(std::uint64_t address, std::uint64_t size) const;
  // Whether the range is there, and stays there while `use` runs.
  template <typename Use>
  bool hold(std::uint64_t address, std::uint64_t size, const Use& use) const {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!contains_locked(address, size)) return false;
    use();
    return true;
  }
  bool in_window(std::uint64_t address) const { return address >= low_ && address < high_; }

  // ---- addresses and physical memory apart (device_mapping.cc); sizes are whole chunks
  std::uint64_t reserve(std::uint64_t size, std::uint64_t alignment);  // 0: no such range
  // False when no reservation is exactly that, or something is still mapped in it.
  bool unreserve(std::uint64_t base, std::uint64_t size);
  bool take_physical(std::uint64_t size, std::vector<std::uint32_t>* chunks);
  void give_physical(const std::vector<std::uint32_t>& chunks);
  // False when the range is not reserved, or not free. What is mapped cannot be accessed yet.
  bool map(std::uint64_t base, std::uint64_t size, std::uint64_t handle,
           const std::vector<std::uint32_t>& chunks);
  // False unless the range consists of whole mappings. `handles`: one for each.
  bool unmap_all(std::uint64_t base, std::uint64_t size, std::vector<std::uint64_t>* handles);
  bool set_access(std::uint64_t base, std::uint64_t size, bool accessible);
  bool find_mapping(std::uint64_t address, Mapping* out) const;

  std::uint64_t window_low() const { return low_; }
  std::uint64_t window_high() const { return high_; }
  std::uint64_t total_bytes() const;
  std::uint64_t free_bytes();

 private:
  struct Slab {
    std::vector<std::uint32_t> chunk;
    std::map<std::uint32_t, std::uint32_t> holes;  // offset -> length
  };

  DeviceMemory() = default;
  bool contains_locked(std::uint64_t address, std::uint64_t size) const;
  std::uint64_t map_chunks(const std::vector<std::uint32_t>& chunks);
  bool map_chunks_at(std::uint64_t base, const std::uint32_t* chunks, std::size_t count,
                     int protection);
  // Addresses without content: for use, and for use again.
  std::uint64_t take_addresses(std::uint64_t bytes, std::uint64_t alignment);
  void give_addresses(std::uint64_t base, std::uint64_t bytes);
  bool whole_mappings_locked(std::uint64_t base, std::uint64_t size) const;
  void unmap(std::uint64_t base, std::uint64_t bytes);
  std::uint64_t allocate_large(std::uint64_t size);
  std::uint64_t allocate_small(std::uint64_t size);
  void release_locked(const Allocation& allocation);

  mutable std::mutex mutex_;
  std::unique_ptr<ChunkStore> store_;
  std::uint64_t low_ = 0, high_ = 0, cursor_ = 0;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::uint64_t> holes_;  // free addresses of the window: base -> length
  std::map<std::uint64_t, Allocation> allocations_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> large_;  // base -> its chunks
  std::map<std::uint64_t, Slab> slabs_;
  std::map<std::uint64_t, std::uint64_t> reservations_;  // base -> length
  std::map<std::uint64_t, Mapping> mappings_;            // by base
};

}  // namespace headrace::softgpu
