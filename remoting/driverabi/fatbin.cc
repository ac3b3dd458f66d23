#include "driverabi/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <climits>

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kContainerHeader = 16;
constexpr std::uint64_t kEntryHeader = 64;
constexpr std::uint32_t kMaxHeader = 1 << 20;  // names and options; real ones are below 4 KiB

// Entry header, by offset.
constexpr std::uint64_t kOffKind = 0;
constexpr std::uint64_t kOffHeaderSize = 4;
constexpr std::uint64_t kOffPayloadSize = 8;
constexpr std::uint64_t kOffCompressedSize = 16;
constexpr std::uint64_t kOffSm = 28;
constexpr std::uint64_t kOffNameOffset = 32;
constexpr std::uint64_t kOffNameLength = 36;
constexpr std::uint64_t kOffFlags = 40;
constexpr std::uint64_t kOffPlainSize = 56;

constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;
constexpr std::uint64_t kFlagArchSpecific = 0x100000;
constexpr std::uint64_t kFlagFamilySpecific = 0x200000;

constexpr std::uint32_t major_of(std::uint32_t sm) { return sm / 10; }

}  // namespace

bool FatbinEntry::compressed() const { return (flags & (kFlagLz4 | kFlagZstd)) != 0; }

std::optional<std::uint64_t> fatbin_size(Bytes header) {
  if (header.size() < kContainerHeader || load<std::uint32_t>(header, 0) != kFatbinMagic) {
    return std::nullopt;
  }
  const std::uint64_t header_size = load<std::uint16_t>(header, 6);
  const std::uint64_t entries = load<std::uint64_t>(header, 8);
  if (header_size < kContainerHeader || entries > UINT64_MAX - header_size) return std::nullopt;
  return header_size + entries;
}

std::optional<std::vector<FatbinEntry>> read_fatbin(Bytes container) {
  const std::optional<std::uint64_t> total = fatbin_size(container);
  if (!total || *total > container.size()) return std::nullopt;
  std::vector<FatbinEntry> entries;
  std::uint64_t at = load<std::uint16_t>(container, 6);
  while (at < *total) {
    if (!fits(*total, at, kEntryHeader)) return std::nullopt;
    const Bytes rest = container.subspan(at, *total - at);
    const std::uint32_t header_size = load<std::uint32_t>(rest, kOffHeaderSize);
    const std::uint64_t padded = load<std::uint64_t>(rest, kOffPayloadSize);
    if (header_size < kEntryHeader || header_size > kMaxHeader ||
        !fits(rest.size(), header_size, padded)) {
      return std::nullopt;
    }
    const std::uint16_t kind = load<std::uint16_t>(rest, kOffKind);
    at += header_size + padded;
    if (kind != static_cast<std::uint16_t>(EntryKind::ptx) &&
        kind != static_cast<std::uint16_t>(EntryKind::cubin)) {
      continue;
    }
    FatbinEntry entry;
    entry.kind = static_cast<EntryKind>(kind);
    entry.flags = load<std::uint64_t>(rest, kOffFlags);
    entry.arch.sm = load<std::uint32_t>(rest, kOffSm);
    entry.arch.arch_specific = (entry.flags & kFlagArchSpecific) != 0;
    entry.arch.family_specific = (entry.flags & kFlagFamilySpecific) != 0;
    entry.whole = rest.first(header_size + padded);
    const std::uint32_t stored = load<std::uint32_t>(rest, kOffCompressedSize);
    if (entry.compressed()) {
      if (stored == 0 || stored > padded) return std::nullopt;
      entry.payload = rest.subspan(header_size, stored);
      entry.plain_size = load<std::uint64_t>(rest, kOffPlainSize);
    } else {
      entry.payload = rest.subspan(header_size, padded);
      entry.plain_size = padded;
    }
    const Bytes header = rest.first(header_size);
    entry.name = as_text(slice(header, load<std::uint32_t>(header, kOffNameOffset),
                               load<std::uint32_t>(header, kOffNameLength)));
    entries.push_back(entry);
  }
  return entries;
}

bool unpack(const FatbinEntry& entry, std::uint64_t limit, std::vector<std::uint8_t>& out) {
  out.clear();
  if (entry.plain_size > limit) return false;
  if (!entry.compressed()) {
    out.assign(entry.payload.begin(), entry.payload.end());
    return true;
  }
  if ((entry.flags & kFlagZstd) != 0) {
    // The frame states its size too: a container cannot make us reserve more than the frame holds.
    if (ZSTD_getFrameContentSize(entry.payload.data(), entry.payload.size()) != entry.plain_size) {
      return false;
    }
    out.resize(entry.plain_size);
    const std::size_t got =
        ZSTD_decompress(out.data(), out.size(), entry.payload.data(), entry.payload.size());
    return ZSTD_isError(got) == 0 && got == out.size();
  }
  // LZ4 cannot shrink more than 255-fold.
  if (entry.plain_size > INT_MAX || entry.payload.size() > INT_MAX ||
      entry.plain_size / 255 > entry.payload.size()) {
    return false;
  }
  out.resize(entry.plain_size);
  const int got = LZ4_decompress_safe(
      reinterpret_cast<const char*>(entry.payload.data()), reinterpret_cast<char*>(out.data()),
      static_cast<int>(entry.payload.size()), static_cast<int>(out.size()));
  return got >= 0 && static_cast<std::uint64_t>(got) == out.size();
}

std::vector<std::uint8_t> write_fatbin(const std::vector<FatbinEntry>& entries) {
  std::uint64_t size = 0;
  for (const FatbinEntry& entry : entries) size += entry.whole.size();
  std::vector<std::uint8_t> out;
  out.reserve(kContainerHeader + size);
  const auto put = [&out](std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  };
  put(kFatbinMagic, 4);
  put(1, 2);
  put(kContainerHeader, 2);
  put(size, 8);
  for (const FatbinEntry& entry : entries) {
    out.insert(out.end(), entry.whole.begin(), entry.whole.end());
  }
  return out;
}

bool sass_runs_on(const Architecture& image, std::uint32_t device_sm) {
  if (image.arch_specific) return image.sm == device_sm;
  // Within a major version, code for an older minor version runs. Families follow major versions.
  return major_of(image.sm) == major_of(device_sm) && image.sm <= device_sm;
}

bool ptx_runs_on(const Architecture& image, std::uint32_t device_sm) {
  if (image.arch_specific) return image.sm == device_sm;
  if (image.family_specific) {
    return major_of(image.sm) == major_of(device_sm) && image.sm <= device_sm;
  }
  return image.sm <= device_sm;
}

Selection select_entries(const std::vector<FatbinEntry>& entries, std::uint32_t device_sm) {
  // Newest first; at the same number the more specific variant is the better code.
  const auto rank = [](const Architecture& arch) {
    return arch.sm * 4 + (arch.arch_specific ? 2 : arch.family_specific ? 1 : 0);
  };
  Selection best;
  for (int i = 0; i < static_cast<int>(entries.size()); ++i) {
    const FatbinEntry& entry = entries[i];
    const bool sass = entry.kind == EntryKind::cubin;
    if (!(sass ? sass_runs_on(entry.arch, device_sm) : ptx_runs_on(entry.arch, device_sm))) {
      continue;
    }
    int& slot = sass ? best.sass : best.ptx;
    if (slot < 0 || rank(entry.arch) > rank(entries[slot].arch)) slot = i;
  }
  return best;
}

}  // namespace headrace::driverabi
