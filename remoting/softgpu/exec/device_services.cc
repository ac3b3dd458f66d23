// What kernels ask of the runtime beyond scheduling: printf, assert, malloc and free.
//
// Device memory is read as kernel code: an address that is not mapped drops the warp there, so
// nothing may be owned and no function of the C library may be called. The rest happens as the
// scheduler, where a warp is never dropped.
#include "softgpu/exec/device_services.h"

#include <bit>
#include <cstring>
#include <exception>
#include <span>
#include <string>

#include "softgpu/exec/block_scheduler.h"
#include "softgpu/exec/print_format.h"

namespace headrace::softgpu::exec {

namespace {

constexpr std::size_t kFormatBytes = 2048;
constexpr std::size_t kTextBytes = 4096;  // of all %s together
constexpr std::size_t kArguments = 32;    // as CUDA has it

WarpSlot& slot_of(sg_warp_env* env) { return *static_cast<WarpSlot*>(env->block); }
const Launch& launch_of(sg_warp_env* env) { return slot_of(env).block->scheduler->launch(); }

[[noreturn]] void illegal(sg_warp_env* env, std::uint64_t address) {
  env->services->trap(env, SG_TRAP_ILLEGAL_ADDRESS, address);
  __builtin_unreachable();
}

// Bytes from `address` to the end of the window that it lies in; 0: in none.
std::uint64_t reach(const sg_warp_env* env, std::uint64_t address) {
  const std::uint64_t shared = reinterpret_cast<std::uint64_t>(env->shared);
  const std::uint64_t local = reinterpret_cast<std::uint64_t>(env->local);
  const Window windows[] = {
      {env->arena_lo, env->arena_hi},
      {env->pinned_lo, env->pinned_hi},
      {shared, shared + env->shared_bytes},
      {local, local + std::uint64_t{SG_WARP_SIZE} * env->local_bytes},
  };
  for (const Window& window : windows)
    if (address >= window.lo && address < window.hi) return window.hi - address;
  const WarpSlot& slot = *static_cast<const WarpSlot*>(env->block);
  for (const Window& window : slot.block->scheduler->launch().registered)
    if (address >= window.lo && address < window.hi) return window.hi - address;
  return 0;
}

// Copies a text with its end, cut to `room` bytes; returns what it takes.
std::size_t copy_text(sg_warp_env* env, std::uint64_t address, char* to, std::size_t room) {
  std::uint64_t left = reach(env, address);
  const volatile char* from = reinterpret_cast<const volatile char*>(address);
  for (std::size_t i = 0; i + 1 < room; ++i) {
    if (left-- == 0) illegal(env, address + i);
    to[i] = from[i];
    if (to[i] == 0) return i + 1;
  }
  to[room - 1] = 0;
  return room;
}

std::uint64_t copy_word(sg_warp_env* env, std::uint64_t address, unsigned bytes) {
  if (reach(env, address) < bytes) illegal(env, address);
  std::uint64_t value = 0;
  const volatile char* from = reinterpret_cast<const volatile char*>(address);
  for (unsigned i = 0; i < bytes; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  return value;
}

// One lane's printf, taken out of device memory.
struct Printed {
  char format[kFormatBytes];
  char texts[kTextBytes];
  std::size_t text_bytes;
  PrintArgument arguments[kArguments];
  std::size_t count;
  std::uint64_t next;  // address of the next argument

  void take_argument(sg_warp_env* env, bool wide, bool text) {
    if (count == kArguments) return;
    const unsigned bytes = wide ? 8 : 4;
    next = (next + bytes - 1) & ~std::uint64_t{bytes - 1};
    PrintArgument& argument = arguments[count++];
    argument.bits = copy_word(env, next, bytes);
    argument.text = nullptr;
    next += bytes;
    if (!text || argument.bits == 0 || text_bytes + 1 >= kTextBytes) return;
    argument.text = texts + text_bytes;
    text_bytes += copy_text(env, argument.bits, texts + text_bytes, kTextBytes - text_bytes);
  }

  void take(sg_warp_env* env, std::uint64_t format_address, std::uint64_t arguments_address) {
    count = text_bytes = 0;
    next = arguments_address;
    copy_text(env, format_address, format, kFormatBytes);
    for (const char* at = format; *at != 0;) {
      Conversion conversion;
      const char* behind = *at == '%' ? parse_conversion(at + 1, conversion) : nullptr;
      at = behind != nullptr ? behind : at + 1;
      if (behind == nullptr || conversion.type == '%') continue;
      if (conversion.width_argument) take_argument(env, false, false);
      if (conversion.precision_argument) take_argument(env, false, false);
      take_argument(env, conversion.wide(), conversion.text());
    }
  }
};

void write_print(sg_warp_env* env, const Printed& printed) {
  KernelOutput* output = launch_of(env).output;
  if (output == nullptr) return;
  try {
    output->print(format_print(printed.format, std::span(printed.arguments, printed.count)));
  } catch (const std::exception&) {  // no memory for it: as when CUDA's buffer is full
  }
}

void write_assertion(sg_warp_env* env, unsigned lane, const char* message, const char* file,
                     std::uint32_t line, const char* function) {
  KernelOutput* output = launch_of(env).output;
  if (output == nullptr) return;
  const std::uint32_t thread = env->warp * SG_WARP_SIZE + lane;
  const std::uint32_t x = thread % env->ntid[0], row = thread / env->ntid[0];
  auto triple = [](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return "[" + std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(c) + "]";
  };
  try {
    output->assertion(std::string(file) + ":" + std::to_string(line) + ": " + function +
                      ": block: " + triple(env->ctaid[0], env->ctaid[1], env->ctaid[2]) +
                      ", thread: " + triple(x, row % env->ntid[1], row / env->ntid[1]) +
                      " Assertion `" + message + "` failed.\n");
  } catch (const std::exception&) {  // no memory for it
  }
}

}  // namespace

void print(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* formats,
           const std::uint64_t* arguments, std::int32_t* results) {
  Printed printed;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    results[lane] = -1;
    if (formats[lane] == 0) continue;
    printed.take(env, formats[lane], arguments[lane]);
    results[lane] = static_cast<std::int32_t>(printed.count);
    ThreadState& thread = *slot_of(env).thread;
    thread.enter_scheduler();
    write_print(env, printed);
    thread.enter_kernel();
  }
}

void assert_fail(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* messages,
                 const std::uint64_t* files, const std::uint32_t* lines,
                 const std::uint64_t* functions) {
  char message[512], file[512], function[512];
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    const std::uint64_t addresses[] = {messages[lane], files[lane], functions[lane]};
    char* const texts[] = {message, file, function};
    for (int i = 0; i < 3; ++i) {
      texts[i][0] = 0;
      if (addresses[i] != 0) copy_text(env, addresses[i], texts[i], sizeof(message));
    }
    ThreadState& thread = *slot_of(env).thread;
    thread.enter_scheduler();
    write_assertion(env, lane, message, file, lines[lane], function);
    thread.enter_kernel();
  }
  env->services->trap(env, SG_TRAP_ASSERT, 0);
  __builtin_unreachable();
}

void allocate(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* sizes,
              std::uint64_t* addresses) {
  ThreadState& thread = *slot_of(env).thread;
  DeviceHeap* heap = launch_of(env).heap;
  thread.enter_scheduler();
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    addresses[lane] = heap != nullptr ? heap->allocate(sizes[lane]) : 0;
  }
  thread.enter_kernel();
}

void release(sg_warp_env* env, std::uint32_t mask, const std::uint64_t* addresses) {
  ThreadState& thread = *slot_of(env).thread;
  DeviceHeap* heap = launch_of(env).heap;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const std::uint64_t address = addresses[std::countr_zero(rest)];
    if (address == 0) continue;
    thread.enter_scheduler();
    const bool known = heap != nullptr && heap->release(address);
    thread.enter_kernel();
    if (!known) illegal(env, address);
  }
}

}  // namespace headrace::softgpu::exec
