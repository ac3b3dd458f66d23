// The option arrays of module loads and links, and the logs that go back through them.
#pragma once

#include <cuda.h>

#include <string>

#include "remoting/softgpu/compiler/client.h"

namespace headrace::softgpu {

class JitOptions {
 public:
  JitOptions() = default;
  // INVALID_VALUE for an option that does not exist.
  static CUresult read(unsigned count, CUjit_option* options, void** values, JitOptions* out);

  // The most registers that a thread may have; 0: no limit.
  unsigned max_registers() const { return max_registers_; }
  bool wants_error_log() const { return error_buffer_ != nullptr; }
  void info(const std::string& text) { info_log_ += text; }
  void error(const std::string& text);
  // Writes both logs into the caller's buffers, never beyond their sizes, and their lengths and the
  // wall time into the option values.
  void write_back(float milliseconds);

 private:
  struct Buffer {
    char* at = nullptr;
    unsigned size = 0;
    void** length = nullptr;
    void write(const std::string& text) const;
  };
  char* error_buffer_ = nullptr;
  Buffer info_buffer_, error_target_;
  void** wall_time_ = nullptr;
  unsigned max_registers_ = 0;
  std::string info_log_, error_log_;
};

CUresult result_of(const JitError& error);
// "line 7: ...", where a line is known.
std::string text_of(const JitError& error);

// Why this thread's last load, link or look-up failed (driverabi/refusals.h).
void remember_refusal(const std::string& text);
const char* last_refusal();

}  // namespace headrace::softgpu
