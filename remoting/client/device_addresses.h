// Addresses of the server's device memory, kept free in this process: CUDA promises one address
// space for host and device, and the calls that take an address of either kind decide by it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace headrace::client {

class DeviceAddresses {
 public:
  // Makes these addresses unusable for anything else here, for good: servers give out the same ones
  // again. False: something of the program lies there.
  bool keep_free(std::uint64_t base, std::uint64_t size);

 private:
  bool take(std::uint64_t low, std::uint64_t high);

  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> kept_;  // under mutex: low -> high, apart from each other
};

}  // namespace headrace::client
