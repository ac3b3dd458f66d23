// Pinned host memory. What the driver allocates lies in one window of addresses, which kernels may
// touch; what the application registers lies anywhere, and each launch is told where.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

namespace headrace::softgpu {

struct HostBlock {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  std::uint64_t id = 0;
  std::uint64_t context = 0;
  unsigned flags = 0;
  bool registered = false;
};

class HostMemory {
 public:
  std::uint64_t allocate(std::uint64_t size, std::uint64_t context, unsigned flags);  // 0: no room
  bool free(std::uint64_t base);
  // False when the range touches one that is known already.
  bool add_registered(std::uint64_t base, std::uint64_t size, std::uint64_t context,
                      unsigned flags);
  bool remove_registered(std::uint64_t base);
  void free_all_of(std::uint64_t context);
  bool find(std::uint64_t address, HostBlock* out) const;
  bool contains(std::uint64_t address, std::uint64_t size) const;
  // Whether the range is there, and stays there while `use` runs.
  template <typename Use>
  bool hold(std::uint64_t address, std::uint64_t size, const Use& use) const {
    std::lock_guard<std::mutex> guard(mutex_);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return false;
    const HostBlock& block = std::prev(after)->second;
    const std::uint64_t offset = address - block.base;
    if (offset >= block.size || size > block.size - offset) return false;
    use();
    return true;
  }

  void window(std::uint64_t* low, std::uint64_t* high) const;
  // What is registered now, by address; neighbours are one range.
  struct Range {
    std::uint64_t low = 0, high = 0;
  };
  std::vector<Range> registered() const;

 private:
  bool reserve_locked();
  void release_locked(const HostBlock& block);

  mutable std::mutex mutex_;
  std::uint64_t low_ = 0, high_ = 0;
  std::size_t registered_ = 0;                      // of the blocks
  std::uint64_t next_id_ = std::uint64_t{1} << 32;  // apart from device allocations' ids
  std::map<std::uint64_t, std::uint64_t> holes_;
  std::map<std::uint64_t, HostBlock> blocks_;
};

}  // namespace headrace::softgpu
