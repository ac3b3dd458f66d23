// What this session holds of its slices. Memory is asked of the daemon before it is handed out, in
// granules, so that small allocations do not cost a question each; all sessions of a reservation
// draw on one account that the daemon keeps (PROTOCOL.md §11.5).
#pragma once

#include <cstdint>
#include <vector>

#include "worker/broker_client.h"

namespace headrace::worker {

constexpr std::uint64_t memory_granule = 2 * 1024 * 1024;
// Drivers hand memory out in pieces of this size.
constexpr std::uint64_t memory_unit = 512;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

class MemoryAccount {
 public:
  MemoryAccount(BrokerClient& broker, const std::vector<std::uint64_t>& limits);

  // Takes `bytes` (already rounded to units); false: the slice is used up, or nobody can be asked.
  bool charge(unsigned device, std::uint64_t bytes);
  void give_back(unsigned device, std::uint64_t bytes);

  struct Info {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
  };
  // Of the slice, counting what other sessions of the reservation hold.
  Info info(unsigned device);

 private:
  struct Slice {
    std::uint64_t limit = 0;
    std::uint64_t used = 0;      // by this session, exactly
    std::uint64_t held = 0;      // asked of the daemon for it, at least `used`
    std::uint64_t all_held = 0;  // by all sessions, as the daemon last said
  };
  bool ask(unsigned device, std::int64_t delta);

  BrokerClient& broker_;
  std::vector<Slice> slices_;
};

}  // namespace headrace::worker
