// headrace run: reserves, hands over, and becomes the program.
#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "launcher/commands.h"
#include "launcher/exit_codes.h"
#include "launcher/handover.h"
#include "launcher/pool.h"
#include "launcher/sizes.h"

namespace headrace::launcher {
namespace {

constexpr unsigned max_gpus = 64;
// A number without its unit is the likely reason for less.
constexpr std::uint64_t least_memory = 1 << 20;

std::string value_or(const Values& values, const char* name, const char* otherwise) {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

std::string user_name() {
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : "uid-" + std::to_string(geteuid());
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The program as execvp would find it; an exit code if it would not.
int find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) != 0) return exit_not_found;
    return access(name.c_str(), X_OK) == 0 ? exit_ok : exit_cannot_execute;
  }
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "/bin:/usr/bin" : path;
  int verdict = exit_not_found;
  for (;;) {
    const std::size_t colon = folders.find(':');
    const std::string candidate = std::string(folders.substr(0, colon)) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return exit_ok;
    if (access(candidate.c_str(), F_OK) == 0) verdict = exit_cannot_execute;
    if (colon == std::string_view::npos) return verdict;
    folders.remove_prefix(colon + 1);
  }
}

Result<protocol::ReserveRequest> request_of(const Values& values, const std::string& program,
                                            const PrivateKey& key) {
  protocol::ReserveRequest request;
  const std::string count = value_or(values, "gpus", "1");
  const auto [end, status] =
      std::from_chars(count.data(), count.data() + count.size(), request.count);
  if (status != std::errc() || end != count.data() + count.size() || request.count == 0 ||
      request.count > max_gpus) {
    return Error{ErrorKind::invalid_input, "-n wants a number from 1 to 64, not \"" + count + "\"",
                 "headrace help run"};
  }
  if (const auto memory = values.find("memory"); memory != values.end()) {
    const Result<std::uint64_t> bytes = parse_size(memory->second);
    if (!bytes) return bytes.error();
    if (*bytes < least_memory) {
      return Error{
          ErrorKind::invalid_input,
          "-m " + memory->second + " is " + format_size(*bytes) + ": less than any program needs",
          "write the unit: -m 512MiB, -m 8GiB"};
    }
    request.memory_bytes = *bytes;
  }
  request.user = user_name().substr(0, 256);
  request.host = host_name().substr(0, 256);
  request.program = program.substr(program.rfind('/') + 1).substr(0, 256);
  request.public_key = key.public_der();
  return request;
}

SessionFile session_of(const protocol::ReserveGrant& grant, const Config& config,
                       const PrivateKey& key, const std::vector<Certificate>& chain) {
  SessionFile session;
  session.server = config.server;
  if (!grant.server.empty()) {
    if (Result<Endpoint> other = parse_endpoint(grant.server)) session.server = other.take();
  }
  session.reservation = grant.reservation;
  session.expires = grant.expires;
  for (const protocol::Slice& one : grant.slices)
    session.software = session.software || one.software;
  session.certificates = pem_of(chain);
  session.key = key.private_pem();
  session.trust = pem_of(config.trust);
  return session;
}

Result<std::vector<Certificate>> certificates_of(const protocol::ReserveGrant& grant) {
  Result<Certificate> own = Certificate::from_der(grant.certificate);
  if (!own) return own.error();
  Result<std::vector<Certificate>> chain = certificates_from_der(grant.chain);
  if (!chain) return chain.error();
  chain->insert(chain->begin(), own.take());
  return chain;
}

}  // namespace

int run_program(const Values& values, const std::vector<std::string>& rest) {
  std::vector<std::string> line = rest;
  if (line.empty()) {
    const char* shell = std::getenv("SHELL");
    line.emplace_back(shell != nullptr && shell[0] != '\0' ? shell : "/bin/sh");
  }
  // What cannot work anyway should not cost a reservation.
  if (const int verdict = find_program(line[0]); verdict != exit_ok) {
    return complain("run",
                    {ErrorKind::not_found,
                     line[0] + (verdict == exit_not_found ? ": not found" : ": cannot be executed"),
                     "headrace run -n 1 -- PROGRAM"},
                    verdict);
  }
  const Result<PrivateKey> key = PrivateKey::generate();
  if (!key) return complain("run", key.error(), exit_launcher);
  const Result<protocol::ReserveRequest> request = request_of(values, line[0], *key);
  if (!request) return complain("run", request.error(), exit_launcher);
  const Result<std::string> libraries = library_folder();
  if (!libraries) return complain("run", libraries.error(), exit_launcher);
  const Result<Config> config =
      load_config(value_or(values, "config", ""), value_or(values, "server", ""));
  if (!config) return complain("run", config.error(), exit_launcher);

  Result<Pool> pool = Pool::connect(*config);
  if (!pool) return complain("run", pool.error(), exit_launcher);
  const Result<protocol::ReserveGrant> grant = pool->reserve(*request);
  if (!grant) return complain("run: no GPU", grant.error(), exit_launcher);
  const Result<std::vector<Certificate>> chain = certificates_of(*grant);
  if (!chain) return complain("run", chain.error(), exit_launcher);

  const SessionFile session = session_of(*grant, *config, *key, *chain);
  Result<SessionHandover> handover = hand_over(session);
  if (!handover) return complain("run", handover.error(), exit_launcher);
  set_environment(handover->path, *libraries, session.software);

  // The reservation ends when the last holder of this descriptor is gone, so it stays open in the
  // program, which knows nothing of it (PROTOCOL.md §6).
  const int reservation = pool->keep().release();
  fcntl(reservation, F_SETFD, 0);
  handover->lock.release();

  std::vector<char*> arguments;
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int failure = errno;
  unlink(handover->path.c_str());
  return complain("run", system_error(ErrorKind::invalid_input, line[0], failure),
                  failure == ENOENT ? exit_not_found : exit_cannot_execute);
}

}  // namespace headrace::launcher
