// An attached session of the worker on the software GPU, fed frames as a client could send them:
// every hand-written body, every handle and address, uploads, downloads, blobs. PTX is not compiled
// (there is no compile helper), so kernels are out of reach here.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/framing.h"
#include "common/ids.h"
#include "gen/calls.h"
#include "gen/messages.h"
#include "gen/worker_dispatch.h"
#include "worker/broker_client.h"
#include "worker/connection.h"
#include "worker/driver_loader.h"
#include "worker/phases.h"
#include "worker/session.h"

namespace {

using namespace headrace;
using namespace headrace::worker;

constexpr std::uint64_t slice_bytes = 64 << 20;

void require(bool holds) {
  if (!holds) std::abort();
}

// The daemon as far as a session asks it: memory is granted within the slice.
void serve_broker(int listener) {
  const UniqueFd peer(accept(listener, nullptr, nullptr));
  FrameReader in(max_payload_v1);
  std::int64_t used = 0;
  for (;;) {
    Frame frame;
    if (in.next(frame) == FrameReader::Next::need_more) {
      const std::span<std::uint8_t> space = in.space();
      const ssize_t got = recv(peer.get(), space.data(), space.size(), 0);
      if (got <= 0) return;
      in.commit(static_cast<std::size_t>(got));
      continue;
    }
    protocol::MemoryRequest request;
    Reader reader(frame.payload);
    if (!protocol::MemoryRequest::decode(reader, request)) continue;
    const bool granted = used + request.delta <= static_cast<std::int64_t>(slice_bytes);
    if (granted) used += request.delta;
    require(used >= 0);  // nothing is given back that was not taken
    FrameWriter out;
    const protocol::MemoryReply reply{granted, static_cast<std::uint64_t>(used), slice_bytes};
    require(out.add(protocol::MemoryReply::kType, reply, flag_reply, frame.header.call));
    if (send(peer.get(), out.pending().data(), out.pending_bytes(), MSG_NOSIGNAL) < 0) return;
  }
}

BrokerClient connect_broker() {
  char folder[] = "/tmp/headrace-fuzz-XXXXXX";
  require(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/broker";
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  require(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  require(listen(listener, 1) == 0);
  std::thread(serve_broker, listener).detach();
  Result<BrokerClient> client = BrokerClient::connect(path);
  require(static_cast<bool>(client));
  unlink(path.c_str());
  rmdir(folder);
  return client.take();
}

struct Machine {
  BrokerClient broker = connect_broker();
  protocol::SessionGrant grant;

  Machine() {
    grant.session = "fuzz";
    grant.driver_library = HEADRACE_FUZZ_DRIVER;
    grant.software = true;
    grant.environment = {{"HEADRACE_SOFTGPU", "1x256MiB"},
                         {"HEADRACE_SOFTGPU_COMPILER", "unix:/nonexistent"}};
  }
  std::unique_ptr<DriverTable> driver() {
    Result<std::unique_ptr<DriverTable>> loaded = load_driver(grant);
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().text.c_str());
      std::abort();
    }
    return loaded.take();
  }
};

// What AttachedLoop does with a frame, without the connection around it.
class Served {
 public:
  Served(Machine& machine, CUdevice device)
      : served_(machine.driver(), {SessionDevice{device, slice_bytes}}, {slice_bytes},
                machine.broker, out_) {}

  // False: the connection would end here.
  bool carry_out(const Frame& frame) {
    if (!Connection::fault(frame, Phase::attached).empty()) return false;
    Session& session = served_.session;
    Reader reader(frame.payload);
    switch (frame.header.type) {
      case protocol::SetContext::kType: {
        protocol::SetContext message;
        if (!protocol::SetContext::decode(reader, message)) return false;
        session.set_context(message.context);
        return true;
      }
      case protocol::BlobBegin::kType: {
        protocol::BlobBegin message;
        if (!protocol::BlobBegin::decode(reader, message)) return false;
        if (message.raw_size > slice_bytes) return false;  // for the fuzzer's own memory
        return session.blobs()
            .begin(message.blob, message.size, message.raw_size, message.encoding)
            .empty();
      }
      case protocol::BlobData::kType: {
        protocol::BlobData message;
        if (!protocol::BlobData::decode(reader, message)) return false;
        return session.blobs().data(message.blob, message.offset, message.data).empty();
      }
      case protocol::HostChanges::kType: {
        const std::uint64_t address = reader.u64();
        const std::span<const std::uint8_t> lines = reader.bytes(max_payload_v1);
        return reader.finished() && session.host_twins().apply(address, lines).empty();
      }
      default:
        return frame.header.type < first_call_type || call(frame);
    }
  }

