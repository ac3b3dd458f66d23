/* The contract between generated kernel code and the execution runtime. Plain C, so that the
 * translator's tests, the device helpers and the C++ runtime read the same text.
 *
 * One warp of 32 lanes is one call of the kernel's entry. Everything the code may touch comes in
 * sg_warp_env; everything it asks of the scheduler goes through env->services. ptx/abi.py
 * repeats the offsets, a test compares both. Any change that moves a field or changes a meaning
 * raises SG_ABI_VERSION; objects of another version are refused, and the cache key contains it.
 */
#ifndef HEADRACE_SOFTGPU_KERNEL_ABI_H
#define HEADRACE_SOFTGPU_KERNEL_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SG_ABI_VERSION 3
#define SG_WARP_SIZE 32
#define SG_MAX_BARRIERS 16

/* sg_kernel_desc.flags */
#define SG_KERNEL_NEEDS_FIBERS 0x1u   /* calls barrier*, arrive or yield somewhere */
#define SG_KERNEL_DYNAMIC_SHARED 0x2u /* refers to .extern .shared memory */
#define SG_KERNEL_COOPERATIVE 0x4u    /* waits for other blocks of its grid (reads %envreg1/2) */
#define SG_KERNEL_USES_HEAP 0x8u      /* calls allocate or release */
#define SG_KERNEL_USES_STACK 0x10u /* wants a stack behind each lane's local memory (recursion) */

/* sg_warp_env.flags */
#define SG_ENV_COOPERATIVE 0x1u /* all blocks of the grid are resident: grid barriers work */

/* Kinds of sg_services.trap */
#define SG_TRAP_ILLEGAL_ADDRESS 1u     /* address: the first bad byte, as the program knows it */
#define SG_TRAP_MISALIGNED 2u          /* address: the misaligned one */
#define SG_TRAP_TRAP 3u                /* PTX trap, brkpt */
#define SG_TRAP_ASSERT 4u              /* __assertfail */
#define SG_TRAP_ILLEGAL_INSTRUCTION 5u /* code that was translated to "must not be reached" */
#define SG_TRAP_STACK_OVERFLOW 6u      /* call depth or local memory exceeded */

/* Operations of sg_services.barrier_reduce */
#define SG_REDUCE_POPC 0u /* number of threads whose predicate is true */
#define SG_REDUCE_AND 1u  /* 1 if the predicate is true in every participating thread */
#define SG_REDUCE_OR 2u   /* 1 if it is true in at least one */

struct sg_services;

/* One per warp. The warp reads it; it must not write to it. */
typedef struct sg_warp_env {
  uint8_t* params;  /* parameter block, padded with at least 16 zero bytes */
  uint8_t* shared;  /* this block's shared memory: static part first, dynamic part at the first
                       multiple of 16 after it; aligned to 256 */
  uint8_t* local;   /* this warp's local memory: lane k owns [local + k*local_bytes, +local_bytes);
                       aligned to 64 */
  uint8_t* globals; /* this module instance's block of .global and .const variables, or NULL */
  uint32_t ctaid[3];
  uint32_t nctaid[3];
  uint32_t ntid[3];
  uint32_t warp;           /* index of this warp in its block: lane k is thread warp*32+k */
  uint32_t threads;        /* threads in the block; lanes beyond it do not exist */
  uint32_t dynamic_shared; /* as launched */
  uint32_t shared_bytes;   /* bytes valid at `shared`: static + padding to 16 + dynamic */
  uint32_t clock_hi;       /* reserved, 0 */
  uint32_t flags;          /* SG_ENV_* */
  uint32_t local_bytes;    /* the descriptor's, plus the lane's stack if the kernel uses one */
  uint64_t grid_id;
  /* Every global or generic access must lie in [arena_lo, arena_hi), in [pinned_lo, pinned_hi),
     in the block's shared, in the warp's local memory or in registered host memory. Pages of the
     arena that are not allocated are not mapped: the runtime turns the signal into the same fault.
   */
  uint64_t arena_lo, arena_hi;
  uint64_t pinned_lo, pinned_hi;
  const struct sg_services* services;
  void* block;             /* the scheduler's own */
  uint64_t grid_workspace; /* %envreg2:%envreg1, the grid barrier's words in the arena; 0 if none */
} sg_warp_env;

