// Reads NVIDIA's fatbin container: several images of one module, for different architectures, each
// plain or compressed. All functions are bounded by the bytes they are given.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driverabi/byte_view.h"

namespace headrace::driverabi {

inline constexpr std::uint32_t kFatbinWrapperMagic = 0x466243b1;
inline constexpr std::uint32_t kFatbinMagic = 0xba55ed50;

enum class EntryKind : std::uint16_t { ptx = 1, cubin = 2 };  // other kinds are passed over

// An architecture such as 8.0 (80), 9.0a (90, arch) or 10.0f (100, family).
struct Architecture {
  std::uint32_t sm = 0;
  bool arch_specific = false;    // "a": runs on exactly this one
  bool family_specific = false;  // "f": runs on this one and later ones of the family
  bool operator==(const Architecture&) const = default;
};

struct FatbinEntry {
  EntryKind kind = EntryKind::ptx;
  Architecture arch;
  std::string_view name;  // of the source, mostly empty
  Bytes whole;            // header and payload, to be copied into another container
  Bytes payload;          // as stored
  std::uint64_t flags = 0;
  std::uint64_t plain_size = 0;  // after decompression
  bool compressed() const;
};

// Size of a container from its first 16 bytes (header and all entries); nullopt if it is none.
std::optional<std::uint64_t> fatbin_size(Bytes header);

// All entries of known kinds. Nullopt when the container is damaged in any place.
std::optional<std::vector<FatbinEntry>> read_fatbin(Bytes container);

// The entry's image, decompressed. False when it is damaged or larger than `limit`.
bool unpack(const FatbinEntry& entry, std::uint64_t limit, std::vector<std::uint8_t>& out);

// A container that holds just these entries, byte for byte.
std::vector<std::uint8_t> write_fatbin(const std::vector<FatbinEntry>& entries);

// True when SASS for `image` runs on a device of architecture `device_sm`.
bool sass_runs_on(const Architecture& image, std::uint32_t device_sm);
// True when PTX for `image` can be compiled for a device of architecture `device_sm`.
bool ptx_runs_on(const Architecture& image, std::uint32_t device_sm);

// Best images for a device. `sass` and `ptx` index into the entries; -1 = none fits.
struct Selection {
  int sass = -1;
  int ptx = -1;
};
Selection select_entries(const std::vector<FatbinEntry>& entries, std::uint32_t device_sm);

}  // namespace headrace::driverabi
