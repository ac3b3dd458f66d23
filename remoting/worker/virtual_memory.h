// What this session has made with virtual memory management: physical memory by the client's
// handles, and where it is mapped. The slice is charged when physical memory is made, and gets it
// back when neither a handle nor a mapping holds it any more.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace headrace::worker {

class VirtualMemory {
 public:
  struct Physical {
    CUmemGenericAllocationHandle object = 0;  // the driver's, kept until nothing holds the memory
    std::uint64_t charged = 0;
    unsigned device = 0;      // index into the grant
    unsigned references = 1;  // of the client
    unsigned mappings = 0;
  };
  struct Mapping {
    std::uint64_t size = 0;
    std::uint64_t memory = 0;  // the client's handle
  };

  // Entries here are few and large; what costs no memory has a bound of its own.
  static constexpr std::size_t max_ranges = 65'536;

  std::map<std::uint64_t, Physical> physical;     // by the client's handle
  std::map<CUdeviceptr, Mapping> mappings;        // by base
  std::map<CUdeviceptr, std::uint64_t> reserved;  // base -> size

  // The mapping that holds the address, or null.
  const Mapping* find(CUdeviceptr address) const {
    auto after = mappings.upper_bound(address);
    if (after == mappings.begin()) return nullptr;
    --after;
    return address - after->first < after->second.size ? &after->second : nullptr;
  }
};

}  // namespace headrace::worker
