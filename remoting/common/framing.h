// Frames (PROTOCOL.md §2): a 16-byte header and a bounded payload. The same on TLS and on the Unix
// socket between worker and daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/bytes.h"

namespace headrace {

constexpr std::size_t frame_header_size = 16;
constexpr std::uint32_t max_payload_v1 = 1'048'576;

// Feature bits of Hello and Welcome (§4).
constexpr std::uint64_t feature_callbacks = 1u << 3;
constexpr std::uint64_t feature_output = 1u << 5;
constexpr std::uint32_t max_payload_before_welcome = 65'536;
constexpr std::size_t flush_at_bytes = 256 * 1024;

constexpr std::uint16_t flag_reply = 1;
constexpr std::uint16_t flag_more = 2;
constexpr std::uint16_t flag_compressed = 4;  // reserved: refused in version 1

// Frame types from here on are driver calls: first_call_type + the call's wire id.
constexpr std::uint16_t first_call_type = 0x1000;

struct FrameHeader {
  std::uint32_t length = 0;
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint32_t call = 0;
  std::uint32_t ack = 0;

  bool reply() const { return (flags & flag_reply) != 0; }
  bool more() const { return (flags & flag_more) != 0; }
};

void encode_header(const FrameHeader& header, std::uint8_t* out);
FrameHeader decode_header(const std::uint8_t* in);
// Why a header cannot be accepted; empty if it can.
std::string header_fault(const FrameHeader& header, std::uint32_t max_payload);

// A frame in the reader's buffer: valid until the reader is next asked for space or for a frame.
struct Frame {
  FrameHeader header;
  std::span<const std::uint8_t> payload;
};

// Appends frames to one buffer, which is then written out in pieces as the socket takes them.
// Payloads are encoded in place: begin(), encode into out(), end().
class FrameWriter {
 public:
  // Starts a frame; returns its place, for end() or drop().
  std::size_t begin(std::uint16_t type, std::uint16_t flags = 0, std::uint32_t call = 0);
  Writer& out() { return buffer_; }
  void end(std::size_t place) {
    buffer_.patch_u32(place,
                      static_cast<std::uint32_t>(buffer_.size() - place - frame_header_size));
  }
  // Takes an unfinished frame back.
  void drop(std::size_t place) { buffer_.truncate(place); }

  // A whole message of messages.toml or calls.h: anything with bool encode(Writer&). False, and
  // nothing added, if it does not fit its own limits.
  template <typename Message>
  [[nodiscard]] bool add(std::uint16_t type, const Message& message, std::uint16_t flags = 0,
                         std::uint32_t call = 0) {
    const std::size_t place = begin(type, flags, call);
    if (!message.encode(buffer_)) {
      drop(place);
      return false;
    }
    end(place);
    return true;
  }

  // The header alone, for a payload that is written straight from its source afterwards.
  void add_header(std::uint16_t type, std::uint32_t length, std::uint16_t flags,
                  std::uint32_t call);

  bool empty() const { return sent_ == buffer_.size(); }
  std::size_t pending_bytes() const { return buffer_.size() - sent_; }
  std::span<const std::uint8_t> pending() const { return buffer_.view().subspan(sent_); }
  // `count` bytes of pending() have left.
  void consume(std::size_t count);
  // Exchanges contents: a flusher takes a full buffer and leaves an empty one that keeps its
  // memory.
  void swap(FrameWriter& other) noexcept;

 private:
  Writer buffer_;
  std::size_t sent_ = 0;
};

// Cuts a byte stream into frames. The buffer grows with the frames that really come, up to one
// header and the largest payload; nothing is allocated because of a length that was only claimed
// and refused.
class FrameReader {
 public:
  enum class Next { frame, need_more, bad };

  explicit FrameReader(std::uint32_t max_payload = max_payload_before_welcome)
      : max_payload_(max_payload) {}
  void set_max_payload(std::uint32_t max_payload) { max_payload_ = max_payload; }

  // Where to read to: never empty unless the stream is bad. Then say with commit() how much came.
  std::span<std::uint8_t> space();
  void commit(std::size_t count) { end_ += count; }

  // The next whole frame. `bad` is final: see fault().
  Next next(Frame& out);

  // For large payloads that should not pass through this buffer: next_header() consumes a header as
  // soon as it is there; take() moves payload bytes that came with it into their destination. The
  // caller reads the rest straight from the stream, and only then asks for the next frame.
  Next next_header(FrameHeader& out);
  std::size_t take(std::span<std::uint8_t> destination);

  bool idle() const { return start_ == end_; }  // no part of a frame is waiting
  const std::string& fault() const { return fault_; }

 private:
  std::size_t buffered() const { return end_ - start_; }
  bool header_ready(FrameHeader& out);
  void compact();

  std::uint32_t max_payload_;
  std::unique_ptr<std::uint8_t[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t start_ = 0;                   // first byte not consumed
  std::size_t end_ = 0;                     // first free byte
  std::size_t wanted_ = frame_header_size;  // bytes from start_ until something is complete
  std::string fault_;
};

}  // namespace headrace
