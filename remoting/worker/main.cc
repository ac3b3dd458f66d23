// headrace-worker: serves one connection. Descriptor 3 is the accepted socket, HEADRACE_BROKER the
// path of headraced's Unix socket (PROTOCOL.md §11); systemd and the spawner both start it so.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "common/socket.h"
#include "gen/messages.h"
#include "worker/driver_output.h"
#include "worker/phases.h"

namespace headrace::worker {
namespace {

constexpr int socket_descriptor = 3;
constexpr std::uint64_t linger_ms = 1'000;

std::string peer_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const sockaddr_in& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const sockaddr_in6& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  return "local";
}

// One line for the journal, and one for the daemon's log unless all ended well (§11.6).
int report(BrokerClient* broker, const Ending& ending) {
  dprintf(journal(), "headrace-worker: %s: %s\n", ending.event.c_str(), ending.text.c_str());
  if (ending.event == "finished") return 0;
  if (broker != nullptr && broker->alive()) {
    broker->tell(protocol::WorkerReport{ending.event, ending.text.substr(0, 500)});
  }
  return 1;
}

Ending serve(Connection& connection, BrokerClient& broker, const Introduction& introduction,
             std::unique_ptr<ServedSession>& served) {
  Ending ending;
  const std::optional<Role> role = hello(connection, broker, introduction, ending);
  if (!role) return ending;
  return *role == Role::agent ? agent_phase(connection, broker, introduction)
                              : session_phase(connection, broker, introduction, served);
}

int run() {
  signal(SIGPIPE, SIG_IGN);
  UniqueFd socket(socket_descriptor);
  if (fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0) {
    socket.release();
    return report(nullptr, Ending::internal("descriptor 3 is not a connection"));
  }
  tune_socket(socket.get());

  const char* path = std::getenv("HEADRACE_BROKER");
  Result<BrokerClient> broker = BrokerClient::connect(path == nullptr ? "" : path);
  if (!broker) return report(nullptr, Ending::internal(broker.error().text));
  Result<Introduction> introduction = introduce(*broker, peer_address(socket.get()));
  if (!introduction) return report(&*broker, Ending::internal(introduction.error().text));

  Result<std::unique_ptr<TlsStream>> tls = TlsStream::server(introduction->tls, std::move(socket));
  if (!tls) return report(&*broker, Ending::internal(tls.error().text));
  if (Result<void> shaken = (*tls)->handshake(Deadline::after_ms(introduction->handshake_ms));
      !shaken) {
    const int code = report(&*broker, {Code::not_permitted, "handshake", shaken.error().text});
    (*tls)->linger(Deadline::after_ms(linger_ms));
    return code;
  }

  Connection connection(tls.take());
  std::unique_ptr<ServedSession> served;
  const Ending ending = serve(connection, *broker, *introduction, served);
  connection.close(ending);
  const int code = report(&*broker, ending);
  free_session(std::move(served), code);
  return code;
}

}  // namespace
}  // namespace headrace::worker

int main() { return headrace::worker::run(); }
