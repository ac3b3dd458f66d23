// Variables of a cubin: where a loader would have to put them, and what they start with.
#include <algorithm>

#include "driverabi/cubin.h"
#include "driverabi/cubin_sections.h"

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kSectionAlign = 256;
constexpr std::uint8_t kSymbolObject = 1;
constexpr std::uint8_t kSymbolCudaObject = 13;  // in relocatable cubins
constexpr std::uint8_t kOtherManaged = 0x04;

// Bank 3 holds the __constant__ variables of programs; other banks are the compiler's own.
bool holds_variables(std::string_view section) {
  return section == ".nv.global" || section == ".nv.global.init" || section == ".nv.constant3";
}

}  // namespace

std::optional<CubinVariables> read_cubin_variables(Bytes image, std::uint64_t limit) {
  const std::optional<CubinSections> sections = read_cubin_sections(image);
  if (!sections) return std::nullopt;
  CubinVariables out;
  std::vector<std::optional<std::uint64_t>> places(sections->all.size());
  // What has content goes first, so that the initial image is as long as that and no longer.
  for (const bool with_content : {true, false}) {
    for (std::size_t i = 0; i < sections->all.size(); ++i) {
      const CubinSection& section = sections->all[i];
      if (!holds_variables(section.name) || section.size == 0 ||
          section.bytes.empty() == with_content) {
        continue;
      }
      const std::uint64_t place = (out.bytes + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
      if (!fits(limit, place, section.size)) return std::nullopt;
      places[i] = place;
      out.bytes = place + section.size;
      if (!with_content) continue;
      out.initial.resize(out.bytes);
      std::copy(section.bytes.begin(), section.bytes.end(),
                out.initial.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }
  for (const CubinSymbol& symbol : sections->symbols) {
    if ((symbol.type != kSymbolObject && symbol.type != kSymbolCudaObject) ||
        (symbol.other & kOtherManaged) != 0 || symbol.name.empty() ||
        symbol.section >= places.size() || !places[symbol.section]) {
      continue;
    }
    const CubinSection& section = sections->all[symbol.section];
    if (!fits(section.size, symbol.value, symbol.size)) return std::nullopt;
    CubinVariable variable;
    variable.name = symbol.name;
    variable.offset = *places[symbol.section] + symbol.value;
    variable.size = symbol.size;
    variable.constant = section.name == ".nv.constant3";
    out.variables.push_back(std::move(variable));
  }
  return out;
}

}  // namespace headrace::driverabi
