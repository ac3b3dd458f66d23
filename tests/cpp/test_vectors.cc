// The golden vectors of remoting/protocol/vectors, against the C++ codec: fields to bytes, bytes to
// fields, and what must be refused. tests/unit/protocol checks the same bytes from Python.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/codec.h"
#include "gen/calls.h"
#include "gen/messages.h"

namespace {

using headrace::Reader;
using headrace::Writer;
namespace codec = headrace::codec;

int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

std::vector<std::uint8_t> from_hex(std::string_view hex, std::size_t zero_bytes = 0) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  bytes.resize(bytes.size() + zero_bytes);
  return bytes;
}

template <typename T>
std::string encoded(const T& value) {
  Writer writer;
  REQUIRE(value.encode(writer));
  std::string hex;
  for (std::uint8_t byte : writer.view()) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

template <typename T>
void check_both_ways(const T& value, std::string_view hex) {
  CHECK(encoded(value) == hex);
  std::vector<std::uint8_t> bytes = from_hex(hex);
  T decoded;
  REQUIRE(codec::decode(bytes, decoded));
  CHECK(encoded(decoded) == hex);
  if constexpr (requires { value == decoded; }) CHECK(value == decoded);
  // Whatever is cut off is missed.
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    T untouched;
    CHECK_FALSE(codec::decode({bytes.data(), length}, untouched));
  }
}

template <typename T>
void check_later(std::string_view hex, std::string_view today) {
  T decoded;
  REQUIRE(codec::decode(from_hex(hex), decoded));
  CHECK(encoded(decoded) == today);
}

template <typename T>
void check_refused(std::string_view hex, std::size_t zero_bytes) {
  T out;
  CHECK_FALSE(codec::decode(from_hex(hex, zero_bytes), out));
  CHECK(encoded(out) == encoded(T{}));
}

}  // namespace

#define HEADRACE_MESSAGE(type, about, hex, ...) \
  TEST_CASE("message " #type ": " about) {      \
    using namespace headrace::protocol;         \
    type value;                                 \
    __VA_ARGS__;                                \
    check_both_ways(value, hex);                \
  }
#define HEADRACE_CALL(type, about, hex, ...) \
  TEST_CASE("call " #type ": " about) {      \
    using namespace headrace::calls;         \
    type value;                              \
    __VA_ARGS__;                             \
    check_both_ways(value, hex);             \
  }
#define HEADRACE_LATER(type, about, hex, today)        \
  TEST_CASE("later message " #type ": " about) {       \
    check_later<headrace::protocol::type>(hex, today); \
  }
#define HEADRACE_REFUSED_MESSAGE(type, why, hex, zero_bytes)  \
  TEST_CASE("refused message " #type ": " why) {              \
    check_refused<headrace::protocol::type>(hex, zero_bytes); \
  }
#define HEADRACE_REFUSED_CALL(type, why, hex, zero_bytes)  \
  TEST_CASE("refused call " #type ": " why) {              \
    check_refused<headrace::calls::type>(hex, zero_bytes); \
  }
#include "gen/test_vectors.inc"

TEST_CASE("a field over its limit is not encoded, and nothing is written") {
  headrace::protocol::Close close;
  close.text.assign(513, 'x');
  Writer writer;
  CHECK_FALSE(close.encode(writer));
  CHECK(writer.empty());
}

TEST_CASE("a text that is not UTF-8 is not encoded") {
  headrace::protocol::Close close;
  close.text = "\xff";
  Writer writer;
  CHECK_FALSE(close.encode(writer));
}

TEST_CASE("messages are found by type, with their phase and answer") {
  const headrace::protocol::MessageInfo* info =
      headrace::protocol::find_message(headrace::protocol::Hello::kType);
  REQUIRE(info != nullptr);
  CHECK(info->name == "Hello");
  CHECK(info->phase == headrace::protocol::Phase::hello);
  CHECK(info->answer == headrace::protocol::Welcome::kType);
  CHECK(headrace::protocol::find_message(0x0008) == nullptr);
}

TEST_CASE("calls are named by type") {
  CHECK(headrace::calls::call_name(headrace::calls::CuLaunchKernel::kType) == "cuLaunchKernel");
  CHECK(headrace::calls::call_name(0x1000).empty());
  CHECK(headrace::calls::call_name(0xffff).empty());
}

TEST_CASE("a reply starts with nine bytes") {
  headrace::calls::ReplyHeader header{700, 1, 1};
  Writer writer;
  header.write(writer);
  CHECK(writer.size() == headrace::calls::ReplyHeader::size);
  Reader reader(writer.view());
  headrace::calls::ReplyHeader read;
  read.read(reader);
  CHECK(reader.finished());
  CHECK(read.result == 700);
  CHECK(read.sticky == 1);
}
