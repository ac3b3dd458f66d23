// Pages of this process for page-locked host memory. They lie in a range of addresses that is set
// aside on both sides of the connection, so that the server can have them at the same place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace headrace::client {

class HostPages {
 public:
  // Asks the server to set the same addresses aside.
  using Agree = std::function<bool(std::uint64_t address, std::uint64_t bytes)>;

  // Zeroed pages; 0 if there are none left. The first call agrees on the range; if there is none to
  // be had, pages lie anywhere. No page next to a block is another block's.
  std::uint64_t take(std::uint64_t size, const Agree& agree);
  void release(std::uint64_t base, std::uint64_t size);

 private:
  void reserve(const Agree& agree);
  std::uint64_t take_in_range(std::uint64_t bytes);

  std::mutex mutex_;  // guards all below
  bool asked_ = false;
  std::uint64_t low_ = 0, high_ = 0;
  std::uint64_t cursor_ = 0;                      // addresses are not used again at once
  std::map<std::uint64_t, std::uint64_t> holes_;  // base -> bytes
};

}  // namespace headrace::client
