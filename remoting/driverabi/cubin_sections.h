// Sections and symbols of a cubin, for the readers beside this file. Names and bytes are views into
// the image.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "driverabi/byte_view.h"

namespace headrace::driverabi {

struct CubinSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
  Bytes bytes;  // empty for sections without content
};

struct CubinSymbol {
  std::uint32_t index = 0;
  std::string_view name;
  std::uint8_t type = 0;
  std::uint8_t other = 0;
  std::uint16_t section = 0;
  std::uint64_t value = 0;
  std::uint64_t size = 0;
};

struct CubinSections {
  std::vector<CubinSection> all;
  std::vector<CubinSymbol> symbols;
};

// Nullopt when damaged, or no cubin.
std::optional<CubinSections> read_cubin_sections(Bytes image);

}  // namespace headrace::driverabi
