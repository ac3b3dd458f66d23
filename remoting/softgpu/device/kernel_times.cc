#include "remoting/softgpu/device/kernel_times.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {
namespace {

constexpr double kLongest = 1e15;  // ns, eleven days

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// "50us", "2.5ms", "0".
bool parse_time(std::string_view text, double* nanoseconds) {
  const std::string copy(trimmed(text));
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || !(number >= 0)) return false;
  static constexpr struct {
    std::string_view name;
    double scale;
  } kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  const std::string_view unit(end);
  double scale = number == 0 && unit.empty() ? 1 : 0;
  for (const auto& one : kUnits) {
    if (unit == one.name) scale = one.scale;
  }
  *nanoseconds = number * scale;
  return scale != 0 && *nanoseconds <= kLongest;
}

bool parse_entry(std::string_view text, KernelTime* out) {
  const std::size_t equals = text.rfind('=');
  if (equals == text.npos) return false;
  out->pattern = trimmed(text.substr(0, equals));
  if (out->pattern.empty()) return false;
  std::string_view rest = text.substr(equals + 1);
  constexpr std::string_view kPerBlock = "/block";
  for (bool more = true; more;) {
    const std::size_t plus = rest.find('+');
    std::string_view part = trimmed(rest.substr(0, plus));
    more = plus != rest.npos;
    if (more) rest.remove_prefix(plus + 1);
    const bool per_block = part.ends_with(kPerBlock);
    if (per_block) part.remove_suffix(kPerBlock.size());
    double time = 0;
    if (!parse_time(part, &time)) return false;
    (per_block ? out->nanoseconds_per_block : out->nanoseconds) += time;
  }
  return true;
}

std::string without_comments(std::istream& in) {
  std::string out, line;
  while (std::getline(in, line)) out += line.substr(0, line.find('#')) + ",";
  return out;
}

std::vector<KernelTime>* read_times() {
  std::string text = settings().kernel_times;
  if (text.starts_with('@')) {
    std::ifstream file(text.substr(1));
    if (!file) log("HEADRACE_SOFTGPU_TIMES: cannot read " + text.substr(1));
    text = without_comments(file);
  }
  std::string bad;
  std::vector<KernelTime>* out = new std::vector<KernelTime>(parse_kernel_times(text, &bad));
  if (!bad.empty()) {
    log("HEADRACE_SOFTGPU_TIMES: \"" + bad + "\" is not of the form \"name*=50us+2ns/block\"");
  }
  return out;
}

const std::vector<KernelTime>& times() {
  static const std::vector<KernelTime>* const cached = read_times();
  return *cached;
}

}  // namespace

std::vector<KernelTime> parse_kernel_times(std::string_view text, std::string* bad) {
  std::vector<KernelTime> out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = trimmed(text.substr(0, comma));
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    if (entry.empty()) continue;
    KernelTime time;
    if (parse_entry(entry, &time)) {
      out.push_back(std::move(time));
    } else if (bad->empty()) {
      *bad = entry;
    }
  }
  return out;
}

std::chrono::nanoseconds modelled_time(const std::string& kernel, std::uint64_t blocks) {
  for (const KernelTime& one : times()) {
    if (fnmatch(one.pattern.c_str(), kernel.c_str(), 0) != 0) continue;
    const double time = one.nanoseconds + one.nanoseconds_per_block * static_cast<double>(blocks);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(time, kLongest)));
  }
  return std::chrono::nanoseconds{0};
}

bool times_are_modelled() { return !times().empty(); }

}  // namespace headrace::softgpu
