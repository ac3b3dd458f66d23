// Every generated decoder by itself, without a frame around: the first two bytes are the type on
// the wire, the third says whether it is a call or its reply, the rest is the payload. Whatever
// decodes must encode to the bytes that it came from (a prefix of them for messages that may grow).
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "common/codec.h"
#include "gen/calls.h"
#include "gen/messages.h"

namespace {

using Payload = std::span<const std::uint8_t>;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename T, bool may_grow>
void check(Payload payload) {
  T value;
  if (!headrace::codec::decode(payload, value)) return;
  headrace::Writer writer;
  require(value.encode(writer));
  require(may_grow ? writer.size() <= payload.size() : writer.size() == payload.size());
  require(writer.empty() || std::memcmp(writer.data(), payload.data(), writer.size()) == 0);
}

void check_type(std::uint16_t type, bool reply, Payload payload) {
  switch (type) {
#define HEADRACE_MESSAGE_TYPE(type, may_grow)           \
  case headrace::protocol::type::kType:                 \
    check<headrace::protocol::type, may_grow>(payload); \
    break;
#define HEADRACE_CALL_TYPE(type)                                             \
  case headrace::calls::type::kType:                                         \
    reply ? check<headrace::calls::type::Reply, /*may_grow=*/false>(payload) \
          : check<headrace::calls::type, /*may_grow=*/false>(payload);       \
    break;
#include "gen/type_list.inc"
    default:
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t before = 3;
  if (size < before) return 0;
  const std::uint16_t type = static_cast<std::uint16_t>(data[0] | data[1] << 8);
  check_type(type, data[2] == 1, Payload(data + before, size - before));
  return 0;
}
