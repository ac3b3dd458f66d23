// What the bodies of NVML's functions share: when they may answer, and how they put an answer.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "client/nvml/types.h"
#include "client/nvml/watch.h"

#define HEADRACE_NVML extern "C" [[gnu::visibility("default")]]

namespace headrace::client::nvml {

bool initialised();

// Handles are addresses of these bytes: valid as long as the library is loaded.
inline constexpr std::size_t max_devices = 64;
extern char handle_bytes[max_devices];

// No exception crosses C.
template <typename Body>
Return guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (...) {
    return unknown;
  }
}

template <typename Body>
Return with_library(Body&& body) noexcept {
  if (!initialised()) return uninitialized;
  return guarded([&]() -> Return {
    const Reservation* const known = reservation();
    return known == nullptr ? gpu_is_lost : body(*known);
  });
}

template <typename Body>
Return with_device(const void* handle, Body&& body) noexcept {
  return with_library([&](const Reservation& known) -> Return {
    const char* const at = static_cast<const char*>(handle);
    for (std::size_t i = 0; i < known.devices.size() && i < max_devices; ++i) {
      if (at == &handle_bytes[i]) return body(known.devices[i], i);
    }
    return invalid_argument;
  });
}

inline Return put_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return invalid_argument;
  if (text.size() + 1 > size) return insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return success;
}

template <typename T>
Return put(T* out, T value) {
  if (out == nullptr) return invalid_argument;
  *out = value;
  return success;
}

}  // namespace headrace::client::nvml
