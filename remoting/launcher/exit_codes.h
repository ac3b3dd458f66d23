// What `headrace` ends with. `run` becomes the program, whose code is then its own; codes 125 to
// 127 are the launcher's, as with env(1) and docker.
#pragma once

#include "common/errors.h"

namespace headrace::launcher {

enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,         // tried and failed
  exit_usage = 2,          // the command line is wrong
  exit_not_connected = 3,  // no server answers, or the connection was lost
  exit_denied = 4,         // certificate or policy
  exit_launcher = 125,     // run: no GPU, whatever the reason
  exit_cannot_execute = 126,
  exit_not_found = 127,
};

// For commands other than run.
constexpr ExitCode exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::unavailable:
    case ErrorKind::timed_out:
    case ErrorKind::closed:
      return exit_not_connected;
    case ErrorKind::not_permitted:
      return exit_denied;
    default:
      return exit_failed;
  }
}

}  // namespace headrace::launcher
