// PROTOCOL.md §2: frames come out whole however the bytes arrive, and bad ones never do.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/framing.h"
#include "common/ids.h"

namespace headrace {
namespace {

struct Text {
  std::string_view text;
  bool encode(Writer& out) const {
    out.raw(text.data(), text.size());
    return text != "too long";
  }
};

void feed(FrameReader& reader, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    std::span<std::uint8_t> space = reader.space();
    REQUIRE(!space.empty());
    const std::size_t count = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), count);
    reader.commit(count);
    bytes = bytes.subspan(count);
  }
}

std::vector<std::uint8_t> header_bytes(const FrameHeader& header) {
  std::vector<std::uint8_t> bytes(frame_header_size);
  encode_header(header, bytes.data());
  return bytes;
}

TEST_CASE("frames survive any cut of the stream") {
  FrameWriter writer;
  const std::string large(100'000, 'x');
  REQUIRE(writer.add(0x10, Text{"one"}));
  REQUIRE(writer.add(0x11, Text{""}, flag_reply, 7));
  REQUIRE(writer.add(0x12, Text{large}, flag_reply | flag_more, 8));
  REQUIRE(writer.add(0x13, Text{"last"}));
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{17}, std::size_t{4096},
                                 writer.pending_bytes()}) {
    FrameReader reader(max_payload_v1);
    std::vector<std::uint16_t> types;
    std::size_t bytes = 0;
    std::span<const std::uint8_t> left = writer.pending();
    while (!left.empty()) {
      const std::size_t count = std::min(step, left.size());
      feed(reader, left.first(count));
      left = left.subspan(count);
      Frame frame;
      while (reader.next(frame) == FrameReader::Next::frame) {
        types.push_back(frame.header.type);
        bytes += frame.payload.size();
        if (frame.header.type == 0x12) CHECK(frame.payload[99'999] == 'x');
      }
    }
    CHECK(types == std::vector<std::uint16_t>{0x10, 0x11, 0x12, 0x13});
    CHECK(bytes == 3 + 100'000 + 4);
    CHECK(reader.idle());
  }
}

TEST_CASE("a payload can bypass the reader's buffer") {
  FrameWriter writer;
  REQUIRE(writer.add(0x20, Text{"0123456789"}, flag_reply | flag_more, 1));
  REQUIRE(writer.add(0x21, Text{"tail"}));
  FrameReader reader;
  feed(reader, writer.pending().first(frame_header_size + 4));
  FrameHeader header;
  REQUIRE(reader.next_header(header) == FrameReader::Next::frame);
  CHECK(header.length == 10);
  std::vector<std::uint8_t> out(10);
  CHECK(reader.take(out) == 4);
  std::memcpy(out.data() + 4, writer.pending().data() + frame_header_size + 4, 6);
  CHECK(std::memcmp(out.data(), "0123456789", 10) == 0);
  feed(reader, writer.pending().subspan(frame_header_size + 10));
  Frame frame;
  REQUIRE(reader.next(frame) == FrameReader::Next::frame);
  CHECK(frame.header.type == 0x21);
}

TEST_CASE("bad headers end the stream with a reason") {
  const FrameHeader bad[] = {
      {max_payload_before_welcome + 1, 1, 0, 0, 0},
      {0xffffffff, 1, 0, 0, 0},
      {0, 1, 8, 0, 0},
      {0, 1, flag_compressed, 0, 0},
      {0, 1, flag_more, 3, 0},
      {0, 1, flag_reply, 0, 0},
      {0, 1, 0, 0, 1},
  };
  for (const FrameHeader& header : bad) {
    FrameReader reader;
    feed(reader, header_bytes(header));
    Frame frame;
    CHECK(reader.next(frame) == FrameReader::Next::bad);
    CHECK_FALSE(reader.fault().empty());
    CHECK(reader.space().empty());
    CHECK(reader.next(frame) == FrameReader::Next::bad);
  }
}

TEST_CASE("the limit grows after the welcome") {
  FrameReader reader;
  reader.set_max_payload(max_payload_v1);
  feed(reader, header_bytes({max_payload_v1, 1, 0, 0, 0}));
  Frame frame;
  CHECK(reader.next(frame) == FrameReader::Next::need_more);
  feed(reader, std::vector<std::uint8_t>(max_payload_v1, 9));
  REQUIRE(reader.next(frame) == FrameReader::Next::frame);
  CHECK(frame.payload.size() == max_payload_v1);
}

TEST_CASE("a writer can take a frame back and leave in pieces") {
  FrameWriter writer;
  REQUIRE(writer.add(1, Text{"keep"}));
  const std::size_t before = writer.pending_bytes();
  const std::size_t place = writer.begin(2);
  writer.out().u64(5);
  writer.drop(place);
  CHECK_FALSE(writer.add(3, Text{"too long"}));
  CHECK(writer.pending_bytes() == before);
  writer.consume(3);
  CHECK(writer.pending_bytes() == before - 3);
  writer.consume(before - 3);
  CHECK(writer.empty());
}

TEST_CASE("handles carry their kind") {
  const std::uint64_t handle = make_handle(HandleKind::event, 12);
  CHECK(handle_kind(handle) == HandleKind::event);
  CHECK(handle_serial(handle) == 12);
  CHECK(handle_kind(0) == HandleKind::none);
  CHECK(handle_kind(~std::uint64_t{0}) == HandleKind::none);
}

}  // namespace
}  // namespace headrace
