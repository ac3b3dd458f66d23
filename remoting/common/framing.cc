#include "common/framing.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr std::size_t first_capacity = 32 * 1024;
constexpr std::uint16_t known_flags = flag_reply | flag_more;

}  // namespace

void encode_header(const FrameHeader& header, std::uint8_t* out) {
  std::memcpy(out, &header.length, 4);
  std::memcpy(out + 4, &header.type, 2);
  std::memcpy(out + 6, &header.flags, 2);
  std::memcpy(out + 8, &header.call, 4);
  std::memcpy(out + 12, &header.ack, 4);
}

FrameHeader decode_header(const std::uint8_t* in) {
  FrameHeader header;
  std::memcpy(&header.length, in, 4);
  std::memcpy(&header.type, in + 4, 2);
  std::memcpy(&header.flags, in + 6, 2);
  std::memcpy(&header.call, in + 8, 4);
  std::memcpy(&header.ack, in + 12, 4);
  return header;
}

std::string header_fault(const FrameHeader& header, std::uint32_t max_payload) {
  if (header.length > max_payload) {
    return "frame of " + std::to_string(header.length) + " bytes, allowed are " +
           std::to_string(max_payload);
  }
  if ((header.flags & ~known_flags) != 0) {
    return "unknown frame flags " + std::to_string(header.flags);
  }
  if (header.more() && !header.reply()) return "MORE without REPLY";
  if (header.reply() && header.call == 0) return "a reply to call 0";
  if (header.ack != 0) return "ack is reserved and must be 0";
  return "";
}

std::size_t FrameWriter::begin(std::uint16_t type, std::uint16_t flags, std::uint32_t call) {
  const std::size_t place = buffer_.size();
  encode_header(FrameHeader{0, type, flags, call, 0}, buffer_.extend(frame_header_size));
  return place;
}

void FrameWriter::add_header(std::uint16_t type, std::uint32_t length, std::uint16_t flags,
                             std::uint32_t call) {
  encode_header(FrameHeader{length, type, flags, call, 0}, buffer_.extend(frame_header_size));
}

void FrameWriter::consume(std::size_t count) {
  sent_ += count;
  if (sent_ == buffer_.size()) {
    buffer_.clear();
    sent_ = 0;
  }
}

void FrameWriter::swap(FrameWriter& other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(sent_, other.sent_);
}

std::span<std::uint8_t> FrameReader::space() {
  if (!fault_.empty()) return {};
  if (start_ == end_) start_ = end_ = 0;
  if (capacity_ - start_ < wanted_ || end_ == capacity_) compact();
  if (capacity_ < wanted_ || end_ == capacity_) {
    const std::size_t limit =
        frame_header_size + std::max(max_payload_, max_payload_before_welcome);
    const std::size_t capacity =
        std::min(limit, std::max({first_capacity, wanted_, capacity_ * 2}));
    std::unique_ptr<std::uint8_t[]> larger =
        std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
    if (end_ != 0) std::memcpy(larger.get(), buffer_.get(), end_);
    buffer_ = std::move(larger);
    capacity_ = capacity;
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

void FrameReader::compact() {
  if (start_ == 0) return;
  std::memmove(buffer_.get(), buffer_.get() + start_, buffered());
  end_ -= start_;
  start_ = 0;
}

bool FrameReader::header_ready(FrameHeader& out) {
  if (!fault_.empty()) return false;
  if (buffered() < frame_header_size) {
    wanted_ = frame_header_size;
    return false;
  }
  out = decode_header(buffer_.get() + start_);
  fault_ = header_fault(out, max_payload_);
  return fault_.empty();
}

FrameReader::Next FrameReader::next(Frame& out) {
  if (!header_ready(out.header)) return fault_.empty() ? Next::need_more : Next::bad;
  const std::size_t whole = frame_header_size + out.header.length;
  if (buffered() < whole) {
    wanted_ = whole;
    return Next::need_more;
  }
  out.payload = {buffer_.get() + start_ + frame_header_size, out.header.length};
  start_ += whole;
  wanted_ = frame_header_size;
  return Next::frame;
}

FrameReader::Next FrameReader::next_header(FrameHeader& out) {
  if (!header_ready(out)) return fault_.empty() ? Next::need_more : Next::bad;
  start_ += frame_header_size;
  wanted_ = frame_header_size;
  return Next::frame;
}

std::size_t FrameReader::take(std::span<std::uint8_t> destination) {
  const std::size_t count = std::min(destination.size(), buffered());
  if (count != 0) std::memcpy(destination.data(), buffer_.get() + start_, count);
  start_ += count;
  return count;
}

}  // namespace headrace
