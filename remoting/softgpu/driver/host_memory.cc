#include "remoting/softgpu/driver/host_memory.h"

#include <sys/mman.h>

#include <iterator>

#include "remoting/softgpu/device/address_space.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kWindow = std::uint64_t{64} << 30;
constexpr std::uint64_t kPage = 4096;

std::uint64_t pages(std::uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

}  // namespace

bool HostMemory::reserve_locked() {
  if (low_ != 0) return true;
  void* at = reserve_addresses(kWindow);
  if (at == nullptr) return false;
  low_ = reinterpret_cast<std::uint64_t>(at);
  high_ = low_ + kWindow;
  holes_[low_] = kWindow;
  return true;
}

std::uint64_t HostMemory::allocate(std::uint64_t size, std::uint64_t context, unsigned flags) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (size == 0 || size > kWindow || !reserve_locked()) return 0;
  std::uint64_t bytes = pages(size);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < bytes) continue;
    std::uint64_t base = hole->first, left = hole->second - bytes;
    void* at = mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED) return 0;
    holes_.erase(hole);
    if (left != 0) holes_[base + bytes] = left;
    blocks_[base] = {base, size, next_id_++, context, flags, false};
    return base;
  }
  return 0;
}

void HostMemory::release_locked(const HostBlock& block) {
  if (block.registered) return;
  std::uint64_t bytes = pages(block.size);
  mmap(reinterpret_cast<void*>(block.base), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  auto hole = holes_.emplace(block.base, bytes).first;
  auto next = std::next(hole);
  if (next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole != holes_.begin()) {
    auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      holes_.erase(hole);
    }
  }
}

bool HostMemory::free(std::uint64_t base) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = blocks_.find(base);
  if (found == blocks_.end() || found->second.registered) return false;
  release_locked(found->second);
  blocks_.erase(found);
  return true;
}

bool HostMemory::add_registered(std::uint64_t base, std::uint64_t size, std::uint64_t context,
                                unsigned flags) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto after = blocks_.lower_bound(base + size);
  if (after != blocks_.begin()) {
    const HostBlock& before = std::prev(after)->second;
    if (before.base + before.size > base) return false;
  }
  blocks_[base] = {base, size, next_id_++, context, flags, true};
  ++registered_;
  return true;
}

bool HostMemory::remove_registered(std::uint64_t base) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = blocks_.find(base);
  if (found == blocks_.end() || !found->second.registered) return false;
  --registered_;
  blocks_.erase(found);
  return true;
}

void HostMemory::free_all_of(std::uint64_t context) {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.context == context) {
      release_locked(it->second);
      if (it->second.registered) --registered_;
      it = blocks_.erase(it);
    } else {
      ++it;
    }
  }
}

bool HostMemory::find(std::uint64_t address, HostBlock* out) const {
  std::lock_guard<std::mutex> guard(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const HostBlock& block = std::prev(after)->second;
  if (address - block.base >= block.size) return false;
  *out = block;
  return true;
}

bool HostMemory::contains(std::uint64_t address, std::uint64_t size) const {
  HostBlock block;
  return find(address, &block) && size <= block.size - (address - block.base);
}

void HostMemory::window(std::uint64_t* low, std::uint64_t* high) const {
  std::lock_guard<std::mutex> guard(mutex_);
  *low = low_;
  *high = high_;
}

std::vector<HostMemory::Range> HostMemory::registered() const {
  std::lock_guard<std::mutex> guard(mutex_);
  std::vector<Range> out;
  if (registered_ == 0) return out;
  for (const auto& [base, block] : blocks_) {
    if (!block.registered) continue;
    if (!out.empty() && out.back().high == base) {
      out.back().high += block.size;
    } else {
      out.push_back({base, base + block.size});
    }
  }
  return out;
}

}  // namespace headrace::softgpu
