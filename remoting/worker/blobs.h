// Images on their way in, piece by piece (PROTOCOL.md §7.6).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace headrace::worker {

// A whole blob, as the driver gets it: a zero byte follows the data, for PTX text.
struct Blob {
  std::unique_ptr<std::uint8_t[]> data;
  std::uint64_t size = 0;  // without the zero byte
};

class Blobs {
 public:
  static constexpr std::size_t max_open = 4;
  static constexpr std::uint64_t max_bytes = 1ull << 30;

  // Each returns why the connection must end; empty if all is well.
  std::string begin(std::uint64_t handle, std::uint64_t size, std::uint64_t raw_size,
                    std::uint8_t encoding);
  std::string data(std::uint64_t handle, std::uint64_t offset, std::span<const std::uint8_t> bytes);

  // Takes a complete blob out, uncompressed; false if there is none of that name or it is not
  // complete or does not uncompress.
  bool take(std::uint64_t handle, Blob& out);

 private:
  struct Open {
    std::unique_ptr<std::uint8_t[]> data;
    std::uint64_t size = 0;
    std::uint64_t filled = 0;
    std::uint64_t raw_size = 0;
    bool compressed = false;
  };
  std::map<std::uint64_t, Open> open_;
  std::uint64_t bytes_ = 0;  // as sent and as they will be, of all open blobs
};

}  // namespace headrace::worker
