// What a peer may send: a byte stream, cut into frames, decoded by their types. Whatever decodes
// must encode to the bytes that it came from (a prefix of them for messages that may grow).
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "common/codec.h"
#include "common/framing.h"
#include "gen/calls.h"
#include "gen/messages.h"

namespace {

using headrace::Frame;
using headrace::FrameReader;
using headrace::Writer;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
void check(std::span<const std::uint8_t> payload, bool may_grow) {
  T value;
  if (!headrace::codec::decode(payload, value)) return;
  Writer writer;
  require(value.encode(writer));
  require(may_grow ? writer.size() <= payload.size() : writer.size() == payload.size());
  require(writer.empty() || std::memcmp(writer.data(), payload.data(), writer.size()) == 0);
}

void check_frame(const Frame& frame) {
  switch (frame.header.type) {
#define HEADRACE_MESSAGE_TYPE(type, may_grow)                 \
  case headrace::protocol::type::kType:                       \
    check<headrace::protocol::type>(frame.payload, may_grow); \
    break;
#define HEADRACE_CALL_TYPE(type)                               \
  case headrace::calls::type::kType:                           \
    check<headrace::calls::type>(frame.payload, false);        \
    check<headrace::calls::type::Reply>(frame.payload, false); \
    break;
#include "gen/type_list.inc"
    default:
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FrameReader reader(headrace::max_payload_v1);
  while (size != 0) {
    std::span<std::uint8_t> space = reader.space();
    std::size_t count = std::min(space.size(), size);
    require(count != 0);
    std::memcpy(space.data(), data, count);
    reader.commit(count);
    data += count;
    size -= count;
    Frame frame;
    FrameReader::Next next = reader.next(frame);
    for (; next == FrameReader::Next::frame; next = reader.next(frame)) check_frame(frame);
    if (next == FrameReader::Next::bad) {
      require(!reader.fault().empty());
      return 0;
    }
  }
  return 0;
}
