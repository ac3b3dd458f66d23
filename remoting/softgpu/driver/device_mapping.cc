// Addresses and physical memory apart: what virtual memory management asks of a device's window.
// Reserved addresses are inaccessible like holes; what is mapped there becomes accessible when the
// application says so.
#include <sys/mman.h>

#include "remoting/softgpu/driver/device_memory.h"

namespace headrace::softgpu {

std::uint64_t DeviceMemory::reserve(std::uint64_t size, std::uint64_t alignment) {
  std::lock_guard<std::mutex> guard(mutex_);
  const std::uint64_t base = take_addresses(size, alignment);
  if (base != 0) reservations_[base] = size;
  return base;
}

bool DeviceMemory::unreserve(std::uint64_t base, std::uint64_t size) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = reservations_.find(base);
  if (found == reservations_.end() || found->second != size) return false;
  auto mapped = mappings_.lower_bound(base);
  if (mapped != mappings_.end() && mapped->first - base < size) return false;
  reservations_.erase(found);
  give_addresses(base, size);
  return true;
}

bool DeviceMemory::take_physical(std::uint64_t size, std::vector<std::uint32_t>* chunks) {
  if (size > total_bytes()) return false;
  std::lock_guard<std::mutex> guard(mutex_);
  return store_->take(static_cast<std::uint32_t>(size / kChunkBytes), chunks);
}

void DeviceMemory::give_physical(const std::vector<std::uint32_t>& chunks) {
  std::lock_guard<std::mutex> guard(mutex_);
  store_->give(chunks);
}

bool DeviceMemory::map(std::uint64_t base, std::uint64_t size, std::uint64_t handle,
                       const std::vector<std::uint32_t>& chunks) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto reserved = reservations_.upper_bound(base);
  if (reserved == reservations_.begin()) return false;
  --reserved;
  const std::uint64_t offset = base - reserved->first;
  if (offset >= reserved->second || size > reserved->second - offset) return false;
  auto after = mappings_.lower_bound(base);
  if (after != mappings_.end() && after->first - base < size) return false;
  if (after != mappings_.begin()) {
    const Mapping& before = std::prev(after)->second;
    if (base - before.base < before.size) return false;
  }
  if (!map_chunks_at(base, chunks.data(), size / kChunkBytes, PROT_NONE)) return false;
  mappings_[base] = {base, size, handle, next_id_++, false};
  return true;
}

bool DeviceMemory::whole_mappings_locked(std::uint64_t base, std::uint64_t size) const {
  if (size == 0) return false;
  for (auto at = mappings_.find(base); at != mappings_.end(); ++at) {
    if (at->first != base || at->second.size > size) return false;
    base += at->second.size;
    size -= at->second.size;
    if (size == 0) return true;
  }
  return false;
}

bool DeviceMemory::unmap_all(std::uint64_t base, std::uint64_t size,
                             std::vector<std::uint64_t>* handles) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (!whole_mappings_locked(base, size)) return false;
  for (auto at = mappings_.find(base); at != mappings_.end() && at->first - base < size;) {
    handles->push_back(at->second.handle);
    at = mappings_.erase(at);
  }
  unmap(base, size);
  return true;
}

bool DeviceMemory::set_access(std::uint64_t base, std::uint64_t size, bool accessible) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (!whole_mappings_locked(base, size)) return false;
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mprotect(reinterpret_cast<void*>(base), size, protection) != 0) return false;
  for (auto at = mappings_.find(base); at != mappings_.end() && at->first - base < size; ++at) {
    at->second.accessible = accessible;
  }
  return true;
}

bool DeviceMemory::find_mapping(std::uint64_t address, Mapping* out) const {
  std::lock_guard<std::mutex> guard(mutex_);
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const Mapping& mapping = std::prev(after)->second;
  if (address - mapping.base >= mapping.size) return false;
  *out = mapping;
  return true;
}

}  // namespace headrace::softgpu
