#include "remoting/softgpu/driver/device_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "remoting/softgpu/device/address_space.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kSmallLimit = kChunkBytes / 2;
constexpr std::uint64_t kSmallAlign = 512;
constexpr std::uint64_t kMinWindow = std::uint64_t{64} << 30;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

void* at_address(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

std::unique_ptr<DeviceMemory> DeviceMemory::create(std::unique_ptr<ChunkStore> store) {
  // Four times the memory: addresses never run out through fragmentation, and a freed address is
  // not handed out again at once.
  std::uint64_t bytes = std::uint64_t{store->total_chunks()} * kChunkBytes;
  std::uint64_t window = std::max(kMinWindow, bytes * 4);
  void* at = reserve_addresses(window + kChunkBytes);
  if (at == nullptr) return nullptr;
  // A forked child may not touch the device, and must not keep its memory either.
  madvise(at, window + kChunkBytes, MADV_DONTFORK);
  std::unique_ptr<DeviceMemory> out(new DeviceMemory());
  out->store_ = std::move(store);
  out->low_ = round_up(reinterpret_cast<std::uint64_t>(at), kChunkBytes);
  out->high_ = out->low_ + window;
  out->cursor_ = out->low_;
  out->holes_[out->low_] = window;
  return out;
}

std::uint64_t DeviceMemory::total_bytes() const {
  return std::uint64_t{store_->total_chunks()} * kChunkBytes;
}

std::uint64_t DeviceMemory::free_bytes() {
  return std::uint64_t{store_->free_chunks()} * kChunkBytes;
}

std::uint64_t DeviceMemory::take_addresses(std::uint64_t bytes, std::uint64_t alignment) {
  auto fits = [&](const auto& hole) {
    const std::uint64_t skipped = round_up(hole.first, alignment) - hole.first;
    return skipped <= hole.second && hole.second - skipped >= bytes;
  };
  // Next fit: go on where the last one ended.
  auto start = holes_.lower_bound(cursor_);
  auto hole = std::find_if(start, holes_.end(), fits);
  if (hole == holes_.end()) hole = std::find_if(holes_.begin(), start, fits);
  if (hole == holes_.end() || !fits(*hole)) return 0;
  const std::uint64_t low = hole->first, length = hole->second;
  const std::uint64_t base = round_up(low, alignment);
  holes_.erase(hole);
  if (base != low) holes_[low] = base - low;
  const std::uint64_t left = low + length - (base + bytes);
  if (left != 0) holes_[base + bytes] = left;
  cursor_ = base + bytes;
  return base;
}

void DeviceMemory::give_addresses(std::uint64_t base, std::uint64_t bytes) {
  auto hole = holes_.emplace(base, bytes).first;
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

bool DeviceMemory::map_chunks_at(std::uint64_t base, const std::uint32_t* chunks, std::size_t count,
                                 int protection) {
  for (std::size_t i = 0; i < count;) {
    std::size_t run = 1;
    while (i + run < count && chunks[i + run] == chunks[i] + run) ++run;
    void* at = mmap(at_address(base + i * kChunkBytes), run * kChunkBytes, protection,
                    MAP_SHARED | MAP_FIXED, store_->data_fd(),
                    static_cast<off_t>(chunks[i] * kChunkBytes));
    if (at == MAP_FAILED) {
      unmap(base, i * kChunkBytes);
      return false;
    }
    i += run;
  }
  madvise(at_address(base), count * kChunkBytes, MADV_DONTFORK);
  return true;
}

std::uint64_t DeviceMemory::map_chunks(const std::vector<std::uint32_t>& chunks) {
  const std::uint64_t bytes = chunks.size() * kChunkBytes;
  const std::uint64_t base = take_addresses(bytes, kChunkBytes);
  if (base == 0) return 0;
  if (map_chunks_at(base, chunks.data(), chunks.size(), PROT_READ | PROT_WRITE)) return base;
  give_addresses(base, bytes);
  return 0;
}

void DeviceMemory::unmap(std::uint64_t base, std::uint64_t bytes) {
  if (bytes == 0) return;
  mmap(at_address(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  madvise(at_address(base), bytes, MADV_DONTFORK);
}

std::uint64_t DeviceMemory::allocate_large(std::uint64_t size) {
  std::uint64_t count = round_up(size, kChunkBytes) / kChunkBytes;
  std::vector<std::uint32_t> chunks;
  if (count > store_->total_chunks() || !store_->take(static_cast<std::uint32_t>(count), &chunks)) {
    return 0;
  }
  std::uint64_t base = map_chunks(chunks);
  if (base == 0) {
    store_->give(chunks);
    return 0;
  }
  large_[base] = std::move(chunks);
  return base;
}

std::uint64_t DeviceMemory::allocate_small(std::uint64_t size) {
  std::uint32_t bytes = static_cast<std::uint32_t>(round_up(size, kSmallAlign));
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto& [base, slab] : slabs_) {
      for (auto hole = slab.holes.begin(); hole != slab.holes.end(); ++hole) {
        if (hole->second < bytes) continue;
        std::uint32_t offset = hole->first, left = hole->second - bytes;
        slab.holes.erase(hole);
        if (left != 0) slab.holes[offset + bytes] = left;
        return base + offset;
      }
    }
    if (attempt != 0) break;
    Slab slab;
    if (!store_->take(1, &slab.chunk)) return 0;
    std::uint64_t base = map_chunks(slab.chunk);
    if (base == 0) {
      store_->give(slab.chunk);
      return 0;
    }
    slab.holes[0] = static_cast<std::uint32_t>(kChunkBytes);
    slabs_[base] = std::move(slab);
  }
  return 0;
}

std::uint64_t DeviceMemory::allocate(std::uint64_t size, std::uint64_t context, std::uint64_t pool,
                                     bool internal) {
  if (size == 0 || size > total_bytes()) return 0;
  std::lock_guard<std::mutex> guard(mutex_);
  bool small = size <= kSmallLimit;
  std::uint64_t base = small ? allocate_small(size) : allocate_large(size);
  if (base == 0) return 0;
  Allocation& entry = allocations_[base];
  entry.base = base;
  entry.size = size;
  entry.reserved = round_up(size, small ? kSmallAlign : kChunkBytes);
  entry.id = next_id_++;
  entry.context = context;
  entry.pool = pool;
  entry.internal = internal;
  return base;
}

void DeviceMemory::release_locked(const Allocation& allocation) {
  std::uint64_t base = allocation.base, bytes = allocation.reserved;
  auto large = large_.find(base);
  if (large == large_.end()) {
    auto slab = std::prev(slabs_.upper_bound(base));
    auto& holes = slab->second.holes;
    std::uint32_t offset = static_cast<std::uint32_t>(base - slab->first);
    auto hole = holes.emplace(offset, static_cast<std::uint32_t>(bytes)).first;
    auto next = std::next(hole);
    if (next != holes.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      holes.erase(next);
    }
    if (hole != holes.begin()) {
      auto before = std::prev(hole);
      if (before->first + before->second == hole->first) {
        before->second += hole->second;
        holes.erase(hole);
        hole = before;
      }
    }
    if (hole->second != kChunkBytes) return;
    base = slab->first;
    bytes = kChunkBytes;
    unmap(base, bytes);
    store_->give(slab->second.chunk);
    slabs_.erase(slab);
  } else {
    unmap(base, bytes);
    store_->give(large->second);
    large_.erase(large);
  }
  give_addresses(base, bytes);
}

bool DeviceMemory::free(std::uint64_t base, bool internal) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = allocations_.find(base);
  if (found == allocations_.end() || (found->second.internal && !internal)) return false;
  release_locked(found->second);
  allocations_.erase(found);
  return true;
}

void DeviceMemory::free_all_of(std::uint64_t context) {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto it = allocations_.begin(); it != allocations_.end();) {
    if (it->second.context == context) {
      release_locked(it->second);
      it = allocations_.erase(it);
    } else {
      ++it;
    }
  }
}

