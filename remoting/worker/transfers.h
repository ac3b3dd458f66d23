// Waiting for streams, and data between the connection and the device, so that the network thread
// never waits for the device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "common/framing.h"
#include "gen/driver_table.h"
#include "worker/waiter_pool.h"

namespace headrace::worker {

class Session;

// Events of our own, which mark a place in a stream. A wait for one is exactly that: work which the
// client sends later does not prolong it.
class Marks {
 public:
  explicit Marks(const DriverTable& driver) : driver_(driver) {}

  // Records a mark in a stream of the current context, whose handle is `context`.
  CUresult record(std::uint64_t context, CUstream stream, CUevent& mark);
  void recycle(std::uint64_t context, CUevent mark);
  // Whether everything sent to a stream so far is done: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or the
  // failure. For the null stream that includes the streams which it waits for.
  CUresult state(std::uint64_t context, CUstream stream);
  void drop_context(std::uint64_t context) { free_.erase(context); }

 private:
  const DriverTable& driver_;
  std::map<std::uint64_t, std::vector<CUevent>> free_;  // by context
};

// Copies to the device. What the driver would not take without waiting for the stream goes through
// pinned blocks of ours.
class Uploads {
 public:
  Uploads(const DriverTable& driver, Session& session) : driver_(driver), session_(session) {}

  // In the current context.
  CUresult copy(CUdeviceptr to, std::span<const std::uint8_t> from, CUstream stream);
  // Rows that lie packed in `from`: at most a frame of them. `copy` has everything but their place.
  CUresult copy_rows(CUDA_MEMCPY3D copy, std::span<const std::uint8_t> from, CUstream stream);
  // Too many blocks are on their way: no frame is taken until one has arrived.
  bool full() const { return busy_ >= max_busy && !may_wait_for_client(); }
  void drop_context(std::uint64_t context) { free_.erase(context); }

 private:
  static constexpr std::size_t block_size = 1 << 20;
  static constexpr std::size_t max_busy = 32;

  // Blocks may be on their way until the client has answered. Not reading that answer would be for
  // ever, and clients send only so much behind a function (PROTOCOL.md §7.9).
  bool may_wait_for_client() const;
  void* take_block(std::uint64_t context);
  CUresult copy_block(CUdeviceptr to, std::span<const std::uint8_t> from, CUstream stream);
  // Keeps a block until the copy from it, whose enqueuing gave `result`, is done.
  CUresult arrives_later(void* block, CUresult result, CUstream stream);

  const DriverTable& driver_;
  Session& session_;
  std::map<std::uint64_t, std::vector<void*>> free_;  // by context, which owns the memory
  std::size_t busy_ = 0;
};

// What a copy to the host reads: `depth` slices of `height` rows of `width` bytes, sent packed.
struct Source {
  CUdeviceptr address = 0;
  std::uint64_t pitch = 0;        // from row to row
  std::uint64_t slice_pitch = 0;  // from slice to slice
  std::uint64_t width = 0;
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
  // Not null: of this array, from this place on, and no address.
  CUarray array = nullptr;
  std::uint64_t x = 0, y = 0, z = 0;

  std::uint64_t bytes() const { return width * height * depth; }
};

// Copies to the host (PROTOCOL.md §7.5), sent in pieces as the client takes them.
class Downloads {
 public:
  Downloads(const DriverTable& driver, Session& session) : driver_(driver), session_(session) {}

  // Answers call `number` of frame type `type` with the bytes, now or later. Anything but
  // CUDA_SUCCESS: nothing was begun, and the caller answers.
  CUresult begin(std::uint16_t type, std::uint32_t number, const Source& source, CUstream stream);

  // Adds pieces to the output as long as it is short. True: there is more to do once some of the
  // output has left.
  bool pump();
  void drop_context(std::uint64_t context);

 private:
  // Copies of at most this size keep their place in the stream even if it is busy (§7.5).
  static constexpr std::uint64_t ordered_limit = 8 << 20;
  static constexpr std::uint64_t piece = 256 << 10;
  static constexpr std::size_t output_enough = 1 << 20;
  // What all of them together may keep on the host.
  static constexpr std::uint64_t staged_limit = 256 << 20;

  struct Download {
    std::uint16_t type = 0;
    std::uint32_t number = 0;
    Source source;
    std::uint64_t context = 0;
    std::uint64_t life = 0;  // of the context: what it owned is gone if this has changed
    CUcontext native = nullptr;
    std::uint64_t done = 0;
    std::uint8_t* staged = nullptr;  // all of it is on the host already
  };

  CUresult begin_staged(Download download, CUstream stream);
  CUresult begin_waiting(Download download, CUstream stream);
  // False: finished, one way or the other.
  bool send_piece(Download& download);
  void send_all(Download& download);
  void drop_staged(const Download& download);
  void finish(const Download& download, CUresult result);
  // Whether the context is still there as it was; answers otherwise.
  bool alive(const Download& download);
  CUresult copy_piece(const Download& download, std::uint8_t* into, std::uint64_t bytes);
  std::uint64_t piece_size(const Download& download) const;
  CUresult copy_stream(std::uint64_t context, CUstream& out);

  const DriverTable& driver_;
  Session& session_;
  std::deque<Download> ready_;
  std::uint64_t staged_bytes_ = 0;
  std::map<std::uint64_t, CUstream> streams_;  // for copies whose source is ready, by context
};

}  // namespace headrace::worker
