#include "driverabi/cubin.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kElfHeader = 64;
constexpr std::uint64_t kSectionHeader = 64;
constexpr std::uint64_t kSymbol = 24;
constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint32_t kSectionSymtab = 2;
constexpr std::uint32_t kSectionNobits = 8;
constexpr std::uint8_t kSymbolFunction = 2;
constexpr std::uint8_t kOtherEntry = 0x10;  // st_other: the symbol is a kernel
constexpr std::uint8_t kNewFlagsAbi = 8;  // EI_ABIVERSION from which e_flags hold the SM in byte 1

// Records of .nv.info: format byte, attribute byte, 16-bit field.
constexpr std::uint8_t kFormatSized = 4;
constexpr std::uint8_t kMaxThreads = 0x05;
constexpr std::uint8_t kFrameSize = 0x11;
constexpr std::uint8_t kRequiredThreads = 0x10;
constexpr std::uint8_t kParamInfo = 0x17;
constexpr std::uint8_t kParamBytes = 0x19;
constexpr std::uint8_t kRegisterCount = 0x2f;
constexpr std::uint8_t kParamInfoV2 = 0x45;
constexpr std::uint32_t kMaxParamBytes = 1 << 16;  // CUDA's own limit is below 32 KiB

struct Section {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
  Bytes bytes;  // empty for sections without content
};

std::string_view string_at(Bytes table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = as_text(table.subspan(offset));
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

std::optional<std::vector<Section>> read_sections(Bytes image) {
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
  std::vector<Section> sections(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * kSectionHeader;
    Section& section = sections[i];
    section.type = load<std::uint32_t>(image, at + 4);
    section.offset = load<std::uint64_t>(image, at + 24);
    section.size = load<std::uint64_t>(image, at + 32);
    section.link = load<std::uint32_t>(image, at + 40);
    section.info = load<std::uint32_t>(image, at + 44);
    if (section.type == kSectionNobits || section.size == 0) continue;
    if (!fits(image.size(), section.offset, section.size)) return std::nullopt;
    section.bytes = image.subspan(section.offset, section.size);
  }
  const Bytes strings = sections[names].bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    sections[i].name = string_at(strings, load<std::uint32_t>(image, table + i * kSectionHeader));
  }
  return sections;
}

// Calls visit(attribute, payload) for every record; payload is the 16-bit field where the format
// has no payload of its own. False when a record reaches outside.
template <typename Visit>
bool each_record(Bytes info, Visit visit) {
  std::uint64_t at = 0;
  while (at + 4 <= info.size()) {
    const std::uint8_t format = info[at];
    const std::uint8_t attribute = info[at + 1];
    if (format != kFormatSized) {
      visit(attribute, info.subspan(at + 2, 2));
      at += 4;
      continue;
    }
    const std::uint64_t size = load<std::uint16_t>(info, at + 2);
    if (!fits(info.size(), at + 4, size)) return false;
    visit(attribute, info.subspan(at + 4, size));
    at += 4 + size;
  }
  return true;
}

bool read_kernel_info(Bytes info, KernelLayout& kernel) {
  std::map<std::uint32_t, ParamSlot> params;
  std::uint32_t stated = 0;
  bool plausible = true;
  const bool whole = each_record(info, [&](std::uint8_t attribute, Bytes payload) {
    if ((attribute == kParamInfo || attribute == kParamInfoV2) && payload.size() >= 12) {
      ParamSlot slot;
      const std::uint32_t ordinal = load<std::uint16_t>(payload, 4);
      slot.offset = load<std::uint16_t>(payload, 6);
      slot.size = attribute == kParamInfo ? load<std::uint32_t>(payload, 8) >> 18
                                          : load<std::uint16_t>(payload, 8);
      plausible = plausible && slot.offset + slot.size <= kMaxParamBytes;
      params[ordinal] = slot;
    } else if (attribute == kParamBytes && payload.size() >= 2) {
      stated = load<std::uint16_t>(payload, 0);
    } else if ((attribute == kMaxThreads || attribute == kRequiredThreads) &&
               payload.size() >= 12) {
      const std::uint64_t threads = std::uint64_t{load<std::uint32_t>(payload, 0)} *
                                    load<std::uint32_t>(payload, 4) *
                                    load<std::uint32_t>(payload, 8);
      kernel.max_threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, 1024));
    }
  });
  if (!whole || !plausible) return false;
  std::uint32_t end = 0;
  std::uint32_t expected = 0;
  for (const auto& [ordinal, slot] : params) {
    if (ordinal != expected++) return false;  // a gap: this reader does not understand the image
    kernel.params.push_back(slot);
    end = std::max(end, slot.offset + slot.size);
  }
  kernel.param_bytes = std::max(end, stated);
  return true;
}

