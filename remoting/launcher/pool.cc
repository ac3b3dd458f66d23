#include "launcher/pool.h"

namespace headrace::launcher {

using namespace headrace::protocol;

const char* const build_text = "headrace/0.1.0";

Result<Pool> Pool::connect(const Config& config) {
  Result<Requests> requests =
      Requests::connect(config.server, config.identity, config.trust, role_agent, build_text);
  if (!requests) return requests.error();
  return Pool(requests.take());
}

Result<ListReply> Pool::list() { return requests_.ask<ListReply>(ListRequest{}); }

Result<ReserveGrant> Pool::reserve(const ReserveRequest& request) {
  return requests_.ask<ReserveGrant>(request);
}

}  // namespace headrace::launcher
