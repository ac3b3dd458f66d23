#include "remoting/softgpu/device/process_state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace headrace::softgpu {
namespace {

struct ProcessState {
  bool readable = false;  // /proc shows it to us
  bool ended = false;
  std::uint64_t started = 0;
};

ProcessState state_of(std::uint32_t pid) {
  ProcessState out;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  char text[1024];
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return out;
  text[n] = '\0';
  const char* at = std::strrchr(text, ')');  // the name may hold spaces and brackets
  if (at == nullptr) return out;
  char state = 0;
  unsigned long long started = 0;
  int got = std::sscanf(at + 1,
                        " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                        "%*d %llu",
                        &state, &started);
  out.readable = got == 2;
  out.ended = state == 'Z' || state == 'X';
  out.started = started;
  return out;
}

}  // namespace

std::uint64_t process_started(std::uint32_t pid) { return state_of(pid).started; }

bool process_alive(std::uint32_t pid, std::uint64_t started) {
  ProcessState state = state_of(pid);
  if (state.readable) return !state.ended && state.started == started;
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

}  // namespace headrace::softgpu
