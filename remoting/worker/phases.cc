#include "worker/phases.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "common/credentials.h"
#include "gen/messages.h"
#include "worker/attached.h"
#include "worker/driver_loader.h"
#include "worker/driver_output.h"

namespace headrace::worker {

using namespace headrace::protocol;

const char* const build_text = "headrace-worker/0.1.0";

namespace {

constexpr std::uint64_t default_handshake_ms = 10'000;
constexpr std::uint64_t default_idle_ms = 60'000;

template <typename Message>
bool decode(const Frame& frame, Message& out) {
  Reader reader(frame.payload);
  return Message::decode(reader, out);
}

Ending malformed(const char* name) {
  return Ending::protocol_error(std::string(name) + " does not decode");
}

// The daemon's refusal as an ending; when it could not be asked, that.
Ending refusal_ending(const BrokerClient& broker, const Error& error) {
  if (!broker.refusal()) return {Code::internal, "daemon", error.text};
  return {static_cast<Code>(broker.refusal()->code), "refused", broker.refusal()->text};
}

// Tells the client why its request gets no answer.
void refuse(Connection& connection, const FrameHeader& to, const BrokerClient& broker,
            const Error& error) {
  if (broker.refusal()) {
    connection.refuse(to, *broker.refusal());
  } else {
    connection.refuse(to, Code::internal, error.text, error.hint);
  }
}

}  // namespace

Result<Introduction> introduce(BrokerClient& broker, const std::string& peer) {
  Result<PrivateKey> key = PrivateKey::generate();
  if (!key) return key.error();
  const Result<WorkerIdentity> given = broker.ask<WorkerIdentity>(WorkerHello{
      static_cast<std::uint32_t>(getpid()), peer.substr(0, 128), key->public_der(), build_text});
  if (!given) return given.error();
  Result<Certificate> own = Certificate::from_der(given->certificate);
  if (!own) return own.error();
  Result<std::vector<Certificate>> chain = certificates_from_der(given->chain);
  if (!chain) return chain.error();
  const Result<std::vector<Certificate>> trust = certificates_from_der(given->trust);
  if (!trust) return trust.error();
  Result<TlsContext> tls =
      TlsContext::server(Identity{key.take(), own.take(), chain.take()}, *trust);
  if (!tls) return tls.error();
  Introduction introduction{tls.take(), default_handshake_ms, default_idle_ms};
  if (given->handshake_seconds != 0) introduction.handshake_ms = given->handshake_seconds * 1000ull;
  if (given->idle_seconds != 0) introduction.idle_ms = given->idle_seconds * 1000ull;
  return introduction;
}

std::optional<Role> hello(Connection& connection, BrokerClient& broker,
                          const Introduction& introduction, Ending& ending) {
  const Deadline deadline = Deadline::after_ms(introduction.handshake_ms);
  const Result<Frame> frame = connection.next_frame(Phase::hello, deadline, broker, ending);
  if (!frame) return std::nullopt;
  const FrameHeader header = frame->header;
  Hello hello;
  if (!decode(*frame, hello)) {
    ending = malformed("Hello");
    return std::nullopt;
  }
  if (hello.min_version > protocol::version || hello.max_version < protocol::version) {
    const bool client_newer = hello.min_version > protocol::version;
    const std::string side = client_newer ? "the appliance" : "the client";
    const std::string text = "protocol versions " + std::to_string(hello.min_version) + " to " +
                             std::to_string(hello.max_version) + " are spoken there, " +
                             std::to_string(protocol::version) + " here";
    connection.refuse(header, Code::version, text, "upgrade " + side);
    ending = {Code::version, "version", text};
    return std::nullopt;
  }
  const Role role = static_cast<Role>(hello.role);
  if (role != Role::agent && role != Role::session) {
    connection.refuse(header, Code::invalid, "no such role", "");
    ending = {Code::invalid, "protocol", "Hello asks for role " + std::to_string(hello.role)};
    return std::nullopt;
  }
  const Result<PeerPermit> permit =
      broker.ask<PeerPermit>(PeerCheck{connection.tls().peer_certificate(), hello.role});
  if (!permit) {
    refuse(connection, header, broker, permit.error());
    ending = refusal_ending(broker, permit.error());
    return std::nullopt;
  }
  connection.set_features(hello.features & (feature_callbacks | feature_output));
  if (!connection.answer(header, Welcome{protocol::version, connection.features(), max_payload_v1,
                                         max_outstanding, max_handles, build_text})) {
    ending = Ending::lost(connection.tls().failure().text);
    return std::nullopt;
  }
  connection.in().set_max_payload(max_payload_v1);
  return role;
}

namespace {

// Decodes a request, passes it on encoded anew, and the answer back. False: the connection ends.
template <typename Request, typename Reply>
bool pass_on(Connection& connection, BrokerClient& broker, const Frame& frame, const char* name,
             bool& granted, Ending& ending) {
  const FrameHeader header = frame.header;
  Request request;
  if (!decode(frame, request)) {
    ending = malformed(name);
    return false;
  }
  const Result<Reply> reply = broker.ask<Reply>(request);
  granted = static_cast<bool>(reply);
  if (granted) {
    connection.answer(header, *reply);
    return true;
  }
  refuse(connection, header, broker, reply.error());
  if (broker.alive()) return true;
  ending = refusal_ending(broker, reply.error());
  return false;
}

}  // namespace

Ending agent_phase(Connection& connection, BrokerClient& broker, const Introduction& introduction) {
  bool asked_to_reserve = false, holds = false;
  for (;;) {
    // A reservation lives as long as this connection, however long nothing is said on it.
    const Deadline deadline = holds ? Deadline::never() : Deadline::after_ms(introduction.idle_ms);
    Ending ending;
    const Result<Frame> frame = connection.next_frame(Phase::agent, deadline, broker, ending);
    if (!frame) {
      // The program that inherited the descriptor does not know how to say goodbye (§6).
      if (holds && ending.event == "lost")
        return Ending::finished("the reservation's holder ended");
      return ending;
    }
    bool granted = false, going_on = true;
    switch (frame->header.type) {
      case ListRequest::kType:
        going_on = pass_on<ListRequest, ListReply>(connection, broker, *frame, "ListRequest",
                                                   granted, ending);
        break;
      case ReserveRequest::kType:
        if (asked_to_reserve) return Ending::protocol_error("a second ReserveRequest");
        asked_to_reserve = true;
        going_on = pass_on<ReserveRequest, ReserveGrant>(connection, broker, *frame,
                                                         "ReserveRequest", granted, ending);
        holds = granted;
        break;
      default:  // the permit table leaves only ReleaseRequest
        going_on = pass_on<ReleaseRequest, ReleaseReply>(connection, broker, *frame,
                                                         "ReleaseRequest", granted, ending);
        holds = holds && !granted;
        break;
    }
    if (!going_on) return ending;
  }
}

ServedSession::ServedSession(std::unique_ptr<DriverTable> loaded,
                             const std::vector<SessionDevice>& devices,
                             const std::vector<std::uint64_t>& limits, BrokerClient& broker,
                             FrameWriter& out, std::uint64_t features)
    : driver(std::move(loaded)),
      memory(broker, limits),
      session(*driver, devices, memory, out, pool, max_handles, features) {}

namespace {

// Answers what a session asks about its reservation (§6.2). The frame that attaches, or none: the
// connection has ended.
std::optional<Frame> watch_until_attach(Connection& connection, BrokerClient& broker,
                                        const Introduction& introduction, Ending& ending) {
  bool watching = false;
  for (;;) {
    Result<Frame> frame = connection.next_frame(
        Phase::session, Deadline::after_ms(introduction.idle_ms), broker, ending);
    if (!frame) {
      // Who only watches comes back when there is something to ask again.
      if (watching && ending.event == "timeout") ending = Ending::finished("nobody watches");
      return std::nullopt;
    }
    if (frame->header.type != StatusRequest::kType) return frame.take();
    watching = true;
    bool granted = false;
    if (!pass_on<StatusRequest, StatusReply>(connection, broker, *frame, "StatusRequest", granted,
                                             ending)) {
      return std::nullopt;
    }
  }
}

}  // namespace

Ending session_phase(Connection& connection, BrokerClient& broker, const Introduction& introduction,
                     std::unique_ptr<ServedSession>& served) {
  Ending ending;
  const std::optional<Frame> frame = watch_until_attach(connection, broker, introduction, ending);
  if (!frame) return ending;
  const FrameHeader header = frame->header;
  Attach attach;
  if (!decode(*frame, attach)) return malformed("Attach");

  const Result<SessionGrant> grant =
      broker.ask<SessionGrant>(SessionRequest{attach.process, attach.program});
  if (!grant) {
    refuse(connection, header, broker, grant.error());
    return refusal_ending(broker, grant.error());
  }
  const auto failed = [&](const Error& error) {
    connection.refuse(header, Code::internal, error.text, error.hint);
    return Ending::internal(error.text);
  };
  if (!DriverOutput::capture()) {
    return failed(Error{ErrorKind::internal, "the output of kernels cannot be taken", ""});
  }
  Result<std::unique_ptr<DriverTable>> driver = load_driver(*grant);
  if (!driver) return failed(driver.error());
  const Result<std::vector<SessionDevice>> devices = find_devices(**driver, *grant);
  if (!devices) return failed(devices.error());

  Attached attached;
  attached.session = grant->session;
  (*driver)->cuDriverGetVersion(&attached.driver_version);
  std::vector<std::uint64_t> limits;
  for (std::size_t i = 0; i < devices->size(); ++i) {
    attached.devices.push_back(
        describe_device(**driver, (*devices)[i], grant->devices[i], grant->software));
    limits.push_back(grant->devices[i].memory_bytes);
  }
  if (!connection.answer(header, attached)) {
    return Ending::lost(connection.tls().failure().text);
  }
  served = std::make_unique<ServedSession>(driver.take(), *devices, limits, broker,
                                           connection.out(), connection.features());
  return AttachedLoop(connection, broker, served->pool, served->session).run();
}

namespace {

// Freeing contexts waits for their kernels, and may hang in a driver. The end of the process frees
// them, too, so it comes in any case.
constexpr unsigned clean_up_seconds = 10;

void give_up(int) {
  constexpr char text[] =
      "headrace-worker: internal: the driver did not let go of the session in time\n";
  [[maybe_unused]] const ssize_t put = ::write(journal(), text, sizeof text - 1);
  _exit(1);
}

}  // namespace

void free_session(std::unique_ptr<ServedSession> served, int exit_code) {
  if (served == nullptr) return;
  if (served->stuck()) _exit(exit_code);
  signal(SIGALRM, give_up);
  alarm(clean_up_seconds);
  served.reset();
  alarm(0);
}

}  // namespace headrace::worker
