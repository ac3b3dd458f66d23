#include "launcher/smi_fields.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include "common/uuid.h"
#include "launcher/options.h"
#include "launcher/text.h"

namespace headrace::launcher {
namespace {

constexpr const char* not_known = "[N/A]";

struct Row {
  const protocol::StatusReply& state;
  std::size_t device;
  const protocol::SliceProcess* process;  // null where a GPU is asked for

  const protocol::SliceState& gpu() const { return state.devices[device]; }
};

struct Field {
  const char* name;
  const char* unit;  // null: none
  std::string (*value)(const Row&);
};

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20); }

std::string hexadecimal(int value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%0*X", digits, static_cast<unsigned>(value));
  return text;
}

std::string timestamp(const Row&) {
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  char text[32];
  strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S", &local);
  return text;
}

std::string uuid_of(const Row& row) { return uuid_text(row.gpu().slice_uuid.data()); }
std::string name_of(const Row& row) { return printable(row.gpu().name); }
std::string bus_of(const Row& row) { return bus_id(row.gpu()); }
std::string none_of(const Row&) { return not_known; }
std::string disabled(const Row&) { return "Disabled"; }

// What a slice does not have is known by name, so that a line of fields works as it does elsewhere.
constexpr Field gpu_fields[] = {
    {"timestamp", nullptr, timestamp},
    {"index", nullptr, [](const Row& row) { return std::to_string(row.device); }},
    {"count", nullptr, [](const Row& row) { return std::to_string(row.state.devices.size()); }},
    {"name", nullptr, name_of},
    {"gpu_name", nullptr, name_of},
    {"uuid", nullptr, uuid_of},
    {"gpu_uuid", nullptr, uuid_of},
    {"driver_version", nullptr, [](const Row& row) { return printable(row.state.driver); }},
    {"pci.bus_id", nullptr, bus_of},
    {"gpu_bus_id", nullptr, bus_of},
    {"pci.domain", nullptr, [](const Row& row) { return hexadecimal(row.gpu().pci_domain, 4); }},
    {"pci.bus", nullptr, [](const Row& row) { return hexadecimal(row.gpu().pci_bus, 2); }},
    {"pci.device", nullptr, [](const Row& row) { return hexadecimal(row.gpu().pci_device, 2); }},
    {"memory.total", "MiB", [](const Row& row) { return mebibytes(row.gpu().memory_bytes); }},
    {"memory.used", "MiB", [](const Row& row) { return mebibytes(used_of(row.gpu())); }},
    {"memory.free", "MiB",
     [](const Row& row) {
       // So that used and free are the total also when both are cut to whole MiB.
       return std::to_string((row.gpu().memory_bytes >> 20) - (used_of(row.gpu()) >> 20));
     }},
    {"memory.reserved", "MiB", [](const Row&) { return mebibytes(0); }},
    {"compute_cap", nullptr, [](const Row& row) { return compute_capability(row.gpu()); }},
    {"compute_mode", nullptr, [](const Row&) { return std::string("Default"); }},
    {"display_mode", nullptr, disabled},
    {"display_active", nullptr, disabled},
    {"utilization.gpu", "%", none_of},
    {"utilization.memory", "%", none_of},
    {"temperature.gpu", nullptr, none_of},
    {"temperature.memory", nullptr, none_of},
    {"fan.speed", "%", none_of},
    {"pstate", nullptr, none_of},
    {"power.draw", "W", none_of},
    {"power.limit", "W", none_of},
    {"clocks.sm", "MHz", none_of},
    {"clocks.current.sm", "MHz", none_of},
    {"clocks.mem", "MHz", none_of},
    {"clocks.current.memory", "MHz", none_of},
    {"clocks.max.sm", "MHz", none_of},
    {"persistence_mode", nullptr, none_of},
    {"mig.mode.current", nullptr, none_of},
    {"ecc.mode.current", nullptr, none_of},
    {"serial", nullptr, none_of},
    {"vbios_version", nullptr, none_of},
};

