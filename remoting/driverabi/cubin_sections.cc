#include "driverabi/cubin_sections.h"

#include <algorithm>
#include <cstring>

#include "driverabi/cubin.h"

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kElfHeader = 64;
constexpr std::uint64_t kSectionHeader = 64;
constexpr std::uint64_t kSymbol = 24;
constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint32_t kSectionSymtab = 2;

// Relocatable cubins (-rdc=true) have types of NVIDIA's own where others say NOBITS.
bool without_content(std::uint32_t type) {
  constexpr std::uint32_t kNobits = 8, kGlobal = 0x70000007, kLocal = 0x70000009,
                          kShared = 0x7000000a, kSharedReserved = 0x70000015;
  return type == kNobits || type == kGlobal || type == kLocal || type == kShared ||
         type == kSharedReserved;
}

std::string_view string_at(Bytes table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = as_text(table.subspan(offset));
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

std::optional<std::vector<CubinSection>> read_sections(Bytes image) {
  const std::uint64_t table = load<std::uint64_t>(image, 40);
  std::uint64_t count = load<std::uint16_t>(image, 60);
  std::uint64_t names = load<std::uint16_t>(image, 62);
  if (load<std::uint16_t>(image, 58) != kSectionHeader ||
      !fits(image.size(), table, kSectionHeader)) {
    return std::nullopt;
  }
  // Extended numbering: more sections than 16 bits count are stated in section 0.
  if (count == 0) count = load<std::uint64_t>(image, table + 32);
  if (names == 0xffff) names = load<std::uint32_t>(image, table + 40);
  if (count > image.size() / kSectionHeader || !fits(image.size(), table, count * kSectionHeader) ||
      names >= count) {
    return std::nullopt;
  }
  std::vector<CubinSection> sections(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * kSectionHeader;
    CubinSection& section = sections[i];
    section.type = load<std::uint32_t>(image, at + 4);
    section.offset = load<std::uint64_t>(image, at + 24);
    section.size = load<std::uint64_t>(image, at + 32);
    section.link = load<std::uint32_t>(image, at + 40);
    section.info = load<std::uint32_t>(image, at + 44);
    if (without_content(section.type) || section.size == 0) continue;
    if (!fits(image.size(), section.offset, section.size)) return std::nullopt;
    section.bytes = image.subspan(section.offset, section.size);
  }
  const Bytes strings = sections[names].bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    sections[i].name = string_at(strings, load<std::uint32_t>(image, table + i * kSectionHeader));
  }
  return sections;
}

std::vector<CubinSymbol> read_symbols(Bytes table, Bytes strings) {
  std::vector<CubinSymbol> symbols;
  for (std::uint64_t i = 0; (i + 1) * kSymbol <= table.size(); ++i) {
    const Bytes entry = table.subspan(i * kSymbol, kSymbol);
    CubinSymbol symbol;
    symbol.index = static_cast<std::uint32_t>(i);
    symbol.name = string_at(strings, load<std::uint32_t>(entry, 0));
    symbol.type = entry[4] & 0xf;
    symbol.other = entry[5];
    symbol.section = load<std::uint16_t>(entry, 6);
    symbol.value = load<std::uint64_t>(entry, 8);
    symbol.size = load<std::uint64_t>(entry, 16);
    symbols.push_back(symbol);
  }
  return symbols;
}

}  // namespace

std::optional<std::uint64_t> elf_size(Bytes header) {
  static constexpr std::uint8_t kIdent[6] = {0x7f, 'E', 'L', 'F', 2, 1};
  if (header.size() < kElfHeader || std::memcmp(header.data(), kIdent, sizeof kIdent) != 0) {
    return std::nullopt;
  }
  const auto end = [&](std::uint64_t offset_at, std::uint64_t size_at, std::uint64_t count_at) {
    const std::uint64_t offset = load<std::uint64_t>(header, offset_at);
    const std::uint64_t size =
        std::uint64_t{load<std::uint16_t>(header, size_at)} * load<std::uint16_t>(header, count_at);
    return offset > UINT64_MAX - size ? UINT64_MAX : offset + size;
  };
  // The two tables come last in what NVIDIA's tools write.
  const std::uint64_t size = std::max({kElfHeader, end(32, 54, 56), end(40, 58, 60)});
  if (size == UINT64_MAX) return std::nullopt;
  return size;
}

std::optional<CubinSections> read_cubin_sections(Bytes image) {
  const std::optional<std::uint64_t> size = elf_size(image);
  if (!size || *size > image.size() || load<std::uint16_t>(image, 18) != kMachineCuda) {
    return std::nullopt;
  }
  std::optional<std::vector<CubinSection>> sections = read_sections(image);
  if (!sections) return std::nullopt;
  CubinSections out;
  out.all = std::move(*sections);
  for (const CubinSection& section : out.all) {
    if (section.type != kSectionSymtab) continue;
    if (section.link >= out.all.size()) return std::nullopt;
    out.symbols = read_symbols(section.bytes, out.all[section.link].bytes);
  }
  return out;
}

}  // namespace headrace::driverabi
