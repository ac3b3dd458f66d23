// The CUDA driver as an application sees it: whatever libcuda.so.1 a path names.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace headrace::bench {

inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "headrace-bench: %s says %d\n", what, result);
  std::exit(1);
}

class Driver {
 public:
  explicit Driver(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      std::fprintf(stderr, "headrace-bench: %s\n", dlerror());
      std::exit(1);
    }
  }
  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

 private:
  void* library_;
};

#define HEADRACE_BENCH_CALL(driver, name, ...) \
  check((driver).find<decltype(::name)>(#name)(__VA_ARGS__), #name)

}  // namespace headrace::bench
