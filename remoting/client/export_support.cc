// What the generated exports call beside the bodies. Nothing here throws or prints.
#include <cuda.h>

#include <new>
#include <string>

#include "client/process.h"

namespace headrace::client {
namespace {

// A worker looks for these words in the driver library that it is told to load: an appliance may be
// a client too, and must not lend its own borrowed GPUs.
[[gnu::used, gnu::section(".headrace.marker")]] const char marker[] = "headrace-client-library";

}  // namespace

void note_missing(const char* symbol) noexcept {
  try {
    log_line(std::string(symbol) +
             ": not carried by this release, answered CUDA_ERROR_NOT_SUPPORTED");
  } catch (...) {  // no memory for a log line
  }
}

void note_refused(const char* symbol, const char* reason) noexcept {
  try {
    log_line(std::string(symbol) + ": refused: " + reason);
  } catch (...) {  // no memory for a log line
  }
}

CUresult caught(const char* symbol) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    try {
      log_line(std::string(symbol) + ": " + error.what());
    } catch (...) {  // no memory for a log line
    }
    return CUDA_ERROR_UNKNOWN;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace headrace::client
