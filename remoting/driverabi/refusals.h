// A table of our own behind cuGetExportTable: in words what the software GPU tells by an error
// code. Other drivers do not know its UUID. Header only, so that the worker needs no library for
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::driverabi {

inline constexpr std::uint8_t kRefusalsId[16] = {0x68, 0x65, 0x61, 0x64, 0x72, 0x61, 0x63, 0x65,
                                                 0x2d, 0x72, 0x65, 0x66, 0x75, 0x73, 0x61, 0x6c};

struct RefusalsTable {
  std::size_t bytes;  // of the table
  // Why the calling thread's last load, link or look-up of a kernel failed; "" if it did not. Stays
  // until the thread's next such call.
  const char* (*last)();
};

}  // namespace headrace::driverabi
