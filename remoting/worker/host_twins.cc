#include "worker/host_twins.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gen/messages.h"
#include "worker/session.h"

namespace headrace::worker {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t widest_window = std::uint64_t{1} << 41;
constexpr std::uint64_t most_per_session = std::uint64_t{16} << 30;
constexpr std::size_t most_blocks = 65'536;
// Programs have no memory above or below; the lowest addresses are the system's to refuse.
constexpr std::uint64_t lowest = 1 << 16;
constexpr std::uint64_t highest = std::uint64_t{1} << 47;
// What one frame carries (§7.8), and how long the network thread looks before it does other things.
constexpr std::size_t frame_bytes = 59'000;
constexpr std::uint64_t lines_at_once = (std::uint64_t{16} << 20) / host_line;
constexpr std::size_t output_enough = 1 << 20;

std::uint64_t page_down(std::uint64_t address) { return address / page * page; }
std::uint64_t page_up(std::uint64_t address) { return page_down(address + page - 1); }
void* at_address(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool sane(std::uint64_t address, std::uint64_t bytes) {
  return bytes != 0 && address >= lowest && address < highest && bytes <= highest - address;
}

std::uint64_t bound() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const std::uint64_t quarter = pages <= 0 ? 0 : static_cast<std::uint64_t>(pages) * page / 4;
  return std::min(most_per_session, quarter);
}

// Never over what is there already.
bool map_at(std::uint64_t low, std::uint64_t bytes, int protection, int flags) {
  void* const at = mmap(at_address(low), bytes, protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | flags, -1, 0);
  if (at == at_address(low)) return true;
  if (at != MAP_FAILED) munmap(at, bytes);  // a kernel that does not know the flag
  return false;
}

}  // namespace

HostTwins::HostTwins(const DriverTable& driver, Session& session)
    : driver_(driver), session_(session), most_bytes_(bound()) {}

HostTwins::~HostTwins() {
  for (const auto& [base, twin] : twins_) release(twin);
  if (window_low_ != 0) munmap(at_address(window_low_), window_high_ - window_low_);
}

CUresult HostTwins::reserve(std::uint64_t address, std::uint64_t bytes) {
  if (!sane(address, bytes) || address % page != 0 || bytes % page != 0 || bytes > widest_window) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (window_low_ != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!map_at(address, bytes, PROT_NONE, MAP_NORESERVE)) return CUDA_ERROR_OUT_OF_MEMORY;
  window_low_ = address;
  window_high_ = address + bytes;
  return CUDA_SUCCESS;
}

const HostTwins::Twin* HostTwins::find(std::uint64_t address) const {
  auto after = twins_.upper_bound(address);
  if (after == twins_.begin()) return nullptr;
  const Twin& twin = std::prev(after)->second;
  return address - twin.block.base < twin.block.size ? &twin : nullptr;
}

bool HostTwins::overlaps(std::uint64_t address, std::uint64_t bytes) const {
  const auto after = twins_.lower_bound(address);
  if (after != twins_.end() && after->first - address < bytes) return true;
  return find(address) != nullptr;
}

bool HostTwins::in_window(std::uint64_t low, std::uint64_t high) const {
  return low >= window_low_ && high <= window_high_;
}

