#include "worker/driver_output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "gen/messages.h"

// A sanitizer's report belongs into the journal; there only in builds that have one.
extern "C" [[gnu::weak]] void __sanitizer_set_report_fd(void*);

namespace headrace::worker {
namespace {

// What one message takes (messages.toml).
constexpr std::size_t most_in_a_message = 60'000;
// More than a driver's own buffer lets kernels leave behind (bodies/context.cc limits it).
constexpr std::uint64_t most_waiting = 48 << 20;

struct Stream {
  int descriptor = -1;  // of the memory that the process's own descriptor leads to
  std::uint64_t taken = 0;
};

int journal_descriptor = STDERR_FILENO;
Stream streams[2];  // standard output and error

bool redirect(Stream& stream, int descriptor, const char* name) {
  const int memory = memfd_create(name, MFD_CLOEXEC);
  // Threads of the driver write at the end, wherever this side reads.
  if (memory < 0 || fcntl(memory, F_SETFL, O_APPEND) != 0) return false;
  if (dup2(memory, descriptor) < 0) return false;
  stream.descriptor = memory;
  return true;
}

// What a library says when it ends the process must not be lost in memory of ours.
void tell_last_words(int) {
  char text[4096];
  for (;;) {
    const off_t at = static_cast<off_t>(streams[1].taken);
    const ssize_t got = pread(streams[1].descriptor, text, sizeof text, at);
    if (got <= 0) break;
    streams[1].taken += static_cast<std::uint64_t>(got);
    [[maybe_unused]] const ssize_t put = write(journal_descriptor, text, static_cast<size_t>(got));
  }
}

std::uint64_t size_of(const Stream& stream) {
  struct stat status {};
  return fstat(stream.descriptor, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

// The memory of what is taken goes back; the positions stay.
void give_back(const Stream& stream, std::uint64_t from) {
  fallocate(stream.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
            static_cast<off_t>(stream.taken - from));
}

void send_stream(Stream& stream, std::uint8_t number, FrameWriter& out, bool wanted) {
  const std::uint64_t size = size_of(stream);
  if (size <= stream.taken) return;
  const std::uint64_t before = stream.taken;
  if (!wanted) {
    stream.taken = size;
  } else if (size - stream.taken > most_waiting) {
    stream.taken = size - most_waiting;
  }
  protocol::Output message;
  message.stream = number;
  while (stream.taken < size) {
    message.data.resize(std::min<std::uint64_t>(size - stream.taken, most_in_a_message));
    const ssize_t got = pread(stream.descriptor, message.data.data(), message.data.size(),
                              static_cast<off_t>(stream.taken));
    if (got <= 0) break;
    message.data.resize(static_cast<std::size_t>(got));
    stream.taken += static_cast<std::uint64_t>(got);
    (void)out.add(protocol::Output::kType, message);
  }
  give_back(stream, before);
}

}  // namespace

int journal() { return journal_descriptor; }

bool DriverOutput::capture() {
  const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (kept < 0) return false;
  journal_descriptor = kept;
  if (__sanitizer_set_report_fd != nullptr) {
    __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<std::intptr_t>(kept)));
  }
  if (!redirect(streams[0], STDOUT_FILENO, "headrace-stdout") ||
      !redirect(streams[1], STDERR_FILENO, "headrace-stderr")) {
    return false;
  }
  struct sigaction action {};
  action.sa_handler = tell_last_words;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // and then it ends as it would have
  return sigaction(SIGABRT, &action, nullptr) == 0;
}

void DriverOutput::send(FrameWriter& out, bool wanted) {
  if (streams[0].descriptor < 0 || streams[1].descriptor < 0) return;
  std::fflush(stdout);  // a driver may leave its text to the C library's buffer
  send_stream(streams[0], 1, out, wanted);
  send_stream(streams[1], 2, out, wanted);
}

}  // namespace headrace::worker
