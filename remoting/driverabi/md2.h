// MD2 (RFC 1319) and HMAC (RFC 2104) over it. Only the runtime's integrity check wants this digest;
// nothing of ours relies on it for security.
#pragma once
#include <array>
#include <cstdint>

#include "driverabi/byte_view.h"

namespace headrace::driverabi {

using Md2Digest = std::array<std::uint8_t, 16>;

Md2Digest md2(Bytes message);
Md2Digest hmac_md2(Bytes key, Bytes message);  // keys of up to 16 bytes, the block size

}  // namespace headrace::driverabi
