#include "client/host_pages.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <iterator>

namespace headrace::client {
namespace {

// Far from where a kernel places what nobody asks a place for, so free in every process alike.
constexpr std::uint64_t region_low = 0x2000'0000'0000;
constexpr std::uint64_t region_high = 0x2a00'0000'0000;
constexpr std::uint64_t range_bytes = std::uint64_t{1} << 40;
constexpr std::uint64_t range_alignment = std::uint64_t{2} << 20;
constexpr std::uint64_t page = 4096;
constexpr int tries = 8;

void* at_address(std::uint64_t address) { return reinterpret_cast<void*>(address); }
std::uint64_t whole_pages(std::uint64_t size) { return (size + page - 1) / page * page; }

void* map(std::uint64_t at, std::uint64_t bytes, int protection, int flags) {
  return mmap(at_address(at), bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

}  // namespace

void HostPages::reserve(const Agree& agree) {
  constexpr std::uint64_t places = (region_high - region_low - range_bytes) / range_alignment + 1;
  for (int i = 0; i < tries; ++i) {
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return;
    const std::uint64_t wanted = region_low + random % places * range_alignment;
    void* const at = map(wanted, range_bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
    if (at == MAP_FAILED) continue;
    if (at == at_address(wanted) && agree(wanted, range_bytes)) {
      low_ = cursor_ = wanted;
      high_ = wanted + range_bytes;
      holes_[low_] = range_bytes;
      return;
    }
    munmap(at, range_bytes);
  }
}

std::uint64_t HostPages::take_in_range(std::uint64_t bytes) {
  const std::uint64_t taken = bytes + page;  // the last one stays inaccessible
  const auto fits = [taken](const auto& hole) { return hole.second >= taken; };
  const auto start = holes_.lower_bound(cursor_);
  auto hole = std::find_if(start, holes_.end(), fits);
  if (hole == holes_.end()) hole = std::find_if(holes_.begin(), start, fits);
  if (hole == holes_.end() || !fits(*hole)) return 0;
  const auto [base, length] = *hole;
  if (map(base, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == MAP_FAILED) return 0;
  holes_.erase(hole);
  if (length > taken) holes_[base + taken] = length - taken;
  cursor_ = base + taken;
  return base;
}

std::uint64_t HostPages::take(std::uint64_t size, const Agree& agree) {
  const std::uint64_t bytes = whole_pages(size);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!asked_) {
    asked_ = true;
    reserve(agree);
  }
  if (low_ != 0) {
    if (const std::uint64_t base = take_in_range(bytes); base != 0) return base;
  }
  void* const at = map(0, bytes, PROT_READ | PROT_WRITE, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<std::uint64_t>(at);
}

void HostPages::release(std::uint64_t base, std::uint64_t size) {
  const std::uint64_t bytes = whole_pages(size);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (base < low_ || base >= high_) {
    munmap(at_address(base), bytes);
    return;
  }
  map(base, bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED);
  auto hole = holes_.emplace(base, bytes + page).first;
  const auto next = std::next(hole);
  if (next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  const auto before = std::prev(hole);
  if (before->first + before->second != hole->first) return;
  before->second += hole->second;
  holes_.erase(hole);
}

}  // namespace headrace::client
