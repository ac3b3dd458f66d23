// The server's twins of the client's page-locked memory (PROTOCOL.md §7.8): pages at the same
// addresses as in the client's process, registered with the driver, so that kernels use the
// client's pointers. Network thread only.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/framing.h"
#include "common/host_lines.h"
#include "gen/driver_table.h"

namespace headrace::worker {

class Session;

class HostTwins {
 public:
  HostTwins(const DriverTable& driver, Session& session);
  ~HostTwins();
  HostTwins(const HostTwins&) = delete;
  HostTwins& operator=(const HostTwins&) = delete;

  // Sets addresses aside in which the client will place its blocks.
  CUresult reserve(std::uint64_t address, std::uint64_t bytes);
  // Makes and removes a twin; a new one belongs to the current context.
  CUresult add(std::uint64_t address, std::uint64_t bytes);
  CUresult remove(std::uint64_t address);
  void drop_context(std::uint64_t context);

  // Writes what the client has changed. Anything but the empty string is a breach of the protocol.
  std::string apply(std::uint64_t address, std::span<const std::uint8_t> lines);

  bool any() const { return !twins_.empty(); }
  bool holds(std::uint64_t address) const { return find(address) != nullptr; }

  // Calls `then` once all that has changed so far is in the output; at once when nothing is shared.
  void publish(std::function<void()> then);
  // Adds changes to the output as long as it is short. True: there is more to do once some of it
  // has left.
  bool pump();

 private:
  struct Twin {
    SharedBlock block;
    std::uint64_t context = 0;
  };

  const Twin* find(std::uint64_t address) const;
  bool overlaps(std::uint64_t address, std::uint64_t bytes) const;
  bool in_window(std::uint64_t low, std::uint64_t high) const;
  bool map_pages(std::uint64_t low, std::uint64_t high);
  void unmap_pages(std::uint64_t low, std::uint64_t high);
  void release(const Twin& twin);
  // One step of the round at hand. False: the round is over.
  bool step();

  const DriverTable& driver_;
  Session& session_;
  const std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t window_low_ = 0, window_high_ = 0;
  std::map<std::uint64_t, Twin> twins_;          // by base
  std::map<std::uint64_t, unsigned> edges_;      // pages outside the window: blocks that touch them
  std::vector<std::function<void()>> waiting_;   // for the next round
  std::vector<std::function<void()>> answered_;  // by the round at hand
  std::uint64_t at_base_ = 0, at_line_ = 0;      // how far the round has come
};

}  // namespace headrace::worker
