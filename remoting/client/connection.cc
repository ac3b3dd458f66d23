#include "client/connection.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "common/clock.h"
#include "common/socket.h"

namespace headrace::client {
namespace {

constexpr long flush_after_ns = 40'000;
constexpr int idle_rounds = 8;  // after which the flusher sleeps until it is woken
constexpr std::uint64_t connect_ms = 10'000;
constexpr std::uint64_t opening_ms = 10'000;
constexpr int poll_round_ms = 1'000;
constexpr std::size_t max_control_payload = 65'536;

// One message out, one message in, for the phases before Attached.
class Opening {
 public:
  Opening(TlsStream& tls, Deadline deadline) : tls_(tls), deadline_(deadline) {}

  template <typename Question, typename Answer>
  Result<void> ask(const Question& question, Answer& answer) {
    FrameWriter out;
    const std::size_t place = out.begin(Question::kType, 0, 1);
    if (!question.encode(out.out())) {
      return Error{ErrorKind::internal, "a message to the server is over its limits", ""};
    }
    out.end(place);
    if (Result<void> done = tls_.write_all(out.pending(), deadline_); !done) return done;
    std::uint8_t head[frame_header_size];
    if (Result<void> done = tls_.read_all(head, deadline_); !done) return done;
    const FrameHeader header = decode_header(head);
    if (const std::string fault = header_fault(header, limit_); !fault.empty()) {
      return Error{ErrorKind::protocol, "the server's answer: " + fault, ""};
    }
    std::vector<std::uint8_t> payload(header.length);
    if (Result<void> done = tls_.read_all(payload, deadline_); !done) return done;
    Reader reader(payload.data(), payload.size());
    if (header.type == protocol::Refuse::kType || header.type == protocol::Close::kType) {
      return refusal(header.type, reader);
    }
    if (header.type != Answer::kType || !Answer::decode(reader, answer)) {
      return Error{
          ErrorKind::protocol,
          "the server's answer of type " + std::to_string(header.type) + " is not the one expected",
          "are client and appliance of the same release?"};
    }
    return {};
  }

  void set_limit(std::uint32_t limit) { limit_ = limit; }

 private:
  static Error refusal(std::uint16_t type, Reader& reader) {
    std::uint16_t code = 0;
    std::string text;
    std::string hint;
    if (protocol::Refuse refuse;
        type == protocol::Refuse::kType && protocol::Refuse::decode(reader, refuse)) {
      code = refuse.code;
      text = refuse.text;
      hint = refuse.hint;
    } else if (protocol::Close close;
               type == protocol::Close::kType && protocol::Close::decode(reader, close)) {
      code = close.code;
      text = close.text;
    }
    ErrorKind kind = ErrorKind::unavailable;
    if (code == 1) kind = ErrorKind::protocol;
    if (code == 2) kind = ErrorKind::version;
    if (code == 3) kind = ErrorKind::not_permitted;
    if (code == 4) kind = ErrorKind::busy;
    if (code == 10) kind = ErrorKind::not_enough;
    if (code == 11) kind = ErrorKind::not_found;
    return Error{kind, "refused by the server (code " + std::to_string(code) + "): " + text, hint};
  }

