#include "softgpu/compiler/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace headrace::softgpu {

namespace {
// The helper ends a compile long before; only one that hangs itself is given up so.
constexpr int kPatienceMilliseconds = 15 * 60 * 1000;
constexpr std::size_t kHeaderLimit = std::size_t{64} << 20;
constexpr std::size_t kAttachmentLimit = std::size_t{512} << 20;

void put_u32(std::uint8_t* to, std::size_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}
std::size_t get_u32(const std::uint8_t* from) {
  return from[0] | from[1] << 8 | from[2] << 16 | std::size_t{from[3]} << 24;
}
}  // namespace

Connection::~Connection() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Connection::ask(std::string_view header, std::string_view attachment, Reply& reply) {
  if (header.size() > kHeaderLimit || attachment.size() > kAttachmentLimit) return false;
  std::uint8_t lengths[8];
  put_u32(lengths, header.size());
  put_u32(lengths + 4, attachment.size());
  if (!send_all(lengths, sizeof(lengths)) || !send_all(header.data(), header.size()) ||
      !send_all(attachment.data(), attachment.size()))
    return false;
  if (!receive_all(lengths, sizeof(lengths))) return false;
  const std::size_t header_bytes = get_u32(lengths), attachment_bytes = get_u32(lengths + 4);
  if (header_bytes > kHeaderLimit || attachment_bytes > kAttachmentLimit) return false;
  std::string text(header_bytes, '\0');
  reply.attachment.resize(attachment_bytes);
  if (!receive_all(text.data(), header_bytes) ||
      !receive_all(reply.attachment.data(), attachment_bytes))
    return false;
  std::optional<json::Value> value = json::Value::parse(text);
  if (!value) return false;
  reply.header = std::move(*value);
  return true;
}

bool Connection::wait_for(short events) {
  pollfd entry{descriptor_, events, 0};
  int ready = 0;
  do {
    ready = poll(&entry, 1, kPatienceMilliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool Connection::send_all(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t sent = send(descriptor_, next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      next += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(POLLOUT)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Connection::receive_all(void* data, std::size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t received = recv(descriptor_, next, bytes, MSG_DONTWAIT);
    if (received == 0) return false;
    if (received > 0) {
      next += received;
      bytes -= static_cast<std::size_t>(received);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(POLLIN)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  int result = 0;
  do {
    result = connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return descriptor;
  const int reason = errno;
  close(descriptor);
  errno = reason;
  return -1;
}

}  // namespace headrace::softgpu
