// Copies between this process and the server, in pieces that fit a frame.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "client/state.h"

namespace headrace::client {

inline constexpr std::size_t max_piece = 1'048'000;  // of a copy, in one frame (PROTOCOL.md §7.5)

enum class Side { host, device };

// On which side an address lies, as far as CUDA's unified addressing tells. Memory that nobody has
// allocated or registered through us is the program's own.
Side side_of(std::uint64_t address);

// The side of an address that the program has named as the device's.
Side device_side(std::uint64_t address);
// Whether the address is in host memory that the server has, too: copies of it are the server's.
bool is_shared(std::uint64_t address);

// Before the side of a copy's source is asked for: a function of the program that has not run yet
// may write there, and then the copy is the server's, in its turn in the stream.
CUresult share_for_turn(std::uint64_t source);

// What is known here of a run of device memory that a call names.
enum class Target { inside, outside, unknown };
Target target_of(std::uint64_t address, std::uint64_t size);

// The bytes may be changed when this returns. Errors of the destination come at once where the
// address is not known here, and otherwise as deferred errors.
CUresult upload(Context& context, std::uint64_t destination, const void* source, std::size_t size,
                std::uint64_t stream);
// The bytes are there when this returns.
CUresult download(Context& context, void* destination, std::uint64_t source, std::size_t size,
                  std::uint64_t stream);
// Before the server is given addresses of these: it must have what the program has written there.
CUresult push_for(Side first, Side second);
// Any direction. `stream` is the number that travels.
CUresult copy(Context& context, std::uint64_t destination, Side to, std::uint64_t source, Side from,
              std::size_t size, std::uint64_t stream);

// Waits until a stream's work so far is done.
CUresult synchronise(Context& context, std::uint64_t stream);

}  // namespace headrace::client
