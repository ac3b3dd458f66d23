// The options of load and link calls: what travels, and the logs and times that are written back
// into the program's buffers and option words.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gen/calls.h"

namespace headrace::client {

class JitOptions {
 public:
  // Keeps the pointers: the words and buffers must outlive this object, as CUDA demands.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  const std::vector<calls::JitOption>& wire() const { return wire_; }

  // Logs end with a zero inside the buffer; the size words then say how many characters there are.
  void write_back(std::span<const std::uint8_t> info, std::span<const std::uint8_t> error,
                  float milliseconds) const;

 private:
  struct Log {
    char* buffer = nullptr;
    void** size_word = nullptr;
    unsigned size = 0;

    CUresult check() const;
    void write(std::span<const std::uint8_t> text) const;
  };

  std::vector<calls::JitOption> wire_;
  Log info_;
  Log error_;
  void** wall_time_ = nullptr;
};

// What the server says about code that it does not take, into the log file (HEADRACE_LOG).
void log_refusal(const char* what, std::span<const std::uint8_t> text);

}  // namespace headrace::client
