#include "softgpu/compiler/helper_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "softgpu/compiler/connection.h"

// Of the build: command that runs the helper, folder its Python package is in, device helpers.
#ifndef HEADRACE_SOFTGPU_COMPILER_COMMAND
#error "compiler/CMakeLists.txt defines the default command"
#endif

extern char** environ;

namespace headrace::softgpu {

namespace {

constexpr int kListenBacklog = 64;
constexpr std::size_t kSpawnStackBytes = 64 << 10;
constexpr int kListenerInHelper = 3;

// Everything that execve needs, made before the process is cloned: no allocation after that.
struct Spawn {
  std::vector<std::string> words, variables;
  std::vector<char*> arguments, environment;
  int listener = -1;
  std::uint8_t* inner_stack = nullptr;
  int error = 0;  // written by the child, which shares our memory

  void finish() {
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& variable : variables) environment.push_back(variable.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
  }
};

std::vector<std::string> split(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : command + ' ') {
    if (c != ' ' && c != '\t') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

// Where the command is: as a shell would look for it.
std::string resolve(const std::string& command) {
  const char* path = std::getenv("PATH");
  if (command.find('/') != command.npos || path == nullptr) return command;
  std::string folder;
  for (const char* c = path;; ++c) {
    if (*c != ':' && *c != '\0') {
      folder += *c;
      continue;
    }
    const std::string candidate = folder + "/" + command;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
    if (*c == '\0') return command;
    folder.clear();
  }
}

// On a stack that the sanitizer does not know; _exit would make it tidy up there.
#define HEADRACE_ON_FOREIGN_STACK __attribute__((no_sanitize_address))

// In the helper's process, which still has our memory: only async-signal-safe calls here.
HEADRACE_ON_FOREIGN_STACK int run_helper(void* argument) {
  Spawn& spawn = *static_cast<Spawn*>(argument);
  setsid();
  // The handler table is a copy; the program's handlers must not run in the helper.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
  // The listener first: a program may have closed its standard descriptors, and it be one of them.
  if (spawn.listener == kListenerInHelper)
    fcntl(kListenerInHelper, F_SETFD, 0);
  else
    dup2(spawn.listener, kListenerInHelper);
  const int null = open("/dev/null", O_RDWR);
  for (int descriptor = 0; descriptor < 3; ++descriptor) dup2(null, descriptor);
  syscall(SYS_close_range, kListenerInHelper + 1, ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(spawn.arguments[0], spawn.arguments.data(), spawn.environment.data());
  spawn.error = errno;
  _exit(127);
}

// The process in between: it ends at once, so that the helper belongs to init and the program
// never sees a child that it did not make.
HEADRACE_ON_FOREIGN_STACK int run_between(void* argument) {
  Spawn& spawn = *static_cast<Spawn*>(argument);
  if (clone(&run_helper, spawn.inner_stack + kSpawnStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD,
            argument) < 0)
    spawn.error = errno;
  _exit(0);
}

// Returns 0 or the errno of what failed. No fork handlers of the program run, and no copy of its
// page tables is made. The exit signal 0 keeps the process in between from raising SIGCHLD and
// out of the program's own wait().
int start(Spawn& spawn) {
  void* stacks = mmap(nullptr, 2 * kSpawnStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) return errno;
  std::uint8_t* outer_stack = static_cast<std::uint8_t*>(stacks);
  spawn.inner_stack = outer_stack + kSpawnStackBytes;
  // A signal handler of the program must not run in a process that shares its memory.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  const int between =
      clone(&run_between, outer_stack + kSpawnStackBytes, CLONE_VM | CLONE_VFORK, &spawn);
  const int failed = between < 0 ? errno : spawn.error;
  if (between >= 0)
    while (waitpid(between, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  munmap(stacks, 2 * kSpawnStackBytes);
  return failed;
}

bool own_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

// Where the user's helpers have their sockets; empty when there is no such place.
std::string socket_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && std::strlen(runtime) < 60) {
    const std::string path = std::string(runtime) + "/headrace-softgpu";
    if (own_directory(path)) return path;
  }
  const std::string path = "/tmp/headrace-softgpu-" + std::to_string(geteuid());
  return own_directory(path) ? path : "";
}

// Helpers that would answer differently have different names.
std::string settings_name(const std::vector<std::string>& words) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::string& word : words) {
    for (const char c : word) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xff) * 0x100000001b3u;
  }
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4) name += "0123456789abcdef"[(hash >> shift) & 15];
  return name;
}

