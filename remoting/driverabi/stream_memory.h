// Stream memory operations: the rules that need no device, the same for every libcuda.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace headrace::driverabi {

// What one operation says, whichever member of the union it stands in.
struct MemoryOperation {
  CUstreamBatchMemOpType type = CU_STREAM_MEM_OP_BARRIER;
  CUdeviceptr address = 0;  // 0: it touches none
  std::uint64_t value = 0;
  unsigned flags = 0;

  bool waits() const {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  }
  bool writes() const {
    return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  }
  unsigned bytes() const {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8
                                                                                             : 4;
  }
};

// Most operations of one call.
constexpr unsigned max_memory_operations = 256;

MemoryOperation read_memory_operation(const CUstreamBatchMemOpParams& from);
CUstreamBatchMemOpParams write_memory_operation(const MemoryOperation& from);

// Everything but whether the addresses are memory.
CUresult check_memory_operation(const MemoryOperation& operation);
CUresult check_memory_operations(const CUstreamBatchMemOpParams* operations, unsigned count,
                                 unsigned flags);

// Whether a wait is over when `now` lies at its address.
bool wait_is_over(const MemoryOperation& wait, std::uint64_t now);

}  // namespace headrace::driverabi
