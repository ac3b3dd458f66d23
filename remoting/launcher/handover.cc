#include "launcher/handover.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include "common/files.h"

namespace headrace::launcher {
namespace {

// A file that is just being made is not locked yet.
constexpr time_t being_made_seconds = 30;

Result<std::string> session_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat info {};
  const bool usable = runtime != nullptr && runtime[0] == '/' && stat(runtime, &info) == 0 &&
                      S_ISDIR(info.st_mode) && info.st_uid == geteuid();
  const std::string folder =
      usable ? std::string(runtime) + "/headrace" : "/tmp/headrace-" + std::to_string(geteuid());
  if (Result<void> made = make_private_folder(folder); !made) return made.error();
  return folder;
}

// The lock belongs to the open file, which programs inherit: whoever can take it is alone.
void sweep(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir(folder.c_str()), closedir);
  if (list == nullptr) return;
  while (const dirent* entry = readdir(list.get())) {
    if (std::string_view(entry->d_name).find("session-") != 0) continue;
    const std::string path = folder + "/" + entry->d_name;
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0) continue;
    if (time(nullptr) - info.st_mtime < being_made_seconds) continue;
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

void prepend(const char* name, const std::string& value) {
  const char* before = std::getenv(name);
  const bool any = before != nullptr && before[0] != '\0';
  setenv(name, any ? (value + ":" + before).c_str() : value.c_str(), 1);
}

Result<std::string> own_folder() {
  char self[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof self);
  if (size <= 0 || size == sizeof self) {
    return system_error(ErrorKind::internal, "cannot find this program's own folder", errno);
  }
  const std::string_view place(self, static_cast<std::size_t>(size));
  return std::string(place.substr(0, place.rfind('/')));
}

// Empty if it is not installed.
std::string ptxas_stand_in() {
  const Result<std::string> folder = own_folder();
  if (!folder) return {};
  std::string path = *folder + "/headrace-ptxas";
  return access(path.c_str(), X_OK) == 0 ? path : std::string();
}

}  // namespace

Result<SessionHandover> hand_over(const SessionFile& session) {
  const Result<std::string> folder = session_folder();
  if (!folder) return folder.error();
  sweep(*folder);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string path = *folder + "/session-" + std::to_string(getpid()) + "-" +
                           std::to_string(now.tv_sec) + std::to_string(now.tv_nsec);
  if (Result<void> written = write_session_file(path, session); !written) return written.error();
  UniqueFd lock(open(path.c_str(), O_RDONLY | O_NOFOLLOW));  // inherited, like the reservation
  if (!lock || flock(lock.get(), LOCK_SH) != 0) {
    return system_error(ErrorKind::internal, "cannot lock " + path, errno);
  }
  return SessionHandover{path, std::move(lock)};
}

Result<std::string> library_folder() {
  const char* given = std::getenv("HEADRACE_LIB");
  std::string folder = given == nullptr ? "" : given;
  if (folder.empty()) {
    Result<std::string> own = own_folder();
    if (!own) return own.error();
    const std::string above = own->substr(0, own->rfind('/'));
    folder = above + "/lib/client";
    if (access((folder + "/libcuda.so.1").c_str(), R_OK) != 0) {
      folder = above + "/lib/headrace";
    }
  }
  if (access((folder + "/libcuda.so.1").c_str(), R_OK) != 0) {
    return Error{ErrorKind::not_found, "there is no libcuda.so.1 of Headrace in " + folder,
                 "set HEADRACE_LIB to its folder, or install the client again"};
  }
  return folder;
}

void set_environment(const std::string& session_path, const std::string& libraries, bool software) {
  prepend("LD_LIBRARY_PATH", libraries);
  prepend("LIBRARY_PATH", libraries);  // where compilers look for -lcuda
  setenv("HEADRACE_SESSION", session_path.c_str(), 1);
  // Triton looks for libcuda in the linker's cache unless told otherwise.
  setenv("TRITON_LIBCUDA_PATH", libraries.c_str(), 1);
  // A software GPU runs PTX and nothing else; some front ends make machine code unless asked.
  // What the user has set stays.
  if (software) {
    setenv("CUPY_COMPILE_WITH_PTX", "1", 0);
    // Else CuPy sums with the CUB library: 28 MB of PTX, a minute for one kernel.
    setenv("CUPY_ACCELERATORS", "", 0);
    if (const std::string ptxas = ptxas_stand_in(); !ptxas.empty()) {
      setenv("TRITON_PTXAS_PATH", ptxas.c_str(), 0);
      setenv("TRITON_PTXAS_BLACKWELL_PATH", ptxas.c_str(), 0);
    }
  }
}

}  // namespace headrace::launcher