std::uint32_t sm_of(Bytes image) {
  const std::uint32_t flags = load<std::uint32_t>(image, 48);
  return image[8] >= kNewFlagsAbi ? (flags >> 8) & 0xff : flags & 0xff;
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

std::optional<CubinInfo> read_cubin(Bytes image) {
  const std::optional<std::uint64_t> size = elf_size(image);
  if (!size || *size > image.size() || load<std::uint16_t>(image, 18) != kMachineCuda) {
    return std::nullopt;
  }
  const std::optional<std::vector<Section>> sections = read_sections(image);
  if (!sections) return std::nullopt;

  std::unordered_map<std::string_view, const Section*> by_name;
  const Section* symtab = nullptr;
  for (const Section& section : *sections) {
    by_name.emplace(section.name, &section);
    if (section.type == kSectionSymtab) symtab = &section;
  }
  CubinInfo info;
  info.sm = sm_of(image);
  if (symtab == nullptr) return info;
  if (symtab->link >= sections->size()) return std::nullopt;
  const Bytes strings = (*sections)[symtab->link].bytes;

  // Attributes that the image states for all kernels in one section, by symbol index.
  std::unordered_map<std::uint32_t, std::uint32_t> registers;
  std::unordered_map<std::uint32_t, std::uint32_t> frames;
  if (const auto common = by_name.find(".nv.info"); common != by_name.end()) {
    each_record(common->second->bytes, [&](std::uint8_t attribute, Bytes payload) {
      if (payload.size() < 8) return;
      const std::uint32_t symbol = load<std::uint32_t>(payload, 0);
      if (attribute == kRegisterCount) registers[symbol] = load<std::uint32_t>(payload, 4);
      if (attribute == kFrameSize) frames[symbol] = load<std::uint32_t>(payload, 4);
    });
  }

  const auto named = [&](std::string_view prefix, std::string_view kernel) -> const Section* {
    const auto found = by_name.find(std::string(prefix).append(kernel));
    return found == by_name.end() ? nullptr : found->second;
  };
  for (std::uint64_t i = 0; (i + 1) * kSymbol <= symtab->bytes.size(); ++i) {
    const Bytes symbol = symtab->bytes.subspan(i * kSymbol, kSymbol);
    if ((symbol[4] & 0xf) != kSymbolFunction || (symbol[5] & kOtherEntry) == 0 ||
        load<std::uint16_t>(symbol, 6) == 0) {
      continue;
    }
    KernelLayout kernel;
    kernel.name = string_at(strings, load<std::uint32_t>(symbol, 0));
    const Section* description = named(".nv.info.", kernel.name);
    if (kernel.name.empty() || description == nullptr) continue;
    if (!read_kernel_info(description->bytes, kernel)) return std::nullopt;
    const std::uint32_t index = static_cast<std::uint32_t>(i);
    if (const auto found = registers.find(index); found != registers.end()) {
      kernel.registers = found->second;
    }
    if (const auto found = frames.find(index); found != frames.end()) {
      kernel.local_bytes = found->second;
    }
    if (const Section* shared = named(".nv.shared.", kernel.name)) {
      kernel.shared_bytes =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(shared->size, UINT32_MAX));
    }
    info.kernels.push_back(std::move(kernel));
  }
  return info;
}

}  // namespace headrace::driverabi
