#include "common/log.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace headrace {

Result<FileLog> FileLog::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
  if (!fd) return system_error(ErrorKind::invalid_input, "cannot open log file " + path, errno);
  FileLog log;
  log.fd_ = std::move(fd);
  return log;
}

void FileLog::line(std::string_view text) const {
  if (!fd_) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char head[96];
  const int n = std::snprintf(head, sizeof head, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ %d.%ld ",
                              parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                              parts.tm_min, parts.tm_sec, now.tv_nsec / 1000, getpid(),
                              static_cast<long>(syscall(SYS_gettid)));
  std::string whole(head, n > 0 ? static_cast<std::size_t>(n) : 0);
  whole += text;
  whole += '\n';
  // A full disk must not disturb the program: what cannot be written is lost.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), whole.data(), whole.size());
}

}  // namespace headrace
