#include "driverabi/stream_memory.h"

namespace headrace::driverabi {

MemoryOperation read_memory_operation(const CUstreamBatchMemOpParams& from) {
  MemoryOperation to;
  to.type = from.operation;
  switch (from.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      to.address = from.waitValue.address;
      to.flags = from.waitValue.flags;
      to.value = to.bytes() == 8 ? from.waitValue.value64 : from.waitValue.value;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      to.address = from.writeValue.address;
      to.flags = from.writeValue.flags;
      to.value = to.bytes() == 8 ? from.writeValue.value64 : from.writeValue.value;
      break;
    case CU_STREAM_MEM_OP_BARRIER:
      to.flags = from.memoryBarrier.flags;
      break;
    default:
      to.flags = from.flushRemoteWrites.flags;
      break;
  }
  return to;
}

CUstreamBatchMemOpParams write_memory_operation(const MemoryOperation& from) {
  CUstreamBatchMemOpParams to{};
  to.operation = from.type;
  if (from.waits()) {
    to.waitValue.address = from.address;
    to.waitValue.value64 = from.value;
    to.waitValue.flags = from.flags;
  } else if (from.writes()) {
    to.writeValue.address = from.address;
    to.writeValue.value64 = from.value;
    to.writeValue.flags = from.flags;
  } else {
    to.memoryBarrier.flags = from.flags;
  }
  return to;
}

CUresult check_memory_operation(const MemoryOperation& operation) {
  unsigned known = 0;
  switch (operation.type) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      // No device here offers to flush the writes of other devices, and the attribute says so.
      if ((operation.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      known = CU_STREAM_WAIT_VALUE_NOR;  // all four kinds of comparison
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      known = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
      break;
    case CU_STREAM_MEM_OP_BARRIER:
      known = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return operation.flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if ((operation.flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!operation.waits() && !operation.writes()) return CUDA_SUCCESS;
  return operation.address != 0 && operation.address % operation.bytes() == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_memory_operations(const CUstreamBatchMemOpParams* operations, unsigned count,
                                 unsigned flags) {
  if (operations == nullptr || count == 0 || count > max_memory_operations || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (CUresult bad = check_memory_operation(read_memory_operation(operations[i]))) return bad;
  }
  return CUDA_SUCCESS;
}

bool wait_is_over(const MemoryOperation& wait, std::uint64_t now) {
  const bool wide = wait.bytes() == 8;
  const std::uint64_t mask = wide ? ~std::uint64_t{0} : 0xffffffffu;
  now &= mask;
  const std::uint64_t value = wait.value & mask;
  switch (wait.flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic: the sign of the difference
      return wide ? static_cast<std::int64_t>(now - value) >= 0
                  : static_cast<std::int32_t>(static_cast<std::uint32_t>(now - value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return (~(now | value) & mask) != 0;
  }
}

}  // namespace headrace::driverabi
