#include "client/host_twins.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "client/process.h"
#include "client/remote.h"

namespace headrace::client {
namespace {

// What one frame carries, and how much is compared before others get a turn with the lock.
constexpr std::size_t frame_bytes = 512 << 10;
constexpr std::uint64_t lines_at_once = (std::uint64_t{16} << 20) / host_line;

// Where kernels of operating systems place what is mapped anywhere lies above it.
constexpr std::uint64_t near_high = 0x2a00'0000'0000;

std::uint64_t word_at(const std::uint8_t* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Kernels of any context may use any block.
CUresult wait_for_all() {
  CUresult told = CUDA_SUCCESS;
  for (const std::shared_ptr<Context>& context : process().contexts.all()) {
    if (!context->alive.load()) continue;
    const calls::CuCtxSynchronize call;
    calls::CuCtxSynchronize::Reply reply;
    const CUresult waited = trip_in(context->id, call, reply).told();
    if (told == CUDA_SUCCESS) told = waited;
  }
  return told;
}

}  // namespace

// ---------------------------------------------------------------- which blocks there are

void HostTwins::add(const MemoryRange& range) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Hull& hull = range.base < near_high ? near_ : far_;
  if (range.base < hull.low.load()) hull.low.store(range.base);
  // An address one past the end belongs to it, too: kernels count down from there.
  if (range.base + range.size > hull.high.load()) hull.high.store(range.base + range.size);
  hidden_count_.fetch_add(1, std::memory_order_release);
}

void HostTwins::hidden_gone() {
  if (hidden_count_.fetch_sub(1) != 1) return;
  for (Hull* hull : {&near_, &far_}) {
    hull->low.store(UINT64_MAX);
    hull->high.store(0);
  }
}

void HostTwins::drop(std::uint64_t base) {
  const auto found = shared_.find(base);
  if (found == shared_.end()) return;
  unmap_shadow(found->second.shadow, found->second.shadow_bytes());
  shared_.erase(found);
  shared_count_.store(shared_.size(), std::memory_order_release);
}

void HostTwins::forget(const MemoryRange& range) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!range.shared) return hidden_gone();
  drop(range.base);
}

CUresult HostTwins::end(const MemoryRange& range) {
  if (!range.shared) {
    forget(range);
    return CUDA_SUCCESS;
  }
  // What kernels have written must have come before the program goes on with its own pages.
  const CUresult waited = wait_for_all();
  forget(range);
  calls::CuMemHostUnregister call;
  call.address = range.base;
  const CUresult sent = send_in(range.context->id, call);
  return waited != CUDA_SUCCESS ? waited : sent;
}

// ---------------------------------------------------------------- making them shared

bool HostTwins::may_be_hidden(std::uint64_t value) const {
  return (value >= near_.low.load(std::memory_order_relaxed) &&
          value <= near_.high.load(std::memory_order_relaxed)) ||
         (value >= far_.low.load(std::memory_order_relaxed) &&
          value <= far_.high.load(std::memory_order_relaxed));
}

CUresult HostTwins::share(std::uint64_t address) {
  std::optional<MemoryRange> range = process().memory.find(address);
  // One past the end, unless another block begins there.
  if (!range && address != 0) range = process().memory.find(address - 1);
  if (!range || !range->host() || range->shared) return CUDA_SUCCESS;
  return share_block(range->base);
}

