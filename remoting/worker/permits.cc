#include "worker/permits.h"

#include "common/framing.h"
#include "gen/messages.h"

namespace headrace::worker {
namespace {

using namespace headrace::protocol;

struct Permit {
  Phase phase;
  std::uint16_t type;
};

// Enrolment has no line: it is closed (§5), and its connections end in the TLS handshake.
constexpr Permit permits[] = {
    {Phase::hello, Hello::kType},

    {Phase::agent, ListRequest::kType},
    {Phase::agent, ReserveRequest::kType},
    {Phase::agent, ReleaseRequest::kType},
    {Phase::agent, Ping::kType},
    {Phase::agent, Pong::kType},
    {Phase::agent, Close::kType},

    {Phase::session, StatusRequest::kType},
    {Phase::session, Attach::kType},
    {Phase::session, Ping::kType},
    {Phase::session, Pong::kType},
    {Phase::session, Close::kType},

    {Phase::attached, SetContext::kType},
    {Phase::attached, BlobBegin::kType},
    {Phase::attached, BlobData::kType},
    {Phase::attached, HostChanges::kType},
    {Phase::attached, CallbackDone::kType},
    {Phase::attached, Ping::kType},
    {Phase::attached, Pong::kType},
    {Phase::attached, Close::kType},
};

}  // namespace

const char* phase_name(Phase phase) {
  constexpr const char* names[] = {"hello", "agent", "session", "attached"};
  return names[static_cast<int>(phase)];
}

bool permitted(Phase phase, std::uint16_t type) {
  if (type >= first_call_type) return phase == Phase::attached;
  for (const Permit& one : permits) {
    if (one.phase == phase && one.type == type) return true;
  }
  return false;
}

}  // namespace headrace::worker
