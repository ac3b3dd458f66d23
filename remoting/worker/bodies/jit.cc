#include "worker/bodies/jit.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "driverabi/refusals.h"

namespace headrace::worker::bodies {

bool JitOptions::read(const std::vector<calls::JitOption>& options) {
  for (const calls::JitOption& one : options) {
    const CUjit_option option = static_cast<CUjit_option>(one.option);
    switch (option) {
      case CU_JIT_MAX_REGISTERS:
      case CU_JIT_THREADS_PER_BLOCK:
      case CU_JIT_OPTIMIZATION_LEVEL:
      case CU_JIT_TARGET_FROM_CUCONTEXT:
      case CU_JIT_TARGET:
      case CU_JIT_FALLBACK_STRATEGY:
      case CU_JIT_GENERATE_DEBUG_INFO:
      case CU_JIT_LOG_VERBOSE:
      case CU_JIT_GENERATE_LINE_INFO:
      case CU_JIT_CACHE_MODE:
      case CU_JIT_POSITION_INDEPENDENT_CODE:
      case CU_JIT_MIN_CTA_PER_SM:
      case CU_JIT_MAX_THREADS_PER_BLOCK:
      case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
        add(option, reinterpret_cast<void*>(one.value));
        break;
      case CU_JIT_WALL_TIME:
        wall_time_at_ = values_.size();
        add(option, nullptr);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        add_log(CU_JIT_INFO_LOG_BUFFER, option, one.value, info_, info_size_at_);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        add_log(CU_JIT_ERROR_LOG_BUFFER, option, one.value, error_, error_size_at_);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER:
        break;  // asked for by their sizes
      default:
        return false;
    }
  }
  return true;
}

void JitOptions::add(CUjit_option option, void* value) {
  options_.push_back(option);
  values_.push_back(value);
}

void JitOptions::add_log(CUjit_option buffer, CUjit_option size, std::uint64_t bytes,
                         std::vector<std::uint8_t>& log, std::size_t& size_at) {
  if (size_at != absent || bytes == 0) return;
  log.assign(std::min(bytes, max_log), 0);
  add(buffer, log.data());
  size_at = values_.size();
  add(size, reinterpret_cast<void*>(log.size()));
}

std::vector<std::uint8_t> JitOptions::written(const std::vector<std::uint8_t>& log,
                                              std::size_t at) const {
  if (at == absent) return {};
  // The driver puts the used size into the option's value; the text ends before a zero byte anyway.
  const std::size_t used = std::min(reinterpret_cast<std::size_t>(values_[at]), log.size());
  const auto end = std::find(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(used), 0);
  return std::vector<std::uint8_t>(log.begin(), end);
}

float JitOptions::float_at(std::size_t at) const {
  float value = 0;
  std::memcpy(&value, &values_[at], sizeof value);
  return value;
}

std::vector<std::uint8_t> last_refusal(const DriverTable& driver) {
  CUuuid id{};
  std::memcpy(id.bytes, driverabi::kRefusalsId, sizeof id.bytes);
  const void* found = nullptr;
  if (driver.cuGetExportTable == nullptr || driver.cuGetExportTable(&found, &id) != CUDA_SUCCESS ||
      found == nullptr) {
    return {};
  }
  const driverabi::RefusalsTable& table = *static_cast<const driverabi::RefusalsTable*>(found);
  if (table.bytes < sizeof table) return {};
  const std::string_view text = table.last();
  constexpr std::size_t most = 4096;  // of a reply's field
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), most))};
}

}  // namespace headrace::worker::bodies
