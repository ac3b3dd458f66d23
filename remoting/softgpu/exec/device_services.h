// printf, assert, malloc and free of kernels; kernel_abi.h says what they do.
#pragma once

#include <cstdint>

#include "softgpu/exec/kernel_abi.h"

namespace headrace::softgpu::exec {

void print(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* formats,
           const std::uint64_t* arguments, std::int32_t* results);
[[gnu::noreturn]] void assert_fail(sg_warp_env* env, std::uint32_t mask,
                                   const std::uint64_t* messages, const std::uint64_t* files,
                                   const std::uint32_t* lines, const std::uint64_t* functions);
void allocate(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* sizes,
              std::uint64_t* addresses);
void release(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* addresses);

}  // namespace headrace::softgpu::exec
