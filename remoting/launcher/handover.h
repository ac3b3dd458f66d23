// What the program is given: a session file, an environment, and the reservation's descriptor.
#pragma once

#include <string>

#include "common/errors.h"
#include "common/session_file.h"
#include "common/unique_fd.h"

namespace headrace::launcher {

struct SessionHandover {
  std::string path;
  UniqueFd lock;  // held as long as anybody has the descriptor: then the file may be swept away
};

// Writes the session file into the user's own folder, after sweeping away those of programs that
// have ended.
Result<SessionHandover> hand_over(const SessionFile& session);

// Where our libraries are: HEADRACE_LIB, or next to this program.
Result<std::string> library_folder();

// Variables of the program: library path, session file, and what front ends need on a software GPU.
void set_environment(const std::string& session_path, const std::string& libraries, bool software);

}  // namespace headrace::launcher