constexpr Field process_fields[] = {
    {"timestamp", nullptr, timestamp},
    {"gpu_name", nullptr, name_of},
    {"gpu_uuid", nullptr, uuid_of},
    {"gpu_bus_id", nullptr, bus_of},
    {"pid", nullptr, [](const Row& row) { return std::to_string(row.process->process); }},
    {"process_name", nullptr, [](const Row& row) { return printable(row.process->program); }},
    {"name", nullptr, [](const Row& row) { return printable(row.process->program); }},
    {"used_memory", "MiB", [](const Row& row) { return mebibytes(row.process->used_bytes); }},
    {"used_gpu_memory", "MiB", [](const Row& row) { return mebibytes(row.process->used_bytes); }},
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    words.emplace_back(word);
    if (comma == std::string_view::npos) return words;
    rest.remove_prefix(comma + 1);
  }
}

const Field* find_field(std::span<const Field> fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return name == field.name; });
  return found == fields.end() ? nullptr : &*found;
}

std::string header_of(std::span<const Field> known, const Query& query) {
  std::string line;
  for (const std::string& name : query.fields) {
    const Field& field = *find_field(known, name);
    line += (line.empty() ? "" : ", ") + name;
    if (field.unit != nullptr) line += std::string(" [") + field.unit + "]";
  }
  return line + "\n";
}

std::string line_of(std::span<const Field> known, const Query& query, const Row& row) {
  std::string line;
  const char* between = "";
  for (const std::string& name : query.fields) {
    const Field& field = *find_field(known, name);
    const std::string value = field.value(row);
    line += between + value;
    if (field.unit != nullptr && query.units && value != not_known) {
      line += std::string(" ") + field.unit;
    }
    between = ", ";
  }
  return line + "\n";
}

Error unknown(const std::string& what, const std::string& word,
              const std::vector<std::string>& names) {
  const std::optional<std::string> meant = nearest(word, names);
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return Error{ErrorKind::invalid_input, "no " + what + " \"" + word + "\"",
               meant ? "did you mean " + *meant + "?" : "there are: " + all};
}

}  // namespace

Result<Query> parse_query(const std::string& fields, const std::string& format, bool processes) {
  const std::span<const Field> known =
      processes ? std::span<const Field>(process_fields) : std::span<const Field>(gpu_fields);
  Query query;
  query.fields = split(fields);
  for (const std::string& name : query.fields) {
    if (find_field(known, name) != nullptr) continue;
    std::vector<std::string> names;
    for (const Field& field : known) names.emplace_back(field.name);
    return unknown("field", name, names);
  }
  bool csv = false;
  for (const std::string& word : split(format)) {
    if (word == "csv") {
      csv = true;
    } else if (word == "noheader") {
      query.header = false;
    } else if (word == "nounits") {
      query.units = false;
    } else if (!word.empty()) {
      return unknown("format", word, {"csv", "noheader", "nounits"});
    }
  }
  if (!csv) {
    return Error{ErrorKind::invalid_input, "a query needs its format", "add --format=csv"};
  }
  return query;
}

std::string query_gpus(const Query& query, const protocol::StatusReply& state,
                       const std::vector<std::size_t>& shown) {
  std::string text = query.header ? header_of(gpu_fields, query) : "";
  for (const std::size_t index : shown) {
    text += line_of(gpu_fields, query, Row{state, index, nullptr});
  }
  return text;
}

std::string query_processes(const Query& query, const protocol::StatusReply& state,
                            const std::vector<std::size_t>& shown) {
  std::string text = query.header ? header_of(process_fields, query) : "";
  for (const std::size_t index : shown) {
    for (const protocol::SliceProcess& process : state.processes) {
      if (process.device != index) continue;
      text += line_of(process_fields, query, Row{state, index, &process});
    }
  }
  return text;
}

std::string bus_id(const protocol::SliceState& device) {
  char text[32];
  std::snprintf(text, sizeof text, "%08X:%02X:%02X.0", static_cast<unsigned>(device.pci_domain),
                static_cast<unsigned>(device.pci_bus), static_cast<unsigned>(device.pci_device));
  return text;
}

std::string compute_capability(const protocol::SliceState& device) {
  if (device.compute_major == 0) return not_known;
  return std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor);
}

std::uint64_t used_of(const protocol::SliceState& device) {
  return std::min(device.used_bytes, device.memory_bytes);
}

}  // namespace headrace::launcher