  TlsStream& tls_;
  Deadline deadline_;
  std::uint32_t limit_ = max_payload_before_welcome;
};

Result<std::unique_ptr<TlsStream>> secure_connection(const SessionFile& session) {
  Result<Identity> identity = identity_from_pem(session.certificates, session.key);
  if (!identity) return identity.error();
  Result<std::vector<Certificate>> trust = certificates_from_pem(session.trust);
  if (!trust) return trust.error();
  Result<TlsContext> context = TlsContext::client(*identity, *trust);
  if (!context) return context.error();
  const Deadline deadline = Deadline::after_ms(connect_ms);
  Result<UniqueFd> socket = connect_tcp(session.server, deadline);
  if (!socket) return socket.error();
  Result<std::unique_ptr<TlsStream>> tls =
      TlsStream::client(*context, socket.take(), session.server.host);
  if (!tls) return tls.error();
  if (Result<void> done = (*tls)->handshake(deadline); !done) return done.error();
  return tls;
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const SessionFile& session,
                                                     const std::string& program,
                                                     std::function<void(const std::string&)> log,
                                                     protocol::Attached& attached) {
  Result<std::unique_ptr<TlsStream>> tls = secure_connection(session);
  if (!tls) return tls.error();
  Opening opening(**tls, Deadline::after_ms(opening_ms));
  protocol::Hello hello;
  hello.min_version = 1;
  hello.max_version = 1;
  hello.features = feature_callbacks | feature_output;
  hello.role = 2;
  hello.build = "headrace-client/" HEADRACE_VERSION;
  protocol::Welcome welcome;
  if (Result<void> done = opening.ask(hello, welcome); !done) return done.error();
  if (welcome.version != 1 || welcome.max_payload < max_payload_before_welcome ||
      welcome.max_payload > max_payload_v1 || welcome.max_outstanding == 0) {
    return Error{ErrorKind::version,
                 "the server chose protocol version or limits that this client does not know",
                 "upgrade the client libraries"};
  }
  opening.set_limit(welcome.max_payload);
  protocol::Attach attach;
  attach.process = static_cast<std::uint32_t>(getpid());
  attach.program = program;
  if (Result<void> done = opening.ask(attach, attached); !done) return done.error();
  return std::unique_ptr<Connection>(new Connection(tls.take(), welcome, std::move(log)));
}

Connection::Connection(std::unique_ptr<TlsStream> tls, const protocol::Welcome& welcome,
                       std::function<void(const std::string&)> log)
    : tls_(std::move(tls)),
      log_(std::move(log)),
      features_(welcome.features),
      reader_(welcome.max_payload),
      max_payload_(welcome.max_payload) {
  const std::uint32_t calls = std::min<std::uint32_t>(welcome.max_outstanding, 4096);
  slots_.assign(calls + 1, nullptr);
  for (std::uint32_t call = calls; call > 0; --call) free_calls_.push_back(call);
  // Signals are the program's: none may be delivered on our thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  flusher_ = std::thread([this] { run_flusher(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Connection::~Connection() {
  {
    const std::lock_guard<std::mutex> lock(flusher_mutex_);
    stopping_ = true;
  }
  flusher_wake_.notify_all();
  if (flusher_.joinable()) flusher_.join();
}

// ---------------------------------------------------------------- writing

void Connection::put_context(std::uint64_t context) {
  if (context == 0 || context == last_context_) return;
  last_context_ = context;
  protocol::SetContext message;
  message.context = context;
  put_frame(message, 0);
}

Connection::Sent Connection::send_around(std::uint64_t context, std::uint16_t type,
                                         std::span<const std::uint8_t> before,
                                         std::span<const std::uint8_t> data,
                                         std::span<const std::uint8_t> after) {
  const std::size_t length = before.size() + data.size() + after.size();
  if (length > max_payload_) return Sent::too_long;
  const std::lock_guard<std::mutex> writing(write_mutex_);
  {
    const std::lock_guard<std::mutex> lock(append_mutex_);
    if (lost()) return Sent::lost;
    put_context(context);
    pending_.add_header(type, static_cast<std::uint32_t>(length), 0, 0);
    pending_.out().raw(before.data(), before.size());
    pending_.swap(outgoing_);
  }
  // Others may append meanwhile, but nothing of theirs is written before write_mutex_ is free.
  return write_outgoing() && write_all(data) && write_all(after) ? Sent::ok : Sent::lost;
}

Connection::Sent Connection::append_bytes(std::uint16_t type, std::uint64_t number,
                                          std::span<const std::uint8_t> bytes,
                                          std::size_t& waiting) {
  const std::lock_guard<std::mutex> lock(append_mutex_);
  if (lost()) return Sent::lost;
  const std::size_t place = pending_.begin(type, 0, 0);
  pending_.out().u64(number);
  pending_.out().bytes(bytes);
  pending_.end(place);
  waiting = pending_.pending_bytes();
  return Sent::ok;
}

bool Connection::after_append(std::size_t waiting) {
  if (waiting >= flush_at_bytes) return flush();
  if (!flusher_awake_.load()) wake_flusher();
  return true;
}

bool Connection::flush() {
  const std::lock_guard<std::mutex> writing(write_mutex_);
  {
    const std::lock_guard<std::mutex> lock(append_mutex_);
    pending_.swap(outgoing_);
  }
  return write_outgoing();
}

bool Connection::write_outgoing() {
  const bool written = write_all(outgoing_.pending());
  outgoing_.consume(outgoing_.pending_bytes());
  return written;
}

bool Connection::write_all(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (lost()) return false;
    Io io{};
    {
      const std::lock_guard<std::mutex> lock(tls_mutex_);
      io = tls_->write_some(bytes);
    }
    switch (io.status) {
      case IoStatus::ok:
        bytes = bytes.subspan(io.bytes);
        break;
      case IoStatus::want_read:
      case IoStatus::want_write:
        wait_for_room();
        break;
      default:
        mark_transport_lost();
        return false;
    }
  }
  return !lost();
}

// The server may be unable to take more because we do not take its replies.
void Connection::wait_for_room() {
  bool reader = false;
  {
    const std::lock_guard<std::mutex> lock(wait_mutex_);
    if (!reader_active_) reader = reader_active_ = true;
  }
  pollfd ready{tls_->fd(), static_cast<short>(reader ? POLLIN | POLLOUT : POLLOUT), 0};
  poll(&ready, 1, poll_round_ms);
  if (!reader) return;
  while (pump() == Pump::progress) {
  }
  pass_role_on();
}

void Connection::run_flusher() {
  prctl(PR_SET_NAME, "headrace-flush");
  prctl(PR_SET_TIMERSLACK, 1'000UL);  // of this thread: the default would double the delay
  const timespec pause{0, flush_after_ns};
  std::unique_lock<std::mutex> lock(flusher_mutex_);
  while (!stopping_ && !lost()) {
    if (!flusher_awake_) {
      flusher_wake_.wait(lock);
      continue;
    }
    lock.unlock();
    int idle = 0;
    while (idle < idle_rounds && !stopping_ && !lost()) {
      nanosleep(&pause, nullptr);
      bool empty = false;
      {
        const std::lock_guard<std::mutex> appending(append_mutex_);
        empty = pending_.empty();
      }
      idle = empty ? idle + 1 : 0;
      if (!empty) flush();
    }
    lock.lock();
    flusher_awake_ = false;
    // Who appended before this line saw us awake and did not wake us.
    const std::lock_guard<std::mutex> appending(append_mutex_);
    if (!pending_.empty()) flusher_awake_ = true;
  }
}

void Connection::wake_flusher() {
  {
    const std::lock_guard<std::mutex> lock(flusher_mutex_);
    if (flusher_awake_.exchange(true)) return;
  }
  flusher_wake_.notify_one();
}

// ---------------------------------------------------------------- waiting and reading

bool Connection::take_slot(Waiter& waiter) {
  std::unique_lock<std::mutex> lock(wait_mutex_);
  while (free_calls_.empty() && !lost()) slot_freed_.wait(lock);
  if (lost()) return false;
  waiter.call = free_calls_.back();
  free_calls_.pop_back();
  slots_[waiter.call] = &waiter;
  return true;
}

void Connection::give_slot_back(Waiter& waiter) {
  const std::lock_guard<std::mutex> lock(wait_mutex_);
  slots_[waiter.call] = nullptr;
  free_calls_.push_back(waiter.call);
  slot_freed_.notify_one();
}

bool Connection::finish_trip(Waiter& waiter, ReplyHead& head, std::vector<std::uint8_t>& fields) {
  flush();
  wait_for(waiter);
  fields.swap(waiter.payload);
  if (!waiter.done) return false;
  Reader reader(fields.data(), fields.size());
  head.result = reader.i32();
  head.deferred = reader.i32();
  head.sticky = reader.u8() != 0;
  if (!reader.ok() || (head.result == 0 && waiter.sunk < waiter.sink.exact.size())) {
    break_off("a reply is shorter than it should be");
    return false;
  }
  return true;
}

void Connection::wait_for(Waiter& waiter) {
  std::unique_lock<std::mutex> lock(wait_mutex_);
  while (!waiter.done && !lost()) {
    if (reader_active_) {
      sleepers_.push_back(&waiter);
      waiter.wake.wait(lock);
      std::erase(sleepers_, &waiter);
      continue;
    }
    reader_active_ = true;
    lock.unlock();
    read_until_done(waiter);
    pass_role_on();
    lock.lock();
  }
  // Still registered only when the connection was lost: nobody may write to this waiter any more.
  if (!waiter.done && slots_[waiter.call] == &waiter) slots_[waiter.call] = nullptr;
  if (receiver_ == &waiter) {
    // The reader is in the middle of our frame, or gave up there: wait until it has left.
    while (reader_active_) {
      lock.unlock();
      usleep(100);
      lock.lock();
    }
  }
}

void Connection::read_until_done(Waiter& waiter) {
  while (!lost()) {
    {
      const std::lock_guard<std::mutex> lock(wait_mutex_);
      if (waiter.done) return;
    }
    if (pump() != Pump::blocked) continue;
    pollfd ready{tls_->fd(), POLLIN, 0};
    poll(&ready, 1, poll_round_ms);
  }
}

void Connection::pass_role_on() {
  const std::lock_guard<std::mutex> lock(wait_mutex_);
  reader_active_ = false;
  wake_next_locked();
}

void Connection::wake_next_locked() {
  for (Waiter* waiter : sleepers_) {
    if (!waiter->done) {
      waiter->wake.notify_one();
      return;
    }
  }
}

void Connection::read_while(const std::function<bool()>& wanted) {
  Waiter watch;  // of no call
  std::unique_lock<std::mutex> lock(wait_mutex_);
  while (wanted() && !lost()) {
    if (reader_active_) {
      sleepers_.push_back(&watch);
      watch.wake.wait(lock);
      std::erase(sleepers_, &watch);
      continue;
    }
    reader_active_ = true;
    lock.unlock();
    while (wanted() && !lost()) {
      if (pump() != Pump::blocked) continue;
      pollfd ready{tls_->fd(), POLLIN, 0};
      poll(&ready, 1, poll_round_ms);
    }
    pass_role_on();
    lock.lock();
  }
  // The role may have been offered to this thread, which does not want it any more.
  if (!reader_active_) wake_next_locked();
}

Connection::Pump Connection::read_stream(std::span<std::uint8_t> into, std::size_t& got) {
  Io io{};
  {
    const std::lock_guard<std::mutex> lock(tls_mutex_);
    io = tls_->read_some(into);
  }
  got = io.bytes;
  switch (io.status) {
    case IoStatus::ok:
      return Pump::progress;
    case IoStatus::want_read:
    case IoStatus::want_write:
      return Pump::blocked;
    default:
      mark_transport_lost();
      return Pump::lost;
  }
}

// Reads and hands out until one frame is complete, or nothing more is there.
Connection::Pump Connection::pump() {
  while (!lost()) {
    std::size_t got = 0;
    if (!in_frame_) {
      const FrameReader::Next next = reader_.next_header(header_);
      if (next == FrameReader::Next::bad) {
        mark_lost("protocol error: " + reader_.fault());
        return Pump::lost;
      }
      if (next == FrameReader::Next::need_more) {
        const Pump read = read_stream(reader_.space(), got);
        if (read != Pump::progress) return read;
        reader_.commit(got);
        continue;
      }
      if (!start_frame()) return Pump::lost;
      missing_ = missing_.subspan(reader_.take(missing_));
    }
    if (!missing_.empty()) {
      const Pump read = read_stream(missing_, got);
      if (read != Pump::progress) return read;
      missing_ = missing_.subspan(got);
      continue;
    }
    return finish_frame() ? Pump::progress : Pump::lost;
  }
  return Pump::lost;
}

// Finds where the payload goes. False: the connection is lost.
bool Connection::start_frame() {
  try {
    return place_frame();
  } catch (const std::bad_alloc&) {
    mark_lost("no memory for a reply of " + std::to_string(header_.length) + " bytes");
    return false;
  }
}

bool Connection::place_frame() {
  in_frame_ = true;
  if (!header_.reply() && header_.length > max_control_payload) {
    mark_lost("protocol error: a control message of " + std::to_string(header_.length) + " bytes");
    return false;
  }
  if (!header_.reply()) {
    const std::lock_guard<std::mutex> lock(wait_mutex_);
    receiver_ = nullptr;
    control_.resize(header_.length);
    missing_ = control_;
    return true;
  }
  {
    const std::lock_guard<std::mutex> lock(wait_mutex_);
    receiver_ = header_.call < slots_.size() ? slots_[header_.call] : nullptr;
  }
  if (receiver_ == nullptr) {
    mark_lost("protocol error: a reply to a call that is not outstanding");
    return false;
  }
  if (!header_.more()) {
    receiver_->payload.resize(header_.length);
    missing_ = receiver_->payload;
    return true;
  }
  if (!find_room(*receiver_, header_.length)) {
    mark_lost("protocol error: more data than was asked for");
    return false;
  }
  return true;
}

bool Connection::find_room(Waiter& waiter, std::uint32_t length) {
  const std::size_t limit =
      waiter.sink.growing != nullptr ? waiter.sink.limit : waiter.sink.exact.size();
  if (length > limit - waiter.sunk) return false;
  if (waiter.sink.growing != nullptr) {
    waiter.sink.growing->resize(waiter.sunk + length);
    missing_ = std::span<std::uint8_t>(*waiter.sink.growing).subspan(waiter.sunk, length);
  } else {
    missing_ = waiter.sink.exact.subspan(waiter.sunk, length);
  }
  waiter.sunk += length;
  return true;
}

bool Connection::finish_frame() {
  in_frame_ = false;
  if (receiver_ == nullptr) return handle_control();
  if (header_.more()) return true;
  const std::lock_guard<std::mutex> lock(wait_mutex_);
  Waiter* const done = std::exchange(receiver_, nullptr);
  slots_[done->call] = nullptr;
  free_calls_.push_back(done->call);
  // Each freed number may have a waiter of its own: waking for the first alone forgets the others.
  slot_freed_.notify_one();
  done->done = true;
  done->wake.notify_one();
  return true;
}

bool Connection::handle_control() {
  Reader reader(control_.data(), control_.size());
  if (protocol::Ping ping;
      header_.type == protocol::Ping::kType && protocol::Ping::decode(reader, ping)) {
    answer_ping(ping.cookie);
    return true;
  }
  if (header_.type == protocol::Pong::kType) return true;
  if (Unasked* const unasked = unasked_.load(std::memory_order_acquire)) {
    if (protocol::CallbackRun run; header_.type == protocol::CallbackRun::kType &&
                                   protocol::CallbackRun::decode(reader, run)) {
      unasked->run(run);
      return true;
    }
    if (protocol::Output output;
        header_.type == protocol::Output::kType && protocol::Output::decode(reader, output)) {
      unasked->print(std::move(output));
      return true;
    }
    if (protocol::HostChanges changes; header_.type == protocol::HostChanges::kType &&
                                       protocol::HostChanges::decode(reader, changes)) {
      if (unasked->change_host_memory(changes)) return true;
    }
  }
  if (protocol::Close close;
      header_.type == protocol::Close::kType && protocol::Close::decode(reader, close)) {
    mark_lost("closed by the server (code " + std::to_string(close.code) + "): " + close.text);
    return false;
  }
  if (protocol::Refuse refuse;
      header_.type == protocol::Refuse::kType && protocol::Refuse::decode(reader, refuse)) {
    mark_lost("refused by the server (code " + std::to_string(refuse.code) + "): " + refuse.text);
    return false;
  }
  mark_lost("protocol error: message type " + std::to_string(header_.type) +
            " is not expected here");
  return false;
}

// Queued, not written: the reader must never wait for the socket.
void Connection::answer_ping(std::uint64_t cookie) {
  {
    const std::lock_guard<std::mutex> lock(append_mutex_);
    protocol::Pong pong;
    pong.cookie = cookie;
    put_frame(pong, 0);
  }
  if (!flusher_awake_.load()) wake_flusher();
}

// ---------------------------------------------------------------- the end

void Connection::mark_lost(const std::string& why) {
  if (lost_.exchange(true)) return;
  log_("connection lost: " + why);
  {
    const std::lock_guard<std::mutex> lock(wait_mutex_);
    for (Waiter* waiter : sleepers_) waiter->wake.notify_one();
    slot_freed_.notify_all();
  }
  flusher_wake_.notify_all();
  if (Unasked* const unasked = unasked_.load(std::memory_order_acquire)) unasked->lost();
}

void Connection::mark_transport_lost() {
  std::string why;
  {
    const std::lock_guard<std::mutex> lock(tls_mutex_);
    why = tls_->failure().text;
  }
  mark_lost(why);
}

void Connection::say_goodbye(std::uint64_t milliseconds) {
  stopping_ = true;
  flusher_wake_.notify_all();
  const Deadline deadline = Deadline::after_ms(milliseconds);
  std::unique_lock<std::mutex> writing(write_mutex_, std::try_to_lock);
  while (!writing.owns_lock()) {  // another thread writes: it may be stuck
    if (deadline.passed() || lost()) return;
    usleep(1'000);
    writing.try_lock();
  }
  std::unique_lock<std::mutex> appending(append_mutex_, std::try_to_lock);
  if (!appending.owns_lock() || lost()) return;
  protocol::Close close;
  put_frame(close, 0);
  pending_.swap(outgoing_);
  appending.unlock();
  while (!outgoing_.empty() && !deadline.passed()) {
    const std::lock_guard<std::mutex> lock(tls_mutex_);
    const Io io = tls_->write_some(outgoing_.pending());
    if (io.status == IoStatus::ok) {
      outgoing_.consume(io.bytes);
      continue;
    }
    if (io.status != IoStatus::want_write) return;
    pollfd ready{tls_->fd(), POLLOUT, 0};
    poll(&ready, 1, 50);
  }
  const std::lock_guard<std::mutex> lock(tls_mutex_);
  tls_->say_done();
}

}  // namespace headrace::client
