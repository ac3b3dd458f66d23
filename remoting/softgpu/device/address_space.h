// Addresses for what a program and its devices must agree on. Kernels place what nobody asks a
// place for just below the stack, so a region far from there is free in every process alike: an
// address that this process uses in it means nothing else in the program at the other end of a
// network.
#pragma once

#include <cstdint>

namespace headrace::softgpu {

// Reserves inaccessible addresses, aligned to 2 MiB, at a random place of that region; anywhere
// when it cannot be had. Null: no address space is left.
void* reserve_addresses(std::uint64_t bytes);

}  // namespace headrace::softgpu
