#include "common/codec.h"

namespace headrace::codec {

namespace {

// How many bytes the sequence that starts here takes, 0 if it is not well formed.
std::size_t sequence_length(const unsigned char* at, std::size_t left) {
  unsigned char first = at[0];
  if (first < 0x80) return 1;
  std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || left < length) return 0;
  // The first continuation byte is where overlong forms, surrogates and too large values show.
  unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at[1] < low || at[1] > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  const unsigned char* at = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t left = text.size();
  while (left != 0) {
    std::size_t length = sequence_length(at, left);
    if (length == 0) return false;
    at += length;
    left -= length;
  }
  return true;
}

}  // namespace headrace::codec
