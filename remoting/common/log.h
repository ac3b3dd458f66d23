// A log file on request. Nothing is ever written to stdout or stderr by code that is loaded into
// other people's programs.
#pragma once

#include <string>
#include <string_view>

#include "common/errors.h"
#include "common/unique_fd.h"

namespace headrace {

class FileLog {
 public:
  FileLog() = default;  // off: lines are dropped
  // Appends to `path`, made 0600 where it does not exist.
  static Result<FileLog> open(const std::string& path);

  bool on() const { return static_cast<bool>(fd_); }
  // One line with time, process and thread; one write(2), so that lines of processes do not mix.
  void line(std::string_view text) const;

 private:
  UniqueFd fd_;
};

}  // namespace headrace
