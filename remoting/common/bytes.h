// Little-endian buffers for everything that goes over a wire: an append-only Writer and a bounded
// Reader. Both are header-only because a call is a dozen of these operations and they must inline.
//
// The Reader never reads past its span and never throws: the first short read makes ok() false for
// good, and every later read answers zero or empty. So a decoder reads all its fields first and
// asks ok() once at its end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace headrace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and fields are copied as they lie");

// Owns its storage; growing does not clear the new bytes. Pointers from data() and extend() are
// valid until the next append.
class Writer {
 public:
  Writer() = default;
  explicit Writer(std::size_t capacity) { reserve(capacity); }
  Writer(Writer&& other) noexcept
      : storage_(std::move(other.storage_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Writer& operator=(Writer&& other) noexcept {
    storage_ = std::move(other.storage_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  void u8(std::uint8_t value) { fixed(value); }
  void u16(std::uint16_t value) { fixed(value); }
  void u32(std::uint32_t value) { fixed(value); }
  void u64(std::uint64_t value) { fixed(value); }
  void i32(std::int32_t value) { fixed(value); }
  void i64(std::int64_t value) { fixed(value); }
  void f32(float value) { fixed(value); }
  void f64(double value) { fixed(value); }

  // The bytes alone, without a length in front.
  void raw(const void* bytes, std::size_t count) {
    if (count != 0) std::memcpy(extend(count), bytes, count);
  }
  // u32 length, then the bytes. The caller keeps messages under the frame limit, so 32 bits hold.
  void bytes(std::span<const std::uint8_t> value) {
    u32(static_cast<std::uint32_t>(value.size()));
    raw(value.data(), value.size());
  }
  void string(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    raw(value.data(), value.size());
  }

  // Room for `count` bytes that the caller fills in.
  std::uint8_t* extend(std::size_t count) {
    if (capacity_ - size_ < count) grow(count);
    std::uint8_t* place = storage_.get() + size_;
    size_ += count;
    return place;
  }
  // Writes over bytes that were appended before: a length that is known only at the end.
  void patch_u32(std::size_t offset, std::uint32_t value) {
    std::memcpy(storage_.get() + offset, &value, sizeof value);
  }
  void reserve(std::size_t capacity) {
    if (capacity > capacity_) reallocate(capacity);
  }
  void clear() { size_ = 0; }
  // Takes back the newest bytes, down to `size`.
  void truncate(std::size_t size) {
    if (size < size_) size_ = size;
  }

  const std::uint8_t* data() const { return storage_.get(); }
  std::uint8_t* data() { return storage_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::uint8_t> view() const { return {storage_.get(), size_}; }

 private:
  template <typename T>
  void fixed(T value) {
    std::memcpy(extend(sizeof value), &value, sizeof value);
  }
  void grow(std::size_t count) {
    std::size_t wanted = size_ + count;
    std::size_t doubled = capacity_ * 2;
    reallocate(wanted > doubled ? (wanted < 64 ? 64 : wanted) : doubled);
  }
  void reallocate(std::size_t capacity) {
    std::unique_ptr<std::uint8_t[]> larger =
        std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
    if (size_ != 0) std::memcpy(larger.get(), storage_.get(), size_);
    storage_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<std::uint8_t[]> storage_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Looks at bytes it does not own; spans and strings that it hands out live as long as those.
class Reader {
 public:
  Reader() = default;
  explicit Reader(std::span<const std::uint8_t> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  Reader(const void* bytes, std::size_t count)
      : at_(static_cast<const std::uint8_t*>(bytes)), end_(at_ + count) {}

  std::uint8_t u8() { return fixed<std::uint8_t>(); }
  std::uint16_t u16() { return fixed<std::uint16_t>(); }
  std::uint32_t u32() { return fixed<std::uint32_t>(); }
  std::uint64_t u64() { return fixed<std::uint64_t>(); }
  std::int32_t i32() { return fixed<std::int32_t>(); }
  std::int64_t i64() { return fixed<std::int64_t>(); }
  float f32() { return fixed<float>(); }
  double f64() { return fixed<double>(); }

  // The next `count` bytes without a length in front.
  std::span<const std::uint8_t> raw(std::size_t count) {
    if (count > remaining()) {
      fail();
      return {};
    }
    std::span<const std::uint8_t> view(at_, count);
    at_ += count;
    return view;
  }
  // u32 length, then that many bytes; more than `limit` is an error.
  std::span<const std::uint8_t> bytes(std::size_t limit = SIZE_MAX) {
    std::uint32_t count = u32();
    if (count > limit) {
      fail();
      return {};
    }
    return raw(count);
  }
  std::string_view string(std::size_t limit = SIZE_MAX) {
    std::span<const std::uint8_t> view = bytes(limit);
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }
  std::span<const std::uint8_t> rest() { return raw(remaining()); }

  // For checks a caller makes itself (an enumerator out of range, say).
  void fail() {
    ok_ = false;
    at_ = end_;
  }
  bool ok() const { return ok_; }
  std::size_t remaining() const { return static_cast<std::size_t>(end_ - at_); }
  // Everything was there and nothing is left over.
  bool finished() const { return ok_ && at_ == end_; }

 private:
  template <typename T>
  T fixed() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (sizeof value > remaining()) {
      fail();
      return T{};
    }
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool ok_ = true;
};

}  // namespace headrace
