#include "worker/attached.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/clock.h"
#include "gen/messages.h"
#include "gen/worker_dispatch.h"

namespace headrace::worker {
namespace {

// Frames are carried out in turns of this many bytes, so that answers leave in between.
constexpr std::size_t turn_bytes = 1 << 20;
// §7.7: a client that does not read its replies is cut off.
constexpr std::size_t max_unread = 64 << 20;
constexpr std::uint64_t default_stall_seconds = 120;
// Of one BlobData (messages.toml), which is read by hand.
constexpr std::size_t max_blob_data = 1'048'544;
constexpr std::size_t max_host_changes = 1'048'000;  // of one HostChanges, likewise
// Beyond this no further frames are taken: answers have to leave first.
constexpr std::size_t output_high = 4 << 20;

// The administrator may set another time for the workers of an appliance.
std::uint64_t stall_seconds() {
  constexpr std::uint64_t longest = 86'400;
  const char* text = std::getenv("HEADRACE_STALL_SECONDS");
  const std::uint64_t wanted = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return wanted == 0 ? default_stall_seconds : std::min(wanted, longest);
}

}  // namespace

AttachedLoop::AttachedLoop(Connection& connection, BrokerClient& broker, WaiterPool& pool,
                           Session& session)
    : connection_(connection),
      broker_(broker),
      pool_(pool),
      session_(session),
      stall_seconds_(stall_seconds()),
      guard_(connection.tls().fd()) {}

Ending AttachedLoop::run() {
  last_progress_ns_ = monotonic_ns();
  while (!ended_) {
    guard_.tick();
    const bool more = carry_out_frames();
    pool_.run_completions();
    // What a download ends with may wait for the other.
    const bool copying = session_.downloads().pump() | session_.host_twins().pump();
    write_some();
    if (ended_) break;
    readable_ = readable_ || connection_.tls().has_pending();
    const bool busy = more || (copying && !stalled_);
    if (busy || !readable_ || !may_take_frames()) wait(/*may_sleep=*/!busy);
    if (readable_ && !ended_) read_some();
  }
  return std::move(ending_);
}

void AttachedLoop::end(Ending ending) {
  if (ended_) return;
  ended_ = true;
  ending_ = std::move(ending);
}

bool AttachedLoop::may_take_frames() const {
  return !session_.uploads().full() && connection_.out().pending_bytes() < output_high;
}

void AttachedLoop::read_some() {
  if (hung_up_ || !may_take_frames()) return;
  const std::span<std::uint8_t> space = connection_.in().space();
  if (space.empty()) return;
  const Io io = connection_.tls().read_some(space);
  reads_want_write_ = io.status == IoStatus::want_write;
  // One read takes what the socket had. Whether more has come is asked by waiting: mostly none has,
  // and a read that finds nothing costs as much as a poll that says so.
  readable_ = false;
  switch (io.status) {
    case IoStatus::ok:
      return connection_.in().commit(io.bytes);
    case IoStatus::closed:
      hung_up_ = true;
      return;
    case IoStatus::failed:
      return end(Ending::lost(connection_.tls().failure().text));
    default:
      return;
  }
}

bool AttachedLoop::carry_out_frames() {
  std::size_t done = 0;
  while (!ended_ && may_take_frames()) {
    if (done >= turn_bytes) return true;
    Frame frame;
    const FrameReader::Next next = connection_.in().next(frame);
    if (next == FrameReader::Next::need_more) {
      if (hung_up_) end(client_hung_up(connection_.in()));
      return false;
    }
    if (next == FrameReader::Next::bad) {
      end(Ending::protocol_error(connection_.in().fault()));
      return false;
    }
    done += frame_header_size + frame.payload.size();
    if (std::string why = Connection::fault(frame, Phase::attached); !why.empty()) {
      end(Ending::protocol_error(std::move(why)));
      return false;
    }
    carry_out(frame);
  }
  return false;
}

void AttachedLoop::carry_out(const Frame& frame) {
  const std::uint16_t type = frame.header.type;
  if (type >= first_call_type) return carry_out_call(frame);
  switch (type) {
    case protocol::SetContext::kType:
      return set_context(frame);
    case protocol::BlobBegin::kType:
      return begin_blob(frame);
    case protocol::BlobData::kType:
      return add_to_blob(frame);
    case protocol::HostChanges::kType:
      return change_host_memory(frame);
    case protocol::CallbackDone::kType:
      return finish_callback(frame);
    case protocol::Ping::kType:
      if (!answer_ping(frame, connection_.out())) {
        end(Ending::protocol_error("Ping does not decode"));
      }
      return;
    case protocol::Close::kType:
      return end(client_closed(frame));
    default:
      return;  // Pong
  }
}

void AttachedLoop::carry_out_call(const Frame& frame) {
  const Waiting waiting{frame.header.type, frame.header.call};
  if (waiting.number != 0) {
    if (!session_.begin_wait(waiting.number)) {
      return end(Ending::protocol_error("call number " + std::to_string(waiting.number) +
                                        " is used twice"));
    }
    if (session_.waiting() > max_outstanding) {
      return end(Ending::protocol_error("more than " + std::to_string(max_outstanding) +
                                        " calls unanswered"));
    }
  }
  fields_.clear();
  CUresult result = CUDA_SUCCESS;
  switch (dispatch(session_, frame.header.type, frame.header.call, Reader(frame.payload), result,
                   fields_)) {
    case Outcome::done:
      return session_.answer_fields(waiting, result, fields_.view());
    case Outcome::later:
      return;
    case Outcome::unknown:
      return session_.answer(waiting, CUDA_ERROR_NOT_SUPPORTED);
    case Outcome::malformed:
      return end(Ending::protocol_error("call " + std::to_string(frame.header.type) + " (" +
                                        std::string(calls::call_name(frame.header.type)) +
                                        ") does not decode"));
  }
}

void AttachedLoop::set_context(const Frame& frame) {
  protocol::SetContext message;
  Reader reader(frame.payload);
  if (!protocol::SetContext::decode(reader, message)) {
    return end(Ending::protocol_error("SetContext does not decode"));
  }
  session_.set_context(message.context);
}

void AttachedLoop::begin_blob(const Frame& frame) {
  protocol::BlobBegin message;
  Reader reader(frame.payload);
  if (!protocol::BlobBegin::decode(reader, message)) {
    return end(Ending::protocol_error("BlobBegin does not decode"));
  }
  std::string why =
      session_.blobs().begin(message.blob, message.size, message.raw_size, message.encoding);
  if (!why.empty()) end(Ending::protocol_error(std::move(why)));
}

void AttachedLoop::add_to_blob(const Frame& frame) {
  // Read by hand: the generated message owns its bytes, and images are large.
  Reader reader(frame.payload);
  const std::uint64_t blob = reader.u64();
  const std::uint64_t offset = reader.u64();
  const std::span<const std::uint8_t> bytes = reader.bytes(max_blob_data);
  if (!reader.finished()) return end(Ending::protocol_error("BlobData does not decode"));
  std::string why = session_.blobs().data(blob, offset, bytes);
  if (!why.empty()) end(Ending::protocol_error(std::move(why)));
}

void AttachedLoop::change_host_memory(const Frame& frame) {
  // By hand for the same reason.
  Reader reader(frame.payload);
  const std::uint64_t address = reader.u64();
  const std::span<const std::uint8_t> lines = reader.bytes(max_host_changes);
  if (!reader.finished()) return end(Ending::protocol_error("HostChanges does not decode"));
  std::string why = session_.host_twins().apply(address, lines);
  if (!why.empty()) end(Ending::protocol_error(std::move(why)));
}

void AttachedLoop::finish_callback(const Frame& frame) {
  protocol::CallbackDone message;
  Reader reader(frame.payload);
  if (!protocol::CallbackDone::decode(reader, message)) {
    return end(Ending::protocol_error("CallbackDone does not decode"));
  }
  if (!session_.callbacks().finish(message.callback)) {
    end(Ending::protocol_error("CallbackDone for function " + std::to_string(message.callback) +
                               ", which is not under way"));
  }
}

void AttachedLoop::write_some() {
  FrameWriter& out = connection_.out();
  if (out.empty()) return;
  bool wrote = false;
  while (!out.empty() && !ended_) {
    const Io io = connection_.tls().write_some(out.pending());
    if (io.status == IoStatus::failed || io.status == IoStatus::closed) {
      return end(Ending::lost(connection_.tls().failure().text));
    }
    if (io.status != IoStatus::ok) break;
    out.consume(io.bytes);
    wrote = true;
  }
  const std::uint64_t now = monotonic_ns();
  if (wrote || !stalled_) last_progress_ns_ = now;
  stalled_ = !out.empty();
  if (stalled_ && now - last_progress_ns_ > stall_seconds_ * 1'000'000'000) {
    end(Ending::lost("the client has read nothing for " + std::to_string(stall_seconds_) + " s"));
  }
  if (out.pending_bytes() > max_unread) {
    end(Ending::lost("the client does not read: 64 MiB of replies wait"));
  }
}

void AttachedLoop::wait(bool may_sleep) {
  // So that a stall is noticed soon after its time.
  const int stall_check_ms = static_cast<int>(stall_seconds_ * 1000 / 12);
  const bool writing = !connection_.out().empty() || reads_want_write_;
  const bool reading = may_take_frames();
  pollfd fds[3] = {
      {connection_.tls().fd(),
       static_cast<short>((reading ? POLLIN : POLLRDHUP) | (writing ? POLLOUT : 0)), 0},
      {pool_.fd(), POLLIN, 0},
      {broker_.fd(), POLLIN, 0}};
  guard_.waiting(true);
  const int ready = poll(fds, 3, !may_sleep ? 0 : writing ? stall_check_ms : -1);
  guard_.waiting(false);
  if (ready <= 0) return;
  if (reading) {
    readable_ = readable_ || (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
  } else if ((fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    return end(Ending::lost("the client is gone"));
  }
  // A session outlives its daemon, with the memory that it holds (§11).
  if (fds[2].revents != 0) broker_.pump();
  if (broker_.ended()) {
    end({static_cast<Code>(broker_.ended()->code), "ended", broker_.ended()->text});
  }
}

}  // namespace headrace::worker
