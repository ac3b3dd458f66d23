#include "driverabi/export_tables.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "driverabi/context_storage.h"

namespace headrace::driverabi {
namespace {

// CUresult values that slots answer with.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kInvalidHandle = 400;
constexpr int kNotSupported = 801;
constexpr int kUnknown = 999;

constexpr int kTables = 11;
constexpr int kSlots = 64;  // of a table that does not state its size

using Uuid = std::array<std::uint8_t, 16>;

struct TableSpec {
  Uuid uuid;
  const char* name;
  int sized_slots;  // > 0: slot 0 holds the table's size in bytes, for this many slots
};

constexpr int kRuntime = 0;
constexpr int kToolsThread = 1;
constexpr int kToolsBuffers = 2;
constexpr int kStorage = 3;
constexpr int kContextChecks = 4;
constexpr int kIntegrity = 5;
constexpr int kRuntimeNewer = 6;
constexpr int kMatmul = 7;
constexpr int kProfilerFetched = 8;
constexpr int kProfilerVersion = 9;
constexpr int kFft = 10;

constexpr TableSpec kSpecs[kTables] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     "runtime interface",
     13},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     "tools thread state",
     4},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     "tools callback buffers",
     7},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     "context storage",
     0},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     "context checks",
     4},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     "integrity check",
     3},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     "runtime 13.4 and later, matmul library",
     0},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     "matmul library",
     0},
    {{0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed,
      0x7f},
     "profiling library",
     0},
    {{0xd7, 0xbd, 0x8a, 0xf8, 0xe7, 0xac, 0xca, 0x4a, 0xbd, 0xbc, 0xfb, 0x1f, 0x1b, 0x3f, 0xcf,
      0x33},
     "profiling library's version",
     0},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     "fft library",
     0},
};

// State of the process, never destroyed: runtimes call us from their exit handlers.
struct State {
  std::array<std::array<void*, kSlots>, kTables> slots{};
  ContextStorage storage;
  // Handed out to the runtime, which only wants lasting zeroed memory; units look like 8 bytes.
  std::array<std::uint64_t, 4096> first_buffer{};
  std::array<std::uint64_t, 64> second_buffer{};
};

std::atomic<const DriverHooks*> g_hooks{nullptr};

const DriverHooks& hooks() { return *g_hooks.load(std::memory_order_acquire); }

State& state();

void log_line(const char* format, const char* name, int slot) {
  char line[160];
  std::snprintf(line, sizeof line, format, name, slot);
  hooks().log(line);
}

void* context_or_current(void* context) {
  return context != nullptr ? context : hooks().current_context();
}

// A slot that no studied runtime calls. Said in the log, since a new release may give it a meaning.
template <int table, int slot>
std::uint64_t unknown_slot() {
  log_line("export table '%s': unknown slot %d called, answered 0", kSpecs[table].name, slot);
  return kSuccess;
}

int runtime_primary_context(void** context, int device) {
  return context == nullptr ? kInvalidValue : hooks().primary_context(context, device);
}

int runtime_load_module(void** module, const void* wrapper) {
  return module == nullptr || wrapper == nullptr ? kInvalidValue
                                                 : hooks().load_module(module, wrapper);
}

int answer_zero() { return kSuccess; }

int answer_not_supported() { return kNotSupported; }

int tools_thread_state(void** out) {
  if (out != nullptr) *out = nullptr;
  return kSuccess;
}

int tools_first_buffer(void** out, std::size_t* length) {
  *out = state().first_buffer.data();
  *length = 1024;
  return kSuccess;
}

int tools_second_buffer(void** out, std::size_t* length) {
  *out = state().second_buffer.data();
  *length = 14;
  return kSuccess;
}

int storage_put(void* context, void* key, void* value, ContextStorage::Destructor destructor) {
  void* owner = context_or_current(context);
  if (owner == nullptr || !hooks().usable()) return kInvalidHandle;
  try {
    state().storage.put(owner, key, value, destructor);
  } catch (...) {
    return kUnknown;
  }
  return kSuccess;
}

int storage_delete(void* context, void* key) {
  if (!hooks().usable()) return kInvalidHandle;
  return state().storage.erase(context_or_current(context), key) ? kSuccess : kInvalidHandle;
}

// A miss must be an error: success with a null value crashes the runtime.
int storage_get(void** value, void* context, void* key) {
  if (value == nullptr || !hooks().usable()) return kInvalidHandle;
  return state().storage.get(context_or_current(context), key, value) ? kSuccess : kInvalidHandle;
}

int context_check(void*, std::uint32_t* first, void**) {
  if (first != nullptr) *first = 0;
  return kSuccess;
}

