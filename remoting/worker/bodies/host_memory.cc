// Page-locked memory of the client (apispec/host_memory.toml, PROTOCOL.md §7.8).
#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {

// Only the addresses: the memory is the client's.
CUresult cuMemHostAlloc(Session& session, const calls::CuMemHostAlloc& call) {
  return session.host_twins().reserve(call.address, call.bytes);
}

CUresult cuMemHostRegister_v2(Session& session, const calls::CuMemHostRegister_v2& call) {
  return session.host_twins().add(call.address, call.bytes);
}

CUresult cuMemHostUnregister(Session& session, const calls::CuMemHostUnregister& call) {
  return session.host_twins().remove(call.address);
}

}  // namespace headrace::worker::bodies