CUresult HostTwins::share_block(std::uint64_t base) {
  const std::lock_guard<std::mutex> one_at_a_time(share_mutex_);
  const std::optional<MemoryRange> range = process().memory.find(base);
  if (!range || range->base != base || !range->host() || range->shared) return CUDA_SUCCESS;
  SharedBlock block{base, range->size, nullptr};
  block.shadow = map_shadow(block.shadow_bytes());
  if (block.shadow == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  calls::CuMemHostRegister_v2 call;
  call.address = base;
  call.bytes = range->size;
  calls::CuMemHostRegister_v2::Reply reply;
  const TripResult outcome = trip_in(range->context->id, call, reply);
  if (outcome.result != CUDA_SUCCESS) {
    unmap_shadow(block.shadow, block.shadow_bytes());
    if (outcome.told() == connection_lost_error) return connection_lost_error;
    log_line("page-locked memory at " + hexadecimal(base) + " (" + std::to_string(range->size) +
             " bytes) cannot be used by kernels: the server answered error " +
             std::to_string(outcome.result));
    if (outcome.deferred != CUDA_SUCCESS) return outcome.deferred;
    return outcome.result == CUDA_ERROR_OUT_OF_MEMORY ? outcome.result : CUDA_ERROR_NOT_SUPPORTED;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (process().memory.set_shared(base)) {
      shared_[base] = block;
      shared_count_.store(shared_.size(), std::memory_order_release);
      hidden_gone();
      log_line("page-locked memory at " + hexadecimal(base) + " (" + std::to_string(block.size) +
               " bytes) is shared with the server: its address may reach a kernel");
      return outcome.deferred;
    }
  }
  // The program has freed it meanwhile, in another thread.
  unmap_shadow(block.shadow, block.shadow_bytes());
  calls::CuMemHostUnregister back;
  back.address = base;
  send_in(range->context->id, back);
  return outcome.deferred;
}

CUresult HostTwins::look_through(std::span<const std::uint8_t> bytes, std::size_t step) {
  if (hidden_count_.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += step) {
    const std::uint64_t value = word_at(bytes.data() + at);
    if (!may_be_hidden(value)) continue;
    if (const CUresult bad = share(value); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult HostTwins::look_through_upload(std::uint64_t destination,
                                        std::span<const std::uint8_t> bytes) {
  // A kernel loads a pointer from a multiple of its size only.
  const std::size_t skipped = static_cast<std::size_t>(-destination % 8);
  return skipped >= bytes.size() ? CUDA_SUCCESS : look_through(bytes.subspan(skipped), 8);
}

CUresult HostTwins::before_launch(std::span<const std::uint8_t> block) {
  if (const CUresult bad = look_through(block, 4); bad != CUDA_SUCCESS) return bad;
  return push();
}

// ---------------------------------------------------------------- keeping them the same

// Addresses of hidden blocks in lines that are about to be sent. The shadow has them already.
void HostTwins::find_addresses(const SharedBlock& block, std::span<const std::uint8_t> lines,
                               std::vector<std::uint64_t>& found) const {
  if (hidden_count_.load(std::memory_order_acquire) == 0) return;
  Reader reader(lines);
  while (reader.ok() && reader.remaining() != 0) {
    const std::uint64_t first = reader.u32();
    const std::uint64_t count = reader.u32();
    for (std::uint64_t line = first; line < first + count; ++line) {
      reader.raw(static_cast<std::size_t>(__builtin_popcountll(reader.u64())));
      for (std::size_t at = 0; at < host_line; at += 8) {
        const std::uint64_t value = word_at(block.shadow + line * host_line + at);
        if (may_be_hidden(value)) found.push_back(value);
      }
    }
  }
}

CUresult HostTwins::push_all() {
  Connection& connection = *process().connection;
  std::uint64_t base = 0, line = 0;
  for (;;) {
    std::vector<std::uint64_t> found;
    std::size_t waiting = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto at = shared_.lower_bound(base);
      if (at == shared_.end()) return CUDA_SUCCESS;
      if (at->first != base) {
        base = at->first;
        line = 0;
      }
      const SharedBlock& block = at->second;
      Writer lines;
      line = collect_lines(block, line, lines_at_once, frame_bytes, lines);
      if (!lines.empty()) {
        find_addresses(block, lines.view(), found);
        const Connection::Sent sent =
            connection.append_bytes(protocol::HostChanges::kType, base, lines.view(), waiting);
        if (sent != Connection::Sent::ok) return result_of(sent);
      }
      if (line >= block.lines()) {
        ++base;
        line = 0;
      }
    }
    if (waiting != 0 && !connection.after_append(waiting)) return connection_lost_error;
    for (const std::uint64_t address : found) {
      if (const CUresult bad = share(address); bad != CUDA_SUCCESS) return bad;
      base = line = 0;  // the block that came in may lie before this one
    }
  }
}

bool HostTwins::apply(const protocol::HostChanges& changes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shared_.find(changes.address);
  // Sent before the server knew that the program has given the block up.
  if (found == shared_.end()) return true;
  return apply_lines(found->second, changes.lines);
}

}  // namespace headrace::client