int integrity_check(std::uint32_t version, std::uint64_t seconds, std::uint8_t* out) {
  if (out == nullptr) return kInvalidValue;
  try {
    std::vector<DeviceIdentity> devices;
    for (int device = 0; device < hooks().device_count(); ++device) {
      DeviceIdentity identity;
      if (hooks().device_identity(device, &identity)) devices.push_back(identity);
    }
    State& tables = state();
    IntegrityQuestion question;
    question.driver_version = static_cast<std::uint32_t>(hooks().driver_version());
    question.version = version;
    question.process = static_cast<std::uint32_t>(getpid());
    question.thread = static_cast<std::uint32_t>(pthread_self());
    question.runtime_table = reinterpret_cast<std::uintptr_t>(tables.slots[kRuntime].data());
    question.check_table = reinterpret_cast<std::uintptr_t>(tables.slots[kIntegrity].data());
    question.check_function = reinterpret_cast<std::uintptr_t>(tables.slots[kIntegrity][1]);
    question.seconds = seconds;
    const std::array<std::uint8_t, 16> answer = integrity_answer(question, devices);
    std::memcpy(out, answer.data(), answer.size());
  } catch (...) {
    return kUnknown;
  }
  return kSuccess;
}

int newer_runtime_slot4(void*, void** out) {
  if (out != nullptr) *out = nullptr;
  return kSuccess;
}

template <int table, int... slot>
void fill_unknown(State& target, std::integer_sequence<int, slot...>) {
  ((target.slots[table][slot] = reinterpret_cast<void*>(&unknown_slot<table, slot>)), ...);
}

template <int... table>
void fill_all_unknown(State& target, std::integer_sequence<int, table...>) {
  (fill_unknown<table>(target, std::make_integer_sequence<int, kSlots>{}), ...);
}

template <typename Function>
void set(State& target, int table, int slot, Function* function) {
  target.slots[table][slot] = reinterpret_cast<void*>(function);
}

State* make_state() {
  State* made = new State;
  fill_all_unknown(*made, std::make_integer_sequence<int, kTables>{});
  for (int table = 0; table < kTables; ++table) {
    if (kSpecs[table].sized_slots > 0) {
      made->slots[table][0] =
          reinterpret_cast<void*>(std::uintptr_t{8} * kSpecs[table].sized_slots);
    }
  }
  set(*made, kRuntime, 2, runtime_primary_context);
  set(*made, kRuntime, 6, runtime_load_module);
  set(*made, kRuntime, 7, answer_zero);   // told at exit, after the unload
  set(*made, kRuntime, 12, answer_zero);  // once at start, from 13.1
  set(*made, kToolsThread, 2, tools_thread_state);
  set(*made, kToolsBuffers, 2, tools_first_buffer);
  set(*made, kToolsBuffers, 6, tools_second_buffer);
  set(*made, kStorage, 0, storage_put);
  set(*made, kStorage, 1, storage_delete);
  set(*made, kStorage, 2, storage_get);
  set(*made, kContextChecks, 2, context_check);
  set(*made, kContextChecks, 3, answer_zero);
  set(*made, kIntegrity, 1, integrity_check);
  set(*made, kRuntimeNewer, 4, newer_runtime_slot4);
  set(*made, kMatmul, 4, answer_not_supported);
  set(*made, kProfilerVersion, 3, answer_zero);
  // Enumerates a module's functions by callback; how is not understood, so the library gets a clear
  // error instead of a null call.
  set(*made, kFft, 7, answer_not_supported);
  return made;
}

State& state() {
  static State* const made = make_state();
  return *made;
}

void describe(const std::uint8_t* uuid, char (&text)[33]) {
  for (int i = 0; i < 16; ++i) std::snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

}  // namespace

void set_driver_hooks(const DriverHooks* new_hooks) {
  g_hooks.store(new_hooks, std::memory_order_release);
}

int get_export_table(const void** table, const void* uuid) {
  if (table == nullptr || uuid == nullptr) return kInvalidValue;
  try {
    for (int i = 0; i < kTables; ++i) {
      if (std::memcmp(kSpecs[i].uuid.data(), uuid, 16) == 0) {
        *table = state().slots[i].data();
        return kSuccess;
      }
    }
  } catch (...) {
    return kUnknown;
  }
  char text[33];
  describe(static_cast<const std::uint8_t*>(uuid), text);
  char line[96];
  std::snprintf(line, sizeof line, "export table %s: unknown, refused", text);
  hooks().log(line);
  *table = nullptr;
  return kInvalidValue;
}

void destroy_context_storage(void* context) { state().storage.destroy_all(context); }

}  // namespace headrace::driverabi