// The program's environment without what is meant for the program only: preloaded libraries,
// library paths (ours among them), settings of its Python.
std::vector<std::string> helper_environment(bool default_command) {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("LD_") || text.starts_with("PYTHON")) continue;
    variables.emplace_back(text);
  }
  if (default_command) variables.emplace_back("PYTHONPATH=" HEADRACE_SOFTGPU_COMPILER_ROOT);
  return variables;
}

int listen_unix(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  unlink(path.c_str());  // of a helper that was killed; we hold the lock
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      chmod(path.c_str(), 0600) == 0 && listen(descriptor, kListenBacklog) == 0)
    return descriptor;
  const int reason = errno;
  close(descriptor);
  errno = reason;
  return -1;
}

std::string because(const std::string& what, int reason) {
  char buffer[128] = {};
  return what + ": " + strerror_r(reason, buffer, sizeof(buffer));
}

// The locked file, or -1 with errno. A helper that ends removes it under the lock; whoever waited
// for it meanwhile holds a file without a name, and begins anew.
int lock_file(const std::string& path) {
  for (;;) {
    const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) return -1;
    while (flock(lock, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat status {};
    if (fstat(lock, &status) == 0 && status.st_nlink != 0) return lock;
    close(lock);
  }
}

// Under the lock: a helper that listens, or a new one.
int connect_or_start(Spawn& spawn, const std::string& path, std::string& error) {
  const int present = connect_unix(path);
  if (present >= 0) return present;
  spawn.listener = listen_unix(path);
  if (spawn.listener < 0) {
    error = because("cannot listen on " + path, errno);
    return -1;
  }
  const int failed = start(spawn);
  int connected = -1;
  if (failed != 0) {
    error = because("cannot start the compile helper '" + spawn.words[0] + "'", failed) +
            "; install the software GPU's compiler, or set HEADRACE_SOFTGPU_COMPILER to "
            "\"unix:SOCKET\" or to a command";
    unlink(path.c_str());
  } else {
    connected = connect_unix(path);
    if (connected < 0) error = because("cannot connect to " + path, errno);
  }
  close(spawn.listener);
  return connected;
}

}  // namespace

int connect_to_helper(const CompilerSettings& settings, std::string& error) {
  constexpr std::string_view kUnix = "unix:";
  if (settings.compiler.starts_with(kUnix)) {
    const std::string path = settings.compiler.substr(kUnix.size());
    const int connected = connect_unix(path);
    if (connected < 0)
      error = because("no compile helper at " + path, errno) +
              "; start one: python -m remoting.softgpu.compiler --keep --socket " + path;
    return connected;
  }
  const bool default_command = settings.compiler.empty();
  Spawn spawn;
  spawn.words = split(default_command ? HEADRACE_SOFTGPU_COMPILER_COMMAND : settings.compiler);
  if (spawn.words.empty()) {
    error = "HEADRACE_SOFTGPU_COMPILER names no command";
    return -1;
  }
  spawn.words[0] = resolve(spawn.words[0]);
  if (default_command) {
    spawn.words.emplace_back("--device-archive");
    spawn.words.emplace_back(HEADRACE_SOFTGPU_DEVICE_ARCHIVE);
  }
  if (!settings.cache.empty()) {
    spawn.words.emplace_back("--cache");
    spawn.words.push_back(settings.cache);
  }
  if (const char* log = std::getenv("HEADRACE_SOFTGPU_LOG"); log != nullptr && log[0] != '\0') {
    spawn.words.emplace_back("--log");
    spawn.words.emplace_back(log);
  }
  const std::string directory = socket_directory();
  if (directory.empty()) {
    error = "no private directory for the compile helper's socket in XDG_RUNTIME_DIR or /tmp";
    return -1;
  }
  const std::string base = directory + "/" + settings_name(spawn.words);
  const std::string lock_path = base + ".lock", path = base + ".sock";
  spawn.words.insert(spawn.words.end(), {"--listen-fd", "3", "--lock", lock_path});
  spawn.variables = helper_environment(default_command);
  spawn.finish();
  const int lock = lock_file(lock_path);
  if (lock < 0) {
    error = because("cannot open " + lock_path, errno);
    return -1;
  }
  const int connected = connect_or_start(spawn, path, error);
  close(lock);
  return connected;
}

}  // namespace headrace::softgpu
