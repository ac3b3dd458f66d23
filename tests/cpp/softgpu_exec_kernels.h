// Hand-written kernels in the shape of generated code, for the tests of the execution runtime.
// Lanes are loops here. Kernels are dropped in midway by some tests: nothing in them may own
// anything.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/exec/executor.h"

namespace softgpu_test {

using headrace::softgpu::Dim3;
using headrace::softgpu::Launch;

// The number of live lanes of the warp.
inline std::uint32_t lanes(const sg_warp_env* env) {
  const std::uint32_t first = env->warp * SG_WARP_SIZE;
  const std::uint32_t left = env->threads - first;
  return left < SG_WARP_SIZE ? left : SG_WARP_SIZE;
}

inline std::uint64_t block_number(const sg_warp_env* env) {
  return env->ctaid[0] + std::uint64_t{env->nctaid[0]} *
                             (env->ctaid[1] + std::uint64_t{env->nctaid[1]} * env->ctaid[2]);
}

template <typename T>
T param(const sg_warp_env* env, std::size_t index) {
  return reinterpret_cast<const T*>(env->params)[index];
}

inline sg_kernel_desc describe_kernel(sg_kernel_fn entry, std::uint32_t flags = 0,
                                      std::uint32_t shared = 0) {
  sg_kernel_desc desc{};
  desc.abi_version = SG_ABI_VERSION;
  desc.flags = flags;
  desc.name = "test";
  desc.entry = entry;
  desc.static_shared = shared;
  desc.param_bytes = 64;
  return desc;
}

// A launch with up to eight 64-bit parameters; keeps what the Launch points to.
struct TestLaunch {
  TestLaunch(sg_kernel_fn entry, Dim3 grid, Dim3 block, std::vector<std::uint64_t> values = {},
             std::uint32_t flags = 0, std::uint32_t shared = 0)
      : desc(describe_kernel(entry, flags, shared)), params(std::move(values)) {
    launch.kernel = &desc;
    launch.grid = grid;
    launch.block = block;
    launch.params = reinterpret_cast<const std::uint8_t*>(params.data());
    launch.params_bytes = params.size() * sizeof(std::uint64_t);
  }
  headrace::softgpu::LaunchResult run(unsigned threads = 0) {
    return headrace::softgpu::run(launch, threads);
  }
  sg_kernel_desc desc;
  std::vector<std::uint64_t> params;
  Launch launch;
};

template <typename T>
std::uint64_t address(T* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

}  // namespace softgpu_test
