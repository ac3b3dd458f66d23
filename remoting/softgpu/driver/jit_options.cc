#include "remoting/softgpu/driver/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "remoting/softgpu/device/log.h"

namespace headrace::softgpu {
namespace {

thread_local std::string t_refusal;

}  // namespace

void remember_refusal(const std::string& text) { t_refusal = text; }
const char* last_refusal() { return t_refusal.c_str(); }

CUresult JitOptions::read(unsigned count, CUjit_option* options, void** values, JitOptions* out) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    unsigned number = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        out->info_buffer_.at = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        out->info_buffer_.size = number;
        out->info_buffer_.length = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        out->error_target_.at = out->error_buffer_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        out->error_target_.size = number;
        out->error_target_.length = &values[i];
        break;
      case CU_JIT_MAX_REGISTERS:
        out->max_registers_ = number;
        break;
      case CU_JIT_WALL_TIME:
        out->wall_time_ = &values[i];
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
        break;  // tuning for SASS: nothing to tune here
    }
  }
  remember_refusal("");
  if (out->info_buffer_.size != 0 && out->info_buffer_.at == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (out->error_target_.size != 0 && out->error_target_.at == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

void JitOptions::error(const std::string& text) {
  error_log_ += text;
  if (!text.empty() && text.back() != '\n') error_log_ += '\n';
  log("jit: " + text);
  remember_refusal(error_log_);
}

void JitOptions::Buffer::write(const std::string& text) const {
  if (at == nullptr || size == 0) {
    if (length != nullptr) *length = nullptr;
    return;
  }
  std::size_t bytes = std::min<std::size_t>(text.size(), size - 1);
  std::memcpy(at, text.data(), bytes);
  at[bytes] = '\0';
  if (length != nullptr) *length = reinterpret_cast<void*>(bytes);
}

void JitOptions::write_back(float milliseconds) {
  info_buffer_.write(info_log_);
  error_target_.write(error_log_);
  if (wall_time_ != nullptr) std::memcpy(wall_time_, &milliseconds, sizeof milliseconds);
}

std::string text_of(const JitError& error) {
  return error.line > 0 ? "line " + std::to_string(error.line) + ": " + error.message
                        : error.message;
}

CUresult result_of(const JitError& error) {
  switch (error.kind) {
    case JitErrorKind::compiler_not_found:
      return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    case JitErrorKind::invalid_ptx:
    case JitErrorKind::unsupported_form:
      return CUDA_ERROR_INVALID_PTX;
    case JitErrorKind::unsupported_version:
      return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case JitErrorKind::unknown_kernel:
      return CUDA_ERROR_NOT_FOUND;
    case JitErrorKind::limit:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case JitErrorKind::no_space:
      return CUDA_ERROR_OPERATING_SYSTEM;
    case JitErrorKind::internal:
      break;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace headrace::softgpu
