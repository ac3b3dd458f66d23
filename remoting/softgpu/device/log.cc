#include "remoting/softgpu/device/log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {

void log_line(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char head[64];
  std::snprintf(head, sizeof head, "%lld.%06ld [%d] softgpu: ", static_cast<long long>(now.tv_sec),
                now.tv_nsec / 1000, static_cast<int>(getpid()));
  std::string line = head + text + "\n";
  // One write: lines of several processes do not mix. A full disk loses the line, nothing else.
  if (write(fd, line.data(), line.size()) < 0) {
  }
  close(fd);
}

void log(const std::string& text) { log_line(settings().log_path, text); }

}  // namespace headrace::softgpu
