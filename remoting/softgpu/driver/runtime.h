// The process's state of the software GPU: devices, handle tables, the current context of each
// thread, and the guards through which every entry point goes.
//
// Nothing here is ever destroyed: calls and threads may run while the process exits.
#pragma once

#include <cuda.h>

#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

#include "remoting/softgpu/compiler/client.h"
#include "remoting/softgpu/device/identity.h"
#include "remoting/softgpu/driver/context.h"
#include "remoting/softgpu/driver/device_memory.h"
#include "remoting/softgpu/driver/handles.h"
#include "remoting/softgpu/driver/host_memory.h"
#include "remoting/softgpu/driver/watch.h"

namespace headrace::softgpu {

struct Array;
class Function;
class Kernel;
class Library;
class LinkState;
class MemoryPool;
struct PhysicalMemory;

class Device {
 public:
  Device(CUdevice ordinal, const DeviceIdentity& identity) : ordinal(ordinal), identity(identity) {}

  const CUdevice ordinal;
  const DeviceIdentity& identity;
  const Limits& limits() const { return *identity.limits; }

  Condition& condition() { return Condition::of(identity.index); }
  // Opened on first use; nullptr when the store cannot be had (the log says why).
  DeviceMemory* memory();

  ContextPtr primary;
  std::mutex primary_mutex;  // guards primary_references and primary_flags
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  std::uint64_t default_pool = 0, current_pool = 0;

 private:
  std::mutex memory_mutex_;
  std::unique_ptr<DeviceMemory> memory_;
  bool memory_failed_ = false;
};

struct ThreadState {
  std::vector<ContextPtr> contexts;                      // back() is current
  std::unordered_map<std::uint64_t, StreamPtr> streams;  // per-thread streams by context id
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_callback = false;  // CUDA calls are not permitted there
};

class Runtime {
 public:
  // NOT_INITIALIZED before cuInit and in the forked child of an initialised process.
  static CUresult get(Runtime** out);
  static CUresult initialize(unsigned flags);
  static bool usable();
  static ThreadState& thread();

  std::vector<std::unique_ptr<Device>>& devices() { return devices_; }
  Device* device(CUdevice ordinal);
  Engine& engine() { return engine_; }
  Watch& watch() { return watch_; }
  CompilerClient& compiler() { return compiler_; }
  HostMemory& host_memory() { return host_memory_; }

  // Current context of the thread, alive; INVALID_CONTEXT when there is none.
  CUresult current(ContextPtr* out);
  // The device whose memory the address lies in.
  Device* device_of(std::uint64_t address);
  void forget_objects_of(Context& context);

  HandleTable<Context> contexts{HandleKind::context};
  HandleTable<Stream> streams{HandleKind::stream};
  HandleTable<Event> events{HandleKind::event};
  HandleTable<Module> modules{HandleKind::module};
  HandleTable<Library> libraries{HandleKind::library};
  HandleTable<Kernel> kernels{HandleKind::kernel};
  HandleTable<Function> functions{HandleKind::function};
  HandleTable<MemoryPool> pools{HandleKind::pool};
  HandleTable<LinkState> links{HandleKind::link};
  HandleTable<Array> arrays{HandleKind::array};
  HandleTable<PhysicalMemory> physical{HandleKind::physical};
  std::mutex physical_mutex;  // guards what is counted in them, and which of them there are

 private:
  Runtime() = default;
  void make_devices();

  std::vector<std::unique_ptr<Device>> devices_;
  Engine engine_;
  Watch watch_;
  CompilerClient compiler_;
  HostMemory host_memory_;
};

// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL or a handle. NULL is the legacy stream here: the
// _ptsz exports have replaced it where it means the other one.
CUresult find_stream(Runtime& runtime, CUstream handle, StreamPtr* stream, ContextPtr* context);

// Entry points run inside these: no exception crosses into C, forked children are refused.
template <typename Body>
CUresult with_runtime(Body&& body) noexcept {
  try {
    Runtime* runtime = nullptr;
    if (CUresult result = Runtime::get(&runtime)) return result;
    return body(*runtime);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// With the thread's current context, which has not failed.
template <typename Body>
CUresult with_context(Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    ContextPtr context;
    if (CUresult result = runtime.current(&context)) return result;
    if (CUresult result = context->reported_error()) return result;
    return body(runtime, context);
  });
}

// With a stream and its context, which has not failed.
template <typename Body>
CUresult with_stream(CUstream handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    StreamPtr stream;
    ContextPtr context;
    if (CUresult result = find_stream(runtime, handle, &stream, &context)) return result;
    if (CUresult result = context->reported_error()) return result;
    return body(runtime, context, stream);
  });
}

}  // namespace headrace::softgpu
