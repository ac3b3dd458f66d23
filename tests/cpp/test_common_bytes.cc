// Writer and Reader: what goes in comes out, and nothing is read past the end.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/codec.h"

using headrace::Reader;
using headrace::Writer;
using headrace::codec::valid_utf8;

TEST_CASE("every width survives, little-endian and packed") {
  Writer writer;
  writer.u8(0x12);
  writer.u16(0x3456);
  writer.u32(0x789abcde);
  writer.u64(0x0102030405060708);
  writer.i32(-2);
  writer.i64(-3);
  writer.f32(0.5F);
  writer.f64(-0.25);
  writer.string("abc");
  CHECK(writer.size() == 1 + 2 + 4 + 8 + 4 + 8 + 4 + 8 + 7);
  CHECK(writer.data()[1] == 0x56);
  CHECK(writer.data()[3] == 0xde);

  Reader reader(writer.view());
  CHECK(reader.u8() == 0x12);
  CHECK(reader.u16() == 0x3456);
  CHECK(reader.u32() == 0x789abcde);
  CHECK(reader.u64() == 0x0102030405060708);
  CHECK(reader.i32() == -2);
  CHECK(reader.i64() == -3);
  CHECK(reader.f32() == 0.5F);
  CHECK(reader.f64() == -0.25);
  CHECK(reader.string() == "abc");
  CHECK(reader.finished());
}

TEST_CASE("a writer grows and keeps what was written") {
  Writer writer;
  for (std::uint32_t i = 0; i < 10000; ++i) writer.u32(i);
  Reader reader(writer.view());
  for (std::uint32_t i = 0; i < 10000; ++i) REQUIRE(reader.u32() == i);
  CHECK(reader.finished());
}

TEST_CASE("a length can be written afterwards, and an unfinished end taken back") {
  Writer writer;
  std::size_t place = writer.size();
  writer.u32(0);
  writer.raw("payload", 7);
  writer.patch_u32(place, 7);
  std::size_t whole = writer.size();
  writer.u64(1);
  writer.truncate(whole);
  CHECK(writer.size() == 11);
  CHECK(Reader(writer.view()).u32() == 7);
}

TEST_CASE("a moved-from writer is empty and can be used again") {
  Writer first;
  first.u32(5);
  Writer second = std::move(first);
  CHECK(second.size() == 4);
  first.u8(1);
  CHECK(first.size() == 1);
  first = std::move(second);
  CHECK(first.size() == 4);
}

TEST_CASE("the first short read fails for good and answers zeros") {
  const std::uint8_t bytes[] = {1, 2, 3};
  Reader reader(bytes, sizeof bytes);
  CHECK(reader.u32() == 0);
  CHECK_FALSE(reader.ok());
  CHECK(reader.u8() == 0);
  CHECK(reader.remaining() == 0);
  CHECK_FALSE(reader.finished());
}

TEST_CASE("a length over the limit or beyond the end fails") {
  Writer writer;
  writer.string("four");
  CHECK(Reader(writer.view()).string(4) == "four");
  Reader over(writer.view());
  CHECK(over.string(3).empty());
  CHECK_FALSE(over.ok());
  writer.patch_u32(0, 0xffffffff);
  Reader beyond(writer.view());
  CHECK(beyond.string().empty());
  CHECK_FALSE(beyond.ok());
}

TEST_CASE("a list's count is bounded by the bytes that are left") {
  Writer writer;
  writer.u32(1000);
  writer.u32(1);
  Reader reader(writer.view());
  CHECK(headrace::codec::read_count(reader, 4096, 4) == 0);
  CHECK_FALSE(reader.ok());
}

TEST_CASE("UTF-8 is checked strictly") {
  CHECK(valid_utf8(""));
  CHECK(valid_utf8("plain"));
  CHECK(valid_utf8(
      "\xc2\x80 \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
  for (std::string_view bad :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    CHECK_FALSE(valid_utf8(bad));
  }
}
