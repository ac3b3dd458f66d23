// headrace smi: the reservation's GPUs, for people and for scripts that know nvidia-smi's queries.
#include <cstdio>
#include <cstdlib>

#include "common/requests.h"
#include "common/uuid.h"
#include "launcher/commands.h"
#include "launcher/exit_codes.h"
#include "launcher/pool.h"
#include "launcher/sizes.h"
#include "launcher/smi_fields.h"
#include "launcher/text.h"

namespace headrace::launcher {
namespace {

using Indices = std::vector<std::size_t>;

Result<protocol::StatusReply> ask_state() {
  const char* const path = std::getenv("HEADRACE_SESSION");
  if (path == nullptr || *path == '\0') {
    return Error{ErrorKind::not_found, "there is no reservation here",
                 "inside one: headrace run -n 1 -- headrace smi; all GPUs of the pool: "
                 "headrace list"};
  }
  Result<Requests> requests = Requests::of_session(path, build_text);
  if (!requests) return requests.error();
  Result<protocol::StatusReply> state =
      requests->ask<protocol::StatusReply>(protocol::StatusRequest{});
  if (state) requests->close();
  return state;
}

std::string uuid_of(const protocol::SliceState& device) {
  return uuid_text(device.slice_uuid.data());
}

std::string cuda_release(const protocol::StatusReply& state) {
  return std::to_string(state.cuda_version / 1000) + "." +
         std::to_string(state.cuda_version % 1000 / 10);
}

Result<Indices> chosen(const protocol::StatusReply& state, const std::string& wanted) {
  Indices indices;
  for (std::size_t i = 0; i < state.devices.size(); ++i) {
    const protocol::SliceState& device = state.devices[i];
    const std::string bus = bus_id(device);
    // The bus id also with four digits of domain, as programs print it.
    if (wanted.empty() || wanted == std::to_string(i) || wanted == uuid_of(device) ||
        wanted == bus || wanted == bus.substr(4)) {
      indices.push_back(i);
    }
  }
  if (indices.empty()) {
    return Error{ErrorKind::not_found, "the reservation has no GPU \"" + wanted + "\"",
                 "headrace smi -L"};
  }
  return indices;
}

void print_list(const protocol::StatusReply& state, const Indices& shown) {
  for (const std::size_t i : shown) {
    std::printf("GPU %zu: %s (UUID: %s)\n", i, printable(state.devices[i].name).c_str(),
                uuid_of(state.devices[i]).c_str());
  }
}

void print_table(const protocol::StatusReply& state, const Indices& shown) {
  std::printf("reservation %s   driver %s   CUDA %s\n\n", printable(state.reservation).c_str(),
              printable(state.driver).c_str(), cuda_release(state).c_str());
  std::vector<std::vector<std::string>> rows = {
      {"GPU", "NAME", "BUS ID", "CC", "USED", "TOTAL", "MEMORY", "GPU USE"}};
  std::vector<std::vector<std::string>> processes = {{"GPU", "PID", "MEMORY", "PROGRAM"}};
  for (const std::size_t i : shown) {
    const protocol::SliceState& device = state.devices[i];
    const std::uint64_t used = used_of(device);
    const std::uint64_t percent =
        device.memory_bytes == 0 ? 0 : used / (device.memory_bytes / 100 + 1);
    rows.push_back({std::to_string(i), printable(device.name), bus_id(device),
                    compute_capability(device), format_size(used), format_size(device.memory_bytes),
                    std::to_string(percent) + " %", "not told"});
    for (const protocol::SliceProcess& process : state.processes) {
      if (process.device != i) continue;
      processes.push_back({std::to_string(i), std::to_string(process.process),
                           format_size(process.used_bytes), printable(process.program)});
    }
  }
  std::fputs(format_rows(rows).c_str(), stdout);
  if (processes.size() == 1) {
    std::printf("\nNo process of the reservation holds memory.\n");
  } else {
    std::printf("\n%s", format_rows(processes).c_str());
  }
}

void print_details(const protocol::StatusReply& state, const Indices& shown) {
  std::printf("%-26s: %s\n%-26s: %s\n%-26s: %s\n%-26s: %zu\n", "Reservation",
              printable(state.reservation).c_str(), "Driver Version",
              printable(state.driver).c_str(), "CUDA Version", cuda_release(state).c_str(),
              "Attached GPUs", state.devices.size());
  for (const std::size_t i : shown) {
    const protocol::SliceState& device = state.devices[i];
    const std::uint64_t used = used_of(device);
    const auto line = [](const char* name, const std::string& value) {
      std::printf("    %-22s: %s\n", name, value.c_str());
    };
    std::printf("\nGPU %s\n", bus_id(device).c_str());
    line("Index", std::to_string(i));
    line("Product Name", printable(device.name));
    line("GPU UUID", uuid_of(device));
    line("Compute Capability", compute_capability(device));
    line("Compute Share", std::to_string(device.compute_percent) + " %");
    line("Software GPU", device.software ? "Yes" : "No");
    line("Memory Total", std::to_string(device.memory_bytes >> 20) + " MiB");
    line("Memory Used", std::to_string(used >> 20) + " MiB");
    line("Memory Free", std::to_string((device.memory_bytes >> 20) - (used >> 20)) + " MiB");
    line("Utilization", "N/A");
    line("Temperature", "N/A");
    line("Power Draw", "N/A");
    for (const protocol::SliceProcess& process : state.processes) {
      if (process.device != i) continue;
      line("Process ID", std::to_string(process.process));
      line("    Name", printable(process.program));
      line("    Used Memory", std::to_string(process.used_bytes >> 20) + " MiB");
    }
  }
}

void print_json(const protocol::StatusReply& state, const Indices& shown) {
  std::printf(
      "{\"schema\": \"headrace.smi/1\", \"reservation\": %s, \"driver\": %s, "
      "\"cuda_version\": %d, \"gpus\": [",
      json_text(state.reservation).c_str(), json_text(state.driver).c_str(), state.cuda_version);
  const char* between = "";
  for (const std::size_t i : shown) {
    const protocol::SliceState& device = state.devices[i];
    std::printf(
        "%s\n  {\"index\": %zu, \"name\": %s, \"uuid\": %s, \"bus_id\": %s, "
        "\"compute_capability\": "
        "%s, \"memory_bytes\": %llu, \"used_bytes\": %llu, \"compute_percent\": %u, \"software\": "
        "%s, \"processes\": [",
        between, i, json_text(device.name).c_str(), json_text(uuid_of(device)).c_str(),
        json_text(bus_id(device)).c_str(),
        device.compute_major == 0 ? "null" : json_text(compute_capability(device)).c_str(),
        static_cast<unsigned long long>(device.memory_bytes),
        static_cast<unsigned long long>(used_of(device)), device.compute_percent,
        device.software ? "true" : "false");
    const char* next = "";
    for (const protocol::SliceProcess& process : state.processes) {
      if (process.device != i) continue;
      std::printf("%s{\"pid\": %u, \"program\": %s, \"used_bytes\": %llu}", next, process.process,
                  json_text(process.program).c_str(),
                  static_cast<unsigned long long>(process.used_bytes));
      next = ", ";
    }
    std::printf("]}");
    between = ",";
  }
  std::printf("\n]}\n");
}

// The one of these that was given; null: none. More than one is an error.
Result<const char*> view_of(const Values& values) {
  const char* view = nullptr;
  for (const char* name : {"list-gpus", "query", "query-gpu", "query-compute-apps", "json"}) {
    if (!values.contains(name)) continue;
    if (view != nullptr) {
      return Error{ErrorKind::invalid_input,
                   std::string("--") + view + " and --" + name + " do not go together",
                   "headrace help smi"};
    }
    view = name;
  }
  return view;
}

}  // namespace

int show_smi(const Values& values, const std::vector<std::string>&) {
  const Result<const char*> given = view_of(values);
  if (!given) return complain("smi", given.error(), exit_usage);
  const std::string view = *given == nullptr ? "" : *given;
  const bool processes = view == "query-compute-apps";
  const bool csv = processes || view == "query-gpu";
  Query query;
  if (csv) {
    const Result<Query> parsed =
        parse_query(value_or_empty(values, view), value_or_empty(values, "format"), processes);
    if (!parsed) return complain("smi", parsed.error(), exit_usage);
    query = *parsed;
  }

  const Result<protocol::StatusReply> state = ask_state();
  if (!state) return complain("smi", state.error(), exit_code_of(state.error().kind));
  const Result<Indices> shown = chosen(*state, value_or_empty(values, "id"));
  if (!shown) return complain("smi", shown.error(), exit_failed);
  if (csv) {
    std::fputs(
        (processes ? query_processes(query, *state, *shown) : query_gpus(query, *state, *shown))
            .c_str(),
        stdout);
  } else if (view == "json") {
    print_json(*state, *shown);
  } else if (view == "list-gpus") {
    print_list(*state, *shown);
  } else if (view == "query") {
    print_details(*state, *shown);
  } else {
    print_table(*state, *shown);
  }
  return exit_ok;
}

}  // namespace headrace::launcher
