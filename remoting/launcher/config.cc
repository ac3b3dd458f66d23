#include "launcher/config.h"

#include <sys/stat.h>

#include <algorithm>
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

// What to do about a file of the folder that is missing or cannot be used.
constexpr const char* anew =
    "copy it anew from the folder that was made for this machine, or name another with --config "
    "FOLDER";

Error in_file(const std::string& path, Error error) {
  error.text = path + ": " + error.text;
  if (error.hint.empty()) error.hint = anew;
  return error;
}

Error no_server(const std::string& what) {
  return Error{ErrorKind::invalid_input, what, "write a line into it: server HOST:7444"};
}

// Lines `key value`; blank lines and those that begin with # are passed over.
Result<Endpoint> server_of(const std::string& path, std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    line = line.substr(0, line.find_last_not_of(blanks) + 1);
    constexpr std::string_view key = "server";
    if (!line.starts_with(key)) continue;
    const std::string_view value = line.substr(key.size());
    if (!value.empty() && value.front() != '=' && blanks.find(value.front()) == blanks.npos) {
      continue;  // another, longer key
    }
    const std::string here = path + ", line " + std::to_string(number) + ": ";
    const std::size_t begin = value.find_first_not_of(blanks);
    if (begin == value.npos) return no_server(here + "no HOST after \"server\"");
    if (value[begin] == '=') {
      return Error{ErrorKind::invalid_input, here + "\"=\" does not belong there",
                   "write it as: server HOST:7444"};
    }
    Result<Endpoint> endpoint = parse_endpoint(value.substr(begin));
    if (!endpoint)
      return Error{ErrorKind::invalid_input, here + endpoint.error().text,
                   "write it as: server HOST:7444, or server [2001:db8::1]:7444"};
    return endpoint;
  }
  return no_server(path + " names no server");
}

Result<std::string> read_own(const std::string& path,
                             Result<std::string> (*read)(const std::string&, std::size_t)) {
  Result<std::string> text = read(path, max_file);
  if (text || !text.error().hint.empty()) return text;
  Error error = text.error();
  error.hint = anew;
  return error;
}

Result<Identity> load_identity(const std::string& folder) {
  const std::string certificate_path = folder + "/client.pem", key_path = folder + "/client.key";
  const Result<std::string> certificate_text = read_own(certificate_path, read_file);
  if (!certificate_text) return certificate_text.error();
  const Result<std::string> key_text = read_own(key_path, read_private_file);
  if (!key_text) return key_text.error();
  Result<std::vector<Certificate>> certificates = certificates_from_pem(*certificate_text);
  if (!certificates) return in_file(certificate_path, certificates.error());
  Result<PrivateKey> key = PrivateKey::from_pem(*key_text);
  if (!key) return in_file(key_path, key.error());
  if (!certificates->front().matches(*key)) {
    return in_file(key_path, {ErrorKind::invalid_input, "not the key of " + certificate_path, ""});
  }
  return Identity{
      key.take(), certificates->front(), {certificates->begin() + 1, certificates->end()}};
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
    if (!text) {
      return Error{text.error().kind, text.error().text,
                   "echo 'server HOST:7444' > " + path + ", or give --server HOST"};
    }
    endpoint = server_of(path, *text);
  }
  if (!endpoint) return endpoint.error();
  Result<Identity> identity = load_identity(*folder);
  if (!identity) return identity.error();
  const Result<std::string> trust = read_own(*folder + "/ca.pem", read_file);
  if (!trust) return trust.error();
  Result<std::vector<Certificate>> anchors = certificates_from_pem(*trust);
  if (!anchors) return in_file(*folder + "/ca.pem", anchors.error());
  return Config{*folder, endpoint.take(), identity.take(), anchors.take()};
}

}  // namespace headrace::launcher
