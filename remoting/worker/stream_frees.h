// Memory that was freed in the order of a stream: it goes on counting against the slice until the
// stream has come to the free, because until then the driver cannot hand it out again, except to
// the same stream.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>

namespace headrace::worker {

class Session;
struct Allocation;

class StreamFrees {
 public:
  explicit StreamFrees(Session& session) : session_(session) {}

  // After the driver has taken a free in a stream of the current context.
  void add(CUstream stream, const Allocation& freed);
  // Gives back what streams have come to.
  void settle();
  // Gives back up to `bytes` that this stream has freed: what it allocates next comes later in it.
  void reuse(CUstream stream, unsigned device, std::uint64_t bytes);
  bool pending() const { return !streams_.empty(); }
  // Once the streams have come to all that is pending now.
  void afterwards(std::function<void()> then);
  void drop_context(std::uint64_t context);

 private:
  struct Freed {
    CUevent mark = nullptr;
    std::uint64_t charged = 0;
    unsigned device = 0;
  };
  struct Key {
    std::uint64_t context;
    CUstream stream;
    auto operator<=>(const Key&) const = default;
  };
  void give_back(std::uint64_t context, const Freed& freed);

  Session& session_;
  std::map<Key, std::deque<Freed>> streams_;
};

}  // namespace headrace::worker