  void drain() {
    while (served_.pool.running() != 0 || served_.session.downloads().pump() ||
           served_.session.host_twins().pump()) {
      out_.consume(out_.pending_bytes());
      if (served_.pool.running() == 0) continue;
      pollfd ready{served_.pool.fd(), POLLIN, 0};
      poll(&ready, 1, -1);
      served_.pool.run_completions();
    }
    out_.consume(out_.pending_bytes());
    // Every awaited call has been answered.
    require(served_.session.waiting() == 0);
  }

 private:
  bool call(const Frame& frame) {
    Session& session = served_.session;
    const Waiting waiting{frame.header.type, frame.header.call};
    if (waiting.number != 0 && !session.begin_wait(waiting.number)) return false;
    fields_.clear();
    CUresult result = CUDA_SUCCESS;
    switch (dispatch(session, frame.header.type, frame.header.call, Reader(frame.payload), result,
                     fields_)) {
      case Outcome::done:
        session.answer_fields(waiting, result, fields_.view());
        return true;
      case Outcome::later:
        served_.pool.run_completions();
        return true;
      case Outcome::unknown:
        session.answer(waiting, CUDA_ERROR_NOT_SUPPORTED);
        return true;
      case Outcome::malformed:
        session.answer(waiting, CUDA_ERROR_UNKNOWN);  // so that drain() finds nobody waiting
        return false;
    }
    return false;
  }

  FrameWriter out_;
  Writer fields_;
  ServedSession served_;
};

template <typename Message>
void add(FrameWriter& out, const Message& message) {
  require(out.add(Message::kType, message));
}

// A session in which something is there: a context, a stream, an event, memory.
void set_up(Served& served) {
  FrameWriter out;
  calls::CuDevicePrimaryCtxRetain retain;
  retain.pctx = make_handle(HandleKind::context, 1);
  add(out, retain);
  add(out, protocol::SetContext{retain.pctx});
  calls::CuStreamCreate stream;
  stream.phStream = make_handle(HandleKind::stream, 1);
  add(out, stream);
  calls::CuEventCreate event;
  event.phEvent = make_handle(HandleKind::event, 1);
  add(out, event);
  FrameReader in(max_payload_v1);
  std::span<std::uint8_t> space = in.space();
  require(space.size() >= out.pending_bytes());
  std::memcpy(space.data(), out.pending().data(), out.pending_bytes());
  in.commit(out.pending_bytes());
  Frame frame;
  while (in.next(frame) == FrameReader::Next::frame) require(served.carry_out(frame));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Machine* const machine = new Machine();
  static CUdevice device = [] {
    CUdevice first = 0;
    require(machine->driver()->cuDeviceGet(&first, 0) == CUDA_SUCCESS);
    return first;
  }();
  Served served(*machine, device);
  set_up(served);
  FrameReader in(max_payload_v1);
  bool going_on = true;
  while (size != 0 && going_on) {
    const std::span<std::uint8_t> space = in.space();
    const std::size_t count = std::min(space.size(), size);
    std::memcpy(space.data(), data, count);
    in.commit(count);
    data += count;
    size -= count;
    Frame frame;
    while (going_on && in.next(frame) == FrameReader::Next::frame) {
      going_on = served.carry_out(frame);
    }
    going_on = going_on && in.fault().empty();
  }
  served.drain();
  return 0;
}
