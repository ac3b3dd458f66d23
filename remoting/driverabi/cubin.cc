#include "driverabi/cubin.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "driverabi/cubin_sections.h"

namespace headrace::driverabi {
namespace {

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
// From 9.0 on each block has this much for the system, and the sizes of sections contain it.
constexpr std::string_view kReservedShared = ".nv.shared.reserved.0";
constexpr std::uint64_t kReservedSharedBytes = 1024;
constexpr std::uint32_t kMaxParamBytes = 1 << 16;  // CUDA's own limit is below 32 KiB

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

std::optional<CubinInfo> read_cubin(Bytes image) {
  const std::optional<CubinSections> sections = read_cubin_sections(image);
  if (!sections) return std::nullopt;

  std::unordered_map<std::string_view, const CubinSection*> by_name;
  for (const CubinSection& section : sections->all) by_name.emplace(section.name, &section);
  CubinInfo info;
  info.sm = sm_of(image);

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

  const auto named = [&](std::string_view prefix, std::string_view kernel) -> const CubinSection* {
    const auto found = by_name.find(std::string(prefix).append(kernel));
    return found == by_name.end() ? nullptr : found->second;
  };
  for (const CubinSymbol& symbol : sections->symbols) {
    if (symbol.type != kSymbolFunction || (symbol.other & kOtherEntry) == 0 ||
        symbol.section == 0) {
      continue;
    }
    KernelLayout kernel;
    kernel.name = symbol.name;
    const CubinSection* description = named(".nv.info.", kernel.name);
    if (kernel.name.empty() || description == nullptr) continue;
    if (!read_kernel_info(description->bytes, kernel)) return std::nullopt;
    if (const auto found = registers.find(symbol.index); found != registers.end()) {
      kernel.registers = found->second;
    }
    if (const auto found = frames.find(symbol.index); found != frames.end()) {
      kernel.local_bytes = found->second;
    }
    if (const CubinSection* shared = named(".nv.shared.", kernel.name)) {
      const std::uint64_t reserved = by_name.contains(kReservedShared) ? kReservedSharedBytes : 0;
      kernel.shared_bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(shared->size - std::min(shared->size, reserved), UINT32_MAX));
    }
    info.kernels.push_back(std::move(kernel));
  }
  return info;
}

}  // namespace headrace::driverabi
