#include "tests/cuda/driver.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tests/cuda/kernels.h"

Driver cu;

std::string load_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("no libcuda.so.1: ") + dlerror();
#define DRIVER_LOOK_UP(name)                                            \
  cu.name = reinterpret_cast<decltype(cu.name)>(dlsym(library, #name)); \
  if (cu.name == nullptr) return "libcuda.so.1 has no " #name;
  DRIVER_FUNCTIONS(DRIVER_LOOK_UP)
#undef DRIVER_LOOK_UP
  return "";
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  cu.cuGetErrorName(result, &name);
  return (name != nullptr ? name : "?") + std::string(" (") + std::to_string(result) + ")";
}

Primary::Primary() {
  CU_OK(cu.cuDeviceGet(&device, 0));
  CU_OK(cu.cuDevicePrimaryCtxRetain(&context, device));
  CU_OK(cu.cuCtxSetCurrent(context));
}

Primary::~Primary() {
  CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
  CU_IS(CUDA_SUCCESS, cu.cuCtxSetCurrent(nullptr));
  CU_IS(CUDA_SUCCESS, cu.cuDevicePrimaryCtxRelease_v2(device));
}

Buffer::Buffer(std::size_t bytes) { CU_OK(cu.cuMemAlloc_v2(&address_, bytes)); }
Buffer::~Buffer() { CU_IS(CUDA_SUCCESS, cu.cuMemFree_v2(address_)); }

Kernels::Kernels() { CU_OK(cu.cuModuleLoadData(&module, kKernels)); }
Kernels::~Kernels() { CU_IS(CUDA_SUCCESS, cu.cuModuleUnload(module)); }

CUfunction Kernels::operator[](const char* name) const {
  CUfunction function = nullptr;
  CU_OK(cu.cuModuleGetFunction(&function, module, name));
  return function;
}

CUstream make_stream(unsigned flags) {
  CUstream stream = nullptr;
  CU_OK(cu.cuStreamCreate(&stream, flags));
  return stream;
}

CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                std::vector<void*> params, unsigned shared) {
  return cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, params.data(),
                           nullptr);
}

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::uint8_t> out(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::uint8_t& byte : out) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return out;
}

int run_child(const char* scenario) {
  std::string name = scenario, option = "--child", self = "/proc/self/exe";
  char* arguments[] = {self.data(), option.data(), name.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, environ) != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
