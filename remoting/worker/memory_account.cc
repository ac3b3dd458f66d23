#include "worker/memory_account.h"

#include <algorithm>

#include "gen/messages.h"

namespace headrace::worker {

MemoryAccount::MemoryAccount(BrokerClient& broker, const std::vector<std::uint64_t>& limits)
    : broker_(broker) {
  for (const std::uint64_t limit : limits) slices_.push_back(Slice{limit, 0, 0, 0});
}

bool MemoryAccount::charge(unsigned device, std::uint64_t bytes) {
  Slice& slice = slices_[device];
  // Sizes come from the client: what exceeds the slice is refused before it can wrap round.
  if (bytes > slice.limit || slice.used > slice.limit - bytes) return false;
  const std::uint64_t needed = slice.used + bytes;
  if (needed > slice.held) {
    // The last granule of a slice may be a part of one.
    const std::uint64_t whole = std::min(round_up(needed, memory_granule), slice.limit);
    if (!ask(device, static_cast<std::int64_t>(whole - slice.held)) &&
        !ask(device, static_cast<std::int64_t>(needed - slice.held))) {
      return false;
    }
  }
  slice.used = needed;
  return true;
}

void MemoryAccount::give_back(unsigned device, std::uint64_t bytes) {
  Slice& slice = slices_[device];
  slice.used -= std::min(bytes, slice.used);
  const std::uint64_t keep = round_up(slice.used, memory_granule);
  if (keep >= slice.held) return;
  const std::uint64_t surplus = slice.held - keep;
  broker_.tell(protocol::MemoryRequest{device, -static_cast<std::int64_t>(surplus)},
               /*answered=*/true);
  slice.held = keep;
  slice.all_held -= std::min(surplus, slice.all_held);
}

MemoryAccount::Info MemoryAccount::info(unsigned device) {
  ask(device, 0);
  const Slice& slice = slices_[device];
  const std::uint64_t taken = std::max(slice.all_held, slice.held);
  const std::uint64_t free = slice.limit - std::min(taken, slice.limit);
  return {free + (slice.held - slice.used), slice.limit};
}

bool MemoryAccount::ask(unsigned device, std::int64_t delta) {
  Slice& slice = slices_[device];
  const Result<protocol::MemoryReply> reply =
      broker_.ask<protocol::MemoryReply>(protocol::MemoryRequest{device, delta});
  if (!reply) return false;
  slice.all_held = reply->used;
  if (!reply->granted) return false;
  slice.held = static_cast<std::uint64_t>(static_cast<std::int64_t>(slice.held) + delta);
  return true;
}

}  // namespace headrace::worker