// The first and the last page of memory that the client has registered may be another block's, too.
bool HostTwins::map_pages(std::uint64_t low, std::uint64_t high) {
  if (in_window(low, high)) {
    return mmap(at_address(low), high - low, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  if (low < window_high_ && high > window_low_) return false;
  const std::uint64_t last = high - page;
  const bool first_there = edges_.contains(low);
  const bool last_there = last != low && edges_.contains(last);
  const std::uint64_t from = first_there ? low + page : low;
  const std::uint64_t to = last_there ? last : high;
  if (from < to && !map_at(from, to - from, PROT_READ | PROT_WRITE, 0)) return false;
  ++edges_[low];
  if (last != low) ++edges_[last];
  return true;
}

void HostTwins::unmap_pages(std::uint64_t low, std::uint64_t high) {
  if (in_window(low, high)) {
    mmap(at_address(low), high - low, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return;
  }
  const auto let_go = [this](std::uint64_t at) {
    const auto found = edges_.find(at);
    if (--found->second != 0) return false;
    edges_.erase(found);
    return true;
  };
  const std::uint64_t last = high - page;
  const std::uint64_t from = let_go(low) ? low : low + page;
  const std::uint64_t to = last == low || let_go(last) ? high : last;
  if (from < to) munmap(at_address(from), to - from);
}

CUresult HostTwins::add(std::uint64_t address, std::uint64_t bytes) {
  if (CUresult result = session_.enter(); result != CUDA_SUCCESS) return result;
  if (session_.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!sane(address, bytes) || overlaps(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (driver_.cuMemHostRegister_v2 == nullptr || driver_.cuMemHostUnregister == nullptr ||
      driver_.cuMemHostGetDevicePointer_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::uint64_t low = page_down(address), high = page_up(address + bytes);
  if (twins_.size() >= most_blocks || high - low > most_bytes_ - bytes_) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Twin twin{{address, bytes, nullptr}, session_.current().handle};
  twin.block.shadow = map_shadow(twin.block.shadow_bytes());
  if (twin.block.shadow == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = map_pages(low, high) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) {
    result = driver_.cuMemHostRegister_v2(
        at_address(address), bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    CUdeviceptr seen = 0;
    if (result == CUDA_SUCCESS) {
      result = driver_.cuMemHostGetDevicePointer_v2(&seen, at_address(address), 0);
      // The client's pointers must be right in kernels as they are.
      if (result == CUDA_SUCCESS && seen != address) result = CUDA_ERROR_NOT_SUPPORTED;
      if (result != CUDA_SUCCESS) driver_.cuMemHostUnregister(at_address(address));
    }
    if (result != CUDA_SUCCESS) unmap_pages(low, high);
  }
  if (result != CUDA_SUCCESS) {
    unmap_shadow(twin.block.shadow, twin.block.shadow_bytes());
    return result;
  }
  bytes_ += high - low;
  twins_[address] = twin;
  return CUDA_SUCCESS;
}

void HostTwins::release(const Twin& twin) {
  const std::uint64_t low = page_down(twin.block.base);
  const std::uint64_t high = page_up(twin.block.base + twin.block.size);
  unmap_pages(low, high);
  unmap_shadow(twin.block.shadow, twin.block.shadow_bytes());
  bytes_ -= high - low;
}

CUresult HostTwins::remove(std::uint64_t address) {
  const auto found = twins_.find(address);
  if (found == twins_.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const Twin twin = found->second;
  twins_.erase(found);
  const SessionContext* context = session_.find_context(twin.context);
  if (context == nullptr) {
    unmap_shadow(twin.block.shadow, twin.block.shadow_bytes());
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  const CUresult entered = driver_.cuCtxSetCurrent(context->context);
  session_.current_changed();
  if (entered != CUDA_SUCCESS) {
    unmap_shadow(twin.block.shadow, twin.block.shadow_bytes());
    return entered;
  }
  session_.later().run_in(
      *context, [this, address] { return driver_.cuMemHostUnregister(at_address(address)); },
      [this, twin](CUresult result) {
        // A driver that refuses may still use the pages, so they stay; the block is no longer
        // shared.
        if (result == CUDA_SUCCESS) {
          release(twin);
        } else {
          unmap_shadow(twin.block.shadow, twin.block.shadow_bytes());
        }
        session_.keep(result);
      });
  return CUDA_SUCCESS;
}

// The driver has forgotten what was registered in the context.
void HostTwins::drop_context(std::uint64_t context) {
  std::erase_if(twins_, [&](const auto& one) {
    if (one.second.context != context) return false;
    release(one.second);
    return true;
  });
}

std::string HostTwins::apply(std::uint64_t address, std::span<const std::uint8_t> lines) {
  const auto found = twins_.find(address);
  // It went with its context, or could not be shared, which the client learns from other calls.
  if (found == twins_.end()) return "";
  return apply_lines(found->second.block, lines) ? "" : "HostChanges does not fit its block";
}

void HostTwins::publish(std::function<void()> then) {
  if (!any()) return then();
  waiting_.push_back(std::move(then));
}

bool HostTwins::pump() {
  while (session_.out().pending_bytes() < output_enough) {
    if (answered_.empty()) {
      if (waiting_.empty()) return false;
      // A round looks at everything from its beginning: what is done before it begins is in it.
      answered_.swap(waiting_);
      at_base_ = at_line_ = 0;
    }
    if (step()) continue;
    for (const std::function<void()>& then : std::exchange(answered_, {})) then();
  }
  return !answered_.empty() || !waiting_.empty();
}

bool HostTwins::step() {
  const auto found = twins_.lower_bound(at_base_);
  if (found == twins_.end()) return false;
  const SharedBlock& block = found->second.block;
  if (found->first != at_base_) {
    at_base_ = found->first;
    at_line_ = 0;
  }
  Writer lines;
  at_line_ = collect_lines(block, at_line_, lines_at_once, frame_bytes, lines);
  if (!lines.empty()) {
    FrameWriter& out = session_.out();
    const std::size_t place = out.begin(protocol::HostChanges::kType, 0, 0);
    out.out().u64(block.base);
    out.out().bytes(lines.view());
    out.end(place);
  }
  if (at_line_ == block.lines()) {
    at_base_ = block.base + 1;
    at_line_ = 0;
  }
  return true;
}

}  // namespace headrace::worker
