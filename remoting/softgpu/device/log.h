// The software GPU's log: lines appended to the file named by HEADRACE_SOFTGPU_LOG, nothing without
// it. Never stdout or stderr: the library lives in foreign processes.
#pragma once

#include <string>

namespace headrace::softgpu {

void log_line(const std::string& path, const std::string& text);  // for use while settings are read
void log(const std::string& text);

}  // namespace headrace::softgpu
