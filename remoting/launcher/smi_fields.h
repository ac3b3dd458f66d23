// What `headrace smi --query-…` can be asked, by the names that nvidia-smi has for it.
#pragma once

#include <string>
#include <vector>

#include "common/errors.h"
#include "gen/messages.h"

namespace headrace::launcher {

struct Query {
  bool header = true;
  bool units = true;
  std::vector<std::string> fields;
};

// FIELDS and FORMAT of the command line; `processes`: those of processes.
Result<Query> parse_query(const std::string& fields, const std::string& format, bool processes);

// Lines of comma-separated values. `shown`: indices of the GPUs that are asked for.
std::string query_gpus(const Query& query, const protocol::StatusReply& state,
                       const std::vector<std::size_t>& shown);
std::string query_processes(const Query& query, const protocol::StatusReply& state,
                            const std::vector<std::size_t>& shown);

// 0000:01:00.0 with the eight digits of domain that nvidia-smi prints.
std::string bus_id(const protocol::SliceState& device);
// "8.0"; "[N/A]" if the server does not know.
std::string compute_capability(const protocol::SliceState& device);
std::uint64_t used_of(const protocol::SliceState& device);

}  // namespace headrace::launcher