/* What a warp may ask of the scheduler. Warps take part in barriers as a whole: as before Volta,
   one call of a partly active warp is the arrival of all its threads. A warp that returned from
   its entry counts as arrived in every barrier over the whole block.
   `count` is a number of threads, a multiple of 32; 0 (or the block's size and more) = the whole
   block. `id` is 0..15. Kernels that call barrier*, arrive or yield must carry
   SG_KERNEL_NEEDS_FIBERS. No lock, no signal mask and no change of MXCSR may be held across a
   call. */
typedef struct sg_services {
  uint32_t abi_version;
  uint32_t bytes; /* sizeof(sg_services) of the runtime */
  /* bar.sync 0 / barrier.sync 0 */
  void (*barrier)(sg_warp_env* env);
  /* bar.sync id, count */
  void (*barrier_n)(sg_warp_env* env, uint32_t id, uint32_t count);
  /* bar.arrive id, count: does not wait; count must not be 0 */
  void (*arrive)(sg_warp_env* env, uint32_t id, uint32_t count);
  /* bar.red.op id, count: `predicate` has one bit per lane, `mask` the active lanes. The same
     value is returned to every warp that took part. */
  uint32_t (*barrier_reduce)(sg_warp_env* env, uint32_t id, uint32_t count, uint32_t op,
                             uint32_t predicate, uint32_t mask);
  /* Let the other warps run: nanosleep, and back edges of loops that may be waiting for memory.
     Cheap enough for every turn of such a loop. */
  void (*yield)(sg_warp_env* env);
  /* Ends the launch. Never returns. */
#if defined(__GNUC__)
  __attribute__((noreturn))
#endif
  void (*trap)(sg_warp_env* env, uint32_t kind, uint64_t address);
  /* What follows is for the lanes of `mask`, one after the other; arrays have 32 entries. Addresses
     are generic. */
  /* vprintf: the arguments lie at arguments[lane], promoted as C promotes them, each at a multiple
     of its size. results[lane] becomes the number of arguments, -1 without a format. */
  void (*print)(sg_warp_env* env, uint32_t mask, const uint64_t* formats, const uint64_t* arguments,
                int32_t* results);
  /* __assertfail. Ends the launch. Never returns. */
#if defined(__GNUC__)
  __attribute__((noreturn))
#endif
  void (*assert_fail)(sg_warp_env* env, uint32_t mask, const uint64_t* messages,
                      const uint64_t* files, const uint32_t* lines, const uint64_t* functions);
  /* malloc: addresses[lane] becomes 0 when the heap has no room. */
  void (*allocate)(sg_warp_env* env, uint32_t mask, const uint64_t* sizes, uint64_t* addresses);
  /* free: of an address that allocate() gave, or 0; another one is an illegal address. */
  void (*release)(sg_warp_env* env, uint32_t mask, const uint64_t* addresses);
  /* Whether [address, address + bytes) is host memory that the program has registered and that a
     kernel may therefore touch. Asked only of addresses that lie in none of the windows. NULL: no.
   */
  int (*registered)(const sg_warp_env* env, uint64_t address, uint64_t bytes);
  void* reserved[3]; /* NULL */
} sg_services;

typedef void (*sg_kernel_fn)(sg_warp_env* env);

/* Exported by each compiled object as the symbol `sgk_desc`. */
typedef struct sg_kernel_desc {
  uint32_t abi_version; /* SG_ABI_VERSION */
  uint32_t flags;       /* SG_KERNEL_* */
  const char* name;
  sg_kernel_fn entry;
  uint32_t static_shared; /* bytes */
  uint32_t local_bytes;   /* bytes per lane, a multiple of 16 */
  uint32_t param_bytes;
  uint32_t n_params;
  const uint32_t* params; /* n_params pairs (offset, size) */
  uint32_t max_threads;   /* product of .maxntid, 0 = none */
  uint32_t req_ntid[3];   /* .reqntid, 0 = none */
  uint32_t registers;     /* an estimate, for cuFuncGetAttribute */
} sg_kernel_desc;

