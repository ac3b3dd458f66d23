// The shadow state: what this library knows about devices, contexts, streams, events and code
// without asking the server. Objects are shared by the threads of the program; what can change is
// atomic or has its lock next to it.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "driverabi/arrays.h"
#include "driverabi/kernel_layout.h"

namespace headrace::client {

struct Context;

// One device as the program sees it. Never destroyed.
struct Device {
  static constexpr int max_attributes = 512;

  int ordinal = 0;       // as the program counts (CUDA_VISIBLE_DEVICES)
  int wire_ordinal = 0;  // as the server counts
  std::string name;
  std::array<std::uint8_t, 16> uuid{};
  int pci_domain = 0;
  int pci_bus = 0;
  int pci_device = 0;
  std::uint64_t total_memory = 0;
  int priority_least = 0;
  int priority_greatest = 0;
  bool software = false;
  std::array<std::int32_t, max_attributes> attributes{};
  std::bitset<max_attributes> known_attributes;

  Context* primary = nullptr;
  std::mutex primary_mutex;
  unsigned primary_references = 0;  // under primary_mutex

  std::mutex pool_mutex;
  std::uint64_t default_pool = 0;  // under pool_mutex: handle, 0 until asked for
  std::uint64_t current_pool = 0;  // under pool_mutex: what cuDeviceSetMemPool set, 0 the default

  std::int32_t attribute(CUdevice_attribute which) const {
    return attributes[static_cast<std::size_t>(which)];
  }
  std::uint32_t sm() const {
    return static_cast<std::uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  }
};

// Never destroyed, since threads keep pointers on their stacks of current contexts.
struct Context {
  Context(std::uint64_t handle, Device* of, bool is_primary)
      : id(handle), device(of), primary(is_primary) {}

  const std::uint64_t id;
  Device* const device;
  const bool primary;
  std::atomic<bool> alive{false};  // a primary context lives while it is retained
  std::atomic<int> sticky{0};      // the error that destroyed it; CUresult
  std::atomic<unsigned> flags{0};
  std::atomic<unsigned> life{0};      // counts resets: streams of an earlier life are gone
  std::atomic<int> cache_config{0};   // CUfunc_cache
  std::atomic<int> shared_config{0};  // CUsharedconfig
  std::atomic<int> attachments{0};    // cuCtxAttach beyond the creation itself
  unsigned api_version = 3020;

  // Uploads that a program may take for done, though they are only under way in the legacy stream:
  // other streams must be made to wait for them (streams.h).
  std::atomic<std::uint64_t> uploads{0};
  std::mutex upload_mutex;
  std::uint64_t upload_event = 0;  // under upload_mutex: an event of ours, 0 not made yet
  unsigned upload_event_life = 0;  // under upload_mutex: the context's life it belongs to

  CUcontext handle() const { return reinterpret_cast<CUcontext>(id); }
};

struct Stream {
  std::uint64_t id = 0;
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::atomic<std::uint64_t> seen_uploads{0};  // of its context's
};

struct Array {
  std::uint64_t id = 0;
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  driverabi::ArrayShape shape;
};

struct Event {
  std::uint64_t id = 0;
  Context* context = nullptr;
  unsigned flags = 0;
};

// A kernel as it can be launched: a function of a module or a kernel of a library.
struct Function {
  std::uint64_t id = 0;
  std::string name;
  Context* context = nullptr;  // null for kernels of libraries: they have no context of their own
  std::uint64_t module = 0;    // one of these two
  std::uint64_t library = 0;
  bool layout_known = false;
  std::vector<driverabi::ParamSlot> params;
  std::uint32_t param_bytes = 0;

  std::mutex mutex;
  std::map<int, int> attributes;            // under mutex; by CUfunction_attribute
  std::atomic<int> max_threads{0};          // 0 not known
  std::atomic<int> max_dynamic_shared{-1};  // -1 not known

  CUfunction handle() const { return reinterpret_cast<CUfunction>(id); }
};

// The kernels of an image as far as this side has read it; null when it could not.
using ImageKernels = std::shared_ptr<const std::vector<driverabi::KernelLayout>>;

struct Global {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

// What can be asked for by name, so that the same name gives the same answer.
struct CodeTable {
  std::mutex mutex;
  std::unordered_map<std::string, std::uint64_t> functions;  // under mutex: handles
  std::unordered_map<std::string, Global> globals;           // under mutex
  ImageKernels kernels;                                      // not changed after the load

  const driverabi::KernelLayout* layout_of(std::string_view name) const {
    if (kernels == nullptr) return nullptr;
    for (const driverabi::KernelLayout& kernel : *kernels) {
      if (kernel.name == name) return &kernel;
    }
    return nullptr;
  }
};

struct Module {
  std::uint64_t id = 0;
  Context* context = nullptr;
  std::uint64_t library = 0;  // 0: loaded by itself
  CodeTable code;
};

struct Library {
  std::uint64_t id = 0;
  CodeTable code;
  std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> modules;  // under mutex: by context handle
};

}  // namespace headrace::client
