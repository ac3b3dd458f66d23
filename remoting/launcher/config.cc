#include "launcher/config.h"

#include <sys/stat.h>

#include <cstdlib>

#include "common/files.h"

namespace headrace::launcher {
namespace {

constexpr std::size_t max_file = 256 * 1024;

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> find_folder(const std::string& given) {
  if (!given.empty()) return given;
  if (const std::string named = from_environment("HEADRACE_CONFIG"); !named.empty()) return named;
  std::string own = from_environment("XDG_CONFIG_HOME");
  if (own.empty() && !from_environment("HOME").empty()) own = from_environment("HOME") + "/.config";
  if (!own.empty() && is_folder(own + "/headrace")) return own + "/headrace";
  if (is_folder("/etc/headrace")) return std::string("/etc/headrace");
  return Error{ErrorKind::not_found, "this machine has no configuration for a pool",
               "enrol it, or name a folder with --config or HEADRACE_CONFIG"};
}

// Lines `key value`; blank lines and those that begin with # are passed over.
Result<Endpoint> server_of(const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with("server ")) {
      std::string_view value = line.substr(7);
      value = value.substr(0, value.find_last_not_of(" \t\r") + 1);
      return parse_endpoint(value);
    }
  }
  return Error{ErrorKind::invalid_input, path + " names no server",
               "write a line into it: server HOST:7444"};
}

Error in_file(const std::string& path, Error error) {
  error.text = path + ": " + error.text;
  return error;
}

}  // namespace

Result<Config> load_config(const std::string& given, const std::string& server) {
  const Result<std::string> folder = find_folder(given);
  if (!folder) return folder.error();
  Result<Endpoint> endpoint = Endpoint{};
  if (!server.empty()) {
    endpoint = parse_endpoint(server);
  } else {
    const std::string path = *folder + "/client.conf";
    const Result<std::string> text = read_file(path, max_file);
    if (!text) return text.error();
    endpoint = server_of(path, *text);
  }
  if (!endpoint) return endpoint.error();
  const Result<std::string> certificates = read_file(*folder + "/client.pem", max_file);
  if (!certificates) return certificates.error();
  const Result<std::string> key = read_private_file(*folder + "/client.key", max_file);
  if (!key) return key.error();
  const Result<std::string> trust = read_file(*folder + "/ca.pem", max_file);
  if (!trust) return trust.error();
  Result<Identity> identity = identity_from_pem(*certificates, *key);
  if (!identity) return in_file(*folder + "/client.pem", identity.error());
  Result<std::vector<Certificate>> anchors = certificates_from_pem(*trust);
  if (!anchors) return in_file(*folder + "/ca.pem", anchors.error());
  return Config{*folder, endpoint.take(), identity.take(), anchors.take()};
}

}  // namespace headrace::launcher