#define SG_KERNEL_DESC_SYMBOL "sgk_desc"

#if defined(__cplusplus)
#define SG_ABI_ASSERT(what) static_assert(what, #what)
#else
#define SG_ABI_ASSERT(what) _Static_assert(what, #what)
#endif
SG_ABI_ASSERT(offsetof(sg_warp_env, params) == 0);
SG_ABI_ASSERT(offsetof(sg_warp_env, shared) == 8);
SG_ABI_ASSERT(offsetof(sg_warp_env, local) == 16);
SG_ABI_ASSERT(offsetof(sg_warp_env, globals) == 24);
SG_ABI_ASSERT(offsetof(sg_warp_env, ctaid) == 32);
SG_ABI_ASSERT(offsetof(sg_warp_env, nctaid) == 44);
SG_ABI_ASSERT(offsetof(sg_warp_env, ntid) == 56);
SG_ABI_ASSERT(offsetof(sg_warp_env, warp) == 68);
SG_ABI_ASSERT(offsetof(sg_warp_env, threads) == 72);
SG_ABI_ASSERT(offsetof(sg_warp_env, dynamic_shared) == 76);
SG_ABI_ASSERT(offsetof(sg_warp_env, shared_bytes) == 80);
SG_ABI_ASSERT(offsetof(sg_warp_env, clock_hi) == 84);
SG_ABI_ASSERT(offsetof(sg_warp_env, flags) == 88);
SG_ABI_ASSERT(offsetof(sg_warp_env, local_bytes) == 92);
SG_ABI_ASSERT(offsetof(sg_warp_env, grid_id) == 96);
SG_ABI_ASSERT(offsetof(sg_warp_env, arena_lo) == 104);
SG_ABI_ASSERT(offsetof(sg_warp_env, arena_hi) == 112);
SG_ABI_ASSERT(offsetof(sg_warp_env, pinned_lo) == 120);
SG_ABI_ASSERT(offsetof(sg_warp_env, pinned_hi) == 128);
SG_ABI_ASSERT(offsetof(sg_warp_env, services) == 136);
SG_ABI_ASSERT(offsetof(sg_warp_env, block) == 144);
SG_ABI_ASSERT(offsetof(sg_warp_env, grid_workspace) == 152);
SG_ABI_ASSERT(sizeof(sg_warp_env) == 160);
SG_ABI_ASSERT(offsetof(sg_services, barrier) == 8);
SG_ABI_ASSERT(offsetof(sg_services, barrier_n) == 16);
SG_ABI_ASSERT(offsetof(sg_services, arrive) == 24);
SG_ABI_ASSERT(offsetof(sg_services, barrier_reduce) == 32);
SG_ABI_ASSERT(offsetof(sg_services, yield) == 40);
SG_ABI_ASSERT(offsetof(sg_services, trap) == 48);
SG_ABI_ASSERT(offsetof(sg_services, print) == 56);
SG_ABI_ASSERT(offsetof(sg_services, assert_fail) == 64);
SG_ABI_ASSERT(offsetof(sg_services, allocate) == 72);
SG_ABI_ASSERT(offsetof(sg_services, release) == 80);
SG_ABI_ASSERT(offsetof(sg_services, registered) == 88);
SG_ABI_ASSERT(sizeof(sg_services) == 120);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, name) == 8);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, entry) == 16);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, static_shared) == 24);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, params) == 40);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, max_threads) == 48);
SG_ABI_ASSERT(offsetof(sg_kernel_desc, registers) == 64);
SG_ABI_ASSERT(sizeof(sg_kernel_desc) == 72);

#ifdef __cplusplus
}
#endif

#endif
