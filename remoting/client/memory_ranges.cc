#include "client/memory_ranges.h"

#include <mutex>

namespace headrace::client {

bool MemoryRanges::insert(MemoryRange range) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto after = ranges_.upper_bound(range.base);
  if (after != ranges_.end() && after->first - range.base < range.size) return false;
  if (after != ranges_.begin()) {
    const MemoryRange& before = std::prev(after)->second;
    if (range.base - before.base < before.size) return false;
  }
  range.id = next_id_++;
  ranges_.emplace_hint(after, range.base, range);
  return true;
}

std::optional<MemoryRange> MemoryRanges::find(std::uint64_t address) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(after)->second;
  if (address - range.base >= range.size) return std::nullopt;
  return range;
}

bool MemoryRanges::covered(std::uint64_t address, std::uint64_t size) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return false;
  for (--at; at != ranges_.end(); ++at) {
    const MemoryRange& range = at->second;
    if (!range.mapped() || !range.accessible || address - range.base >= range.size) return false;
    const std::uint64_t here = range.size - (address - range.base);
    if (size <= here) return true;
    address += here;
    size -= here;
  }
  return false;
}

void MemoryRanges::take_mapped(std::uint64_t base, std::uint64_t size) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (auto at = ranges_.lower_bound(base); at != ranges_.end() && at->first - base < size;) {
    at = at->second.mapped() ? ranges_.erase(at) : std::next(at);
  }
}

void MemoryRanges::set_accessible(std::uint64_t base, std::uint64_t size, bool accessible) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (auto at = ranges_.lower_bound(base); at != ranges_.end() && at->first - base < size; ++at) {
    if (at->second.mapped()) at->second.accessible = accessible;
  }
}

std::optional<MemoryRange> MemoryRanges::take(std::uint64_t base, RangeKind kind) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.kind != kind) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  return range;
}

bool MemoryRanges::set_sync_memops(std::uint64_t address, bool value) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  MemoryRange& range = std::prev(after)->second;
  if (address - range.base >= range.size) return false;
  range.sync_memops = value;
  return true;
}

bool MemoryRanges::set_shared(std::uint64_t base) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || !found->second.host()) return false;
  found->second.shared = true;
  return true;
}

std::vector<MemoryRange> MemoryRanges::take_all_of(const Context* context) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  std::vector<MemoryRange> taken;
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    if (it->second.context == context) {
      taken.push_back(it->second);
      it = ranges_.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

void MemoryRanges::forget_module(std::uint64_t module) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  std::erase_if(ranges_, [module](const auto& entry) { return entry.second.module == module; });
}

}  // namespace headrace::client
