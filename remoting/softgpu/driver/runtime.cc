#include "remoting/softgpu/driver/runtime.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/array.h"
#include "remoting/softgpu/driver/memory_pool.h"
#include "remoting/softgpu/driver/module.h"

namespace headrace::softgpu {
namespace {

std::atomic<Runtime*> the_runtime{nullptr};
// One byte on a page that the kernel wipes in a forked child, which has none of our threads.
std::atomic<unsigned char*> alive_byte{nullptr};
std::mutex initialize_mutex;

bool forked() {
  unsigned char* byte = alive_byte.load(std::memory_order_acquire);
  return byte != nullptr && *byte == 0;
}

bool make_alive_byte() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  if (madvise(page, 4096, MADV_WIPEONFORK) != 0) return false;
  unsigned char* byte = static_cast<unsigned char*>(page);
  *byte = 1;
  alive_byte.store(byte, std::memory_order_release);
  return true;
}

// The thread's state is freed by a key's destructor and not by a thread_local's: the latter runs on
// the main thread before exit handlers, which still make calls.
thread_local ThreadState* thread_state = nullptr;

pthread_key_t thread_key() {
  static pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, [](void* state) {
      thread_state = nullptr;  // other destructors of the thread may still make calls
      delete static_cast<ThreadState*>(state);
    });
    return made;
  }();
  return key;
}

}  // namespace

DeviceMemory* Device::memory() {
  std::lock_guard<std::mutex> guard(memory_mutex_);
  if (memory_ != nullptr || memory_failed_) return memory_.get();
  std::string why;
  std::unique_ptr<ChunkStore> store =
      ChunkStore::open(settings().state_dir, identity.index, identity.memory_bytes, &why);
  if (store != nullptr) memory_ = DeviceMemory::create(std::move(store));
  if (memory_ == nullptr) {
    memory_failed_ = true;
    log("device " + std::to_string(ordinal) +
        " has no memory: " + (why.empty() ? "no address space left" : why));
  }
  return memory_.get();
}

ThreadState& Runtime::thread() {
  if (thread_state == nullptr) {
    thread_state = new ThreadState();
    pthread_setspecific(thread_key(), thread_state);
  }
  return *thread_state;
}

bool Runtime::usable() {
  return the_runtime.load(std::memory_order_acquire) != nullptr && !forked();
}

CUresult Runtime::get(Runtime** out) {
  Runtime* runtime = the_runtime.load(std::memory_order_acquire);
  if (runtime == nullptr || forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (thread().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  *out = runtime;
  return CUDA_SUCCESS;
}

CUresult Runtime::initialize(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (the_runtime.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
  try {
    std::lock_guard<std::mutex> guard(initialize_mutex);
    if (the_runtime.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
    if (visible_devices().empty()) return CUDA_ERROR_NO_DEVICE;
    if (alive_byte.load() == nullptr && !make_alive_byte()) return CUDA_ERROR_OPERATING_SYSTEM;
    std::unique_ptr<Runtime> runtime(new Runtime());
    runtime->make_devices();
    the_runtime.store(runtime.release(), std::memory_order_release);
    return CUDA_SUCCESS;
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

void Runtime::make_devices() {
  for (int index : visible_devices()) {
    CUdevice ordinal = static_cast<CUdevice>(devices_.size());
    devices_.push_back(std::make_unique<Device>(ordinal, machine_devices()[index]));
    Device& device = *devices_.back();
    device.primary = std::make_shared<Context>(*this, device, true);
    contexts.add(device.primary);
    device.default_pool = device.current_pool = pools.add(MemoryPool::make_default(ordinal));
  }
}

Device* Runtime::device(CUdevice ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices_.size()) return nullptr;
  return devices_[ordinal].get();
}

CUresult Runtime::current(ContextPtr* out) {
  ThreadState& state = thread();
  if (state.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!state.contexts.back()->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = state.contexts.back();
  return CUDA_SUCCESS;
}

Device* Runtime::device_of(std::uint64_t address) {
  for (const std::unique_ptr<Device>& device : devices_) {
    DeviceMemory* memory = device->memory();
    if (memory != nullptr && memory->in_window(address)) return device.get();
  }
  return nullptr;
}

void Runtime::forget_objects_of(Context& context) {
  auto owned = [&](auto& object) { return object.context.lock().get() == &context; };
  streams.remove_if(owned);
  events.remove_if(owned);
  arrays.remove_if(owned);  // their memory goes with all other memory of the context
  functions.remove_if([&](Function& function) { return function.context_id() == context.id(); });
  modules.remove_if([&](Module& module) { return module.context_id() == context.id(); });
  host_memory_.free_all_of(context.handle);
  if (DeviceMemory* memory = context.device().memory()) memory->free_all_of(context.handle);
}

CUresult find_stream(Runtime& runtime, CUstream handle, StreamPtr* stream, ContextPtr* context) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    if (CUresult result = runtime.current(context)) return result;
    *stream =
        handle == CU_STREAM_PER_THREAD ? (*context)->thread_stream() : (*context)->legacy_stream();
    return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *stream = runtime.streams.find(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = (*stream)->context.lock();
  if (*context == nullptr || !(*context)->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return CUDA_SUCCESS;
}

}  // namespace headrace::softgpu
