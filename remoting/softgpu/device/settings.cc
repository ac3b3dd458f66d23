#include "remoting/softgpu/device/settings.h"

#include <cctype>
#include <cstdlib>

#include "remoting/softgpu/device/limits.h"
#include "remoting/softgpu/device/log.h"

namespace headrace::softgpu {
namespace {

constexpr int kMaxDevices = 64;
constexpr std::uint64_t kMaxDeviceBytes = std::uint64_t{4} << 40;

bool take_number(const std::string& text, std::size_t* at, std::uint64_t* out) {
  std::size_t begin = *at;
  std::uint64_t value = 0;
  while (*at < text.size() && std::isdigit(static_cast<unsigned char>(text[*at]))) {
    if (value > (std::uint64_t{1} << 50)) return false;
    value = value * 10 + static_cast<std::uint64_t>(text[(*at)++] - '0');
  }
  *out = value;
  return *at > begin;
}

bool take_unit(const std::string& text, std::size_t* at, std::uint64_t* scale) {
  static constexpr struct {
    const char* name;
    int shift;
  } kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  for (const auto& unit : kUnits) {
    if (text.compare(*at, 3, unit.name) == 0) {
      *at += 3;
      *scale = std::uint64_t{1} << unit.shift;
      return true;
    }
  }
  return false;
}

std::string environment(const char* name, const char* fallback = "") {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

Settings* read_settings() {
  // Leaked: calls that arrive while the process exits still need it.
  Settings* out = new Settings();
  out->log_path = environment("HEADRACE_SOFTGPU_LOG");
  out->state_dir = environment("HEADRACE_SOFTGPU_STATE");
  out->kernel_times = environment("HEADRACE_SOFTGPU_TIMES");
  out->device_bytes = parse_devices(environment("HEADRACE_SOFTGPU", "1x4GiB"));
  if (out->device_bytes.empty()) {
    log_line(out->log_path, "HEADRACE_SOFTGPU is not of the form \"2x8GiB\": no devices");
  }
  std::string cc = environment("HEADRACE_SOFTGPU_CC", "8.0");
  if (!parse_compute_capability(cc, &out->cc_major, &out->cc_minor)) {
    log_line(out->log_path, "HEADRACE_SOFTGPU_CC=" + cc + " is not known: 8.0 is used");
    out->cc_major = 8;
    out->cc_minor = 0;
  }
  out->has_visible_devices = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  out->visible_devices = environment("CUDA_VISIBLE_DEVICES");
  out->launch_blocking = environment("CUDA_LAUNCH_BLOCKING") == "1";
  out->eager_loading = environment("CUDA_MODULE_LOADING") == "EAGER";
  std::string sass = environment("HEADRACE_SOFTGPU_SASS", "refuse");
  out->skip_sass = sass == "skip";
  if (!out->skip_sass && sass != "refuse") {
    log_line(out->log_path, "HEADRACE_SOFTGPU_SASS=" + sass + " is not known: refuse is used");
  }
  return out;
}

}  // namespace

std::vector<std::uint64_t> parse_devices(const std::string& text) {
  std::vector<std::uint64_t> out;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t first = 0, count = 1, scale = 0;
    if (!take_number(text, &at, &first)) return {};
    if (at < text.size() && text[at] == 'x') {
      count = first;
      ++at;
      if (!take_number(text, &at, &first)) return {};
    }
    if (!take_unit(text, &at, &scale) || first == 0 || first > kMaxDeviceBytes / scale) return {};
    if (count == 0 || count + out.size() > kMaxDevices) return {};
    out.insert(out.end(), count, first * scale);
    if (at < text.size()) {
      if (text[at] != ',' || at + 1 == text.size()) return {};
      ++at;
    }
  }
  return out;
}

bool parse_compute_capability(const std::string& text, int* major, int* minor) {
  std::string digits;
  for (char c : text) {
    if (c == '.') continue;
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
    digits += c;
  }
  if (digits.size() < 2 || digits.size() > 3) return false;
  *minor = digits.back() - '0';
  *major = std::atoi(digits.substr(0, digits.size() - 1).c_str());
  return find_limits(*major, *minor) != nullptr;
}

const Settings& settings() {
  static const Settings* cached = read_settings();
  return *cached;
}

}  // namespace headrace::softgpu
