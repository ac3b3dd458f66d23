// The undocumented function tables that cuGetExportTable hands to NVIDIA's runtimes and libraries.
// All of them are answered here from the host library's own state, reached through DriverHooks.
// Facts: which tables exist, who asks for them and what each slot must do is listed in README.md.
#pragma once
#include <cstdint>

#include "driverabi/integrity.h"

namespace headrace::driverabi {

// Filled in by the library that exports cuGetExportTable. Results are CUresult values as int, so
// that this library needs no CUDA header. Every hook must be set, and must not throw.
struct DriverHooks {
  // False in a forked child and after the library has shut down: storage look-ups then miss.
  bool (*usable)();
  int (*driver_version)();
  int (*device_count)();
  bool (*device_identity)(int device, DeviceIdentity* out);
  // The handle that the device's primary context has or will have; takes no reference.
  int (*primary_context)(void** context, int device);
  void* (*current_context)();  // of the calling thread; null if none
  // Loads a module from a fatbin wrapper, as cuModuleLoadFatBinary does (runtimes before 12.0).
  int (*load_module)(void** module, const void* fatbin_wrapper);
  // One line without newline, for the library's log on request. Called for unknown tables and
  // slots.
  void (*log)(const char* line);
};

// Before the first get_export_table; the hooks must stay valid for the life of the process.
void set_driver_hooks(const DriverHooks* hooks);

// cuGetExportTable: a table of slots for a UUID (16 bytes in memory order), or an error.
int get_export_table(const void** table, const void* uuid);

// To be called when a context is reset or destroyed: runs the destructors of what runtimes stored
// on it.
void destroy_context_storage(void* context);

}  // namespace headrace::driverabi
