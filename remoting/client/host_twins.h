// Page-locked host memory that kernels use by its address (PROTOCOL.md §7.8). A block is shared
// with the server from the moment on that its address may reach a kernel: when the program asks for
// the device's address, or the address is found in a launch's parameters, in bytes that go to the
// device or in another shared block. Then the program's changes are pushed before whatever might
// look at them, and the server's come before the reply to each call that waits.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "client/host_pages.h"
#include "client/memory_ranges.h"
#include "common/host_lines.h"
#include "gen/messages.h"

namespace headrace::client {

class HostTwins {
 public:
  HostPages& pages() { return pages_; }

  // A block that is recorded in the process's ranges (and has its id) can be found from now on.
  void add(const MemoryRange& range);
  // The program gives up a block, which is no longer in the ranges. Waits for the kernels if they
  // could reach it.
  CUresult end(const MemoryRange& range);
  // The block went with its context, at the server as well.
  void forget(const MemoryRange& range);

  // Makes the block that holds the address shared, unless it is already or there is none.
  CUresult share(std::uint64_t address);
  // Shares all blocks whose addresses are in these bytes, at every `step` of them.
  CUresult look_through(std::span<const std::uint8_t> bytes, std::size_t step);
  // The same for bytes that go to this address of the device.
  CUresult look_through_upload(std::uint64_t destination, std::span<const std::uint8_t> bytes);

  // Sends what the program has changed.
  CUresult push() {
    return shared_count_.load(std::memory_order_acquire) == 0 ? CUDA_SUCCESS : push_all();
  }
  // Before a launch with this parameter block.
  CUresult before_launch(std::span<const std::uint8_t> block);

  // By the thread that reads. False: the server breaks the protocol.
  bool apply(const protocol::HostChanges& changes);

 private:
  // Where blocks lie that are not shared yet; only ever grows while there are any.
  struct Hull {
    std::atomic<std::uint64_t> low{UINT64_MAX};
    std::atomic<std::uint64_t> high{0};
  };

  CUresult share_block(std::uint64_t base);
  CUresult push_all();
  void hidden_gone();
  void drop(std::uint64_t base);
  void find_addresses(const SharedBlock& block, std::span<const std::uint8_t> lines,
                      std::vector<std::uint64_t>& found) const;
  bool may_be_hidden(std::uint64_t value) const;

  HostPages pages_;
  std::atomic<std::size_t> hidden_count_{0};  // changed under mutex_
  std::atomic<std::size_t> shared_count_{0};
  // One for the agreed range, one for what lies elsewhere: a single one would span everything.
  Hull near_, far_;

  std::mutex share_mutex_;  // one block is made shared at a time; before mutex_
  // Held while memory is compared and the frame appended, so that whoever finds nothing to push
  // knows that it is on its way. Never held while the socket is waited for.
  std::mutex mutex_;
  std::map<std::uint64_t, SharedBlock> shared_;  // by base
};

}  // namespace headrace::client
