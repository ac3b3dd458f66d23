#include "client/jit_options.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "client/process.h"

namespace headrace::client {
namespace {

constexpr unsigned max_log = 262'144;  // what a reply can carry

// Option words are pointers that hold a number.
unsigned number_in(void* word) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(word));
}

}  // namespace

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const auto add = [&](std::uint64_t value) {
      wire_.push_back({static_cast<std::int32_t>(options[i]), value});
    };
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.size_word = &values[i];
        info_.size = number_in(values[i]);
        add(std::min(info_.size, max_log));
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.size_word = &values[i];
        error_.size = number_in(values[i]);
        add(std::min(error_.size, max_log));
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        add(0);
        break;
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_GLOBAL_SYMBOL_COUNT:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        add(number_in(values[i]));
        break;
    }
  }
  if (const CUresult bad = info_.check(); bad != CUDA_SUCCESS) return bad;
  return error_.check();
}

CUresult JitOptions::Log::check() const {
  return size != 0 && buffer == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void JitOptions::Log::write(std::span<const std::uint8_t> text) const {
  if (buffer == nullptr || size_word == nullptr || size == 0) return;
  const std::size_t length = std::min<std::size_t>(text.size(), size - 1);
  if (length != 0) std::memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
  *size_word = reinterpret_cast<void*>(static_cast<std::uintptr_t>(length));
}

void JitOptions::write_back(std::span<const std::uint8_t> info, std::span<const std::uint8_t> error,
                            float milliseconds) const {
  info_.write(info);
  error_.write(error);
  if (wall_time_ != nullptr) std::memcpy(wall_time_, &milliseconds, sizeof milliseconds);
}

void log_refusal(const char* what, std::span<const std::uint8_t> text) {
  if (text.empty()) return;
  log_line(std::string(what) + ": " + std::string(text.begin(), text.end()));
}

}  // namespace headrace::client
