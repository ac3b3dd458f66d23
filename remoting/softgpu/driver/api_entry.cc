// How programs find the driver's entry points, and what results are called.
#include <cuda.h>

#include <new>

#include "gen/proc_table.h"
#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {
namespace {

struct ErrorText {
  int number;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define HEADRACE_ERROR(name, number, text) {number, #name, text},
#include "gen/error_names.inc"
#undef HEADRACE_ERROR
};

const ErrorText* find_error(CUresult error) {
  for (const ErrorText& row : kErrors) {
    if (row.number == error) return &row;
  }
  return nullptr;
}

}  // namespace

// Called by the generated exports.
void note_missing(const char* symbol) noexcept {
  try {
    log(std::string(symbol) + " is not there: CUDA_ERROR_NOT_SUPPORTED");
  } catch (...) {
  }
}

CUresult caught(const char* symbol) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    note_missing(symbol);
    return CUDA_ERROR_UNKNOWN;
  }
}

CUresult cuGetErrorName(CUresult error, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* row = find_error(error);
  *out = row != nullptr ? row->name : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* row = find_error(error);
  *out = row != nullptr ? row->text : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  gen::ProcAnswer answer = gen::find_proc(symbol, version, per_thread);
  *out = answer.symbol;
  if (status != nullptr) *status = answer.status;
  return answer.symbol != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** out, int version, cuuint64_t flags) {
  return softgpu::cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}

}  // namespace headrace::softgpu
