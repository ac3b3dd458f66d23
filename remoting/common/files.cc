#include "common/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/unique_fd.h"

namespace headrace {
namespace {

Result<std::string> read_whole(const std::string& path, std::size_t limit, bool secret) {
  // Non-blocking, so that a FIFO put there cannot hang a program.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    return system_error(errno == ENOENT ? ErrorKind::not_found : ErrorKind::invalid_input,
                        "cannot open " + path, errno);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return system_error(ErrorKind::internal, "cannot look at " + path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorKind::invalid_input, path + " is not a regular file", ""};
  }
  if (secret && (info.st_mode & 077) != 0) {
    return Error{ErrorKind::not_permitted, path + " may be used by others than its owner",
                 "chmod 600 " + path};
  }
  if (secret && info.st_uid != geteuid() && info.st_uid != 0) {
    return Error{ErrorKind::not_permitted, path + " belongs to another user", ""};
  }
  if (static_cast<std::size_t>(info.st_size) > limit) {
    return Error{ErrorKind::invalid_input, path + " is too large", ""};
  }
  std::string text(limit + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(ErrorKind::internal, "cannot read " + path, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > limit) return Error{ErrorKind::invalid_input, path + " is too large", ""};
  text.resize(size);
  return text;
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  return read_whole(path, limit, false);
}

Result<std::string> read_private_file(const std::string& path, std::size_t limit) {
  return read_whole(path, limit, true);
}

Result<void> write_private_file(const std::string& path, std::string_view text) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error(ErrorKind::internal, "cannot make " + path, errno);
  while (!text.empty()) {
    const ssize_t put = ::write(fd.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int failure = errno;
      ::unlink(path.c_str());
      return system_error(ErrorKind::internal, "cannot write " + path, failure);
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Result<void> make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error(ErrorKind::internal, "cannot make the folder " + path, errno);
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return system_error(ErrorKind::internal, "cannot look at " + path, errno);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return Error{ErrorKind::not_permitted, path + " is not a folder of yours alone",
                 "remove it, or set XDG_RUNTIME_DIR to a folder of yours"};
  }
  return {};
}

}  // namespace headrace