bool DeviceMemory::find(std::uint64_t address, Allocation* out) const {
  std::lock_guard<std::mutex> guard(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin()) {
    const Allocation& entry = std::prev(after)->second;
    if (address - entry.base < entry.size) {
      *out = entry;
      return true;
    }
  }
  auto mapped = mappings_.upper_bound(address);
  if (mapped == mappings_.begin()) return false;
  const Mapping& mapping = std::prev(mapped)->second;
  if (address - mapping.base >= mapping.size) return false;
  *out = {mapping.base, mapping.size, mapping.size, mapping.id, 0, 0, /*internal=*/true};
  return true;
}

bool DeviceMemory::contains(std::uint64_t address, std::uint64_t size) const {
  std::lock_guard<std::mutex> guard(mutex_);
  return contains_locked(address, size);
}

bool DeviceMemory::contains_locked(std::uint64_t address, std::uint64_t size) const {
  if (size == 0) return true;
  auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin()) {
    const Allocation& entry = std::prev(after)->second;
    if (address - entry.base < entry.size) return size <= entry.size - (address - entry.base);
  }
  auto mapped = mappings_.upper_bound(address);
  if (mapped == mappings_.begin()) return false;
  for (--mapped; mapped != mappings_.end(); ++mapped) {
    const Mapping& mapping = mapped->second;
    if (!mapping.accessible || address - mapping.base >= mapping.size) return false;
    const std::uint64_t here = mapping.size - (address - mapping.base);
    if (size <= here) return true;
    address += here;
    size -= here;
  }
  return false;
}

}  // namespace headrace::softgpu
