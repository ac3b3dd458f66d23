/* Runs compiled kernels for the translator's tests: one OS thread, one fiber for each warp of a
 * block, no protection beyond what the generated code itself checks. */
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "softgpu/exec/kernel_abi.h"

enum { MAX_WARPS = 32, STACK = 4 << 20, LANE_STACK = 16 << 10 };

typedef struct {
  ucontext_t context;
  void* stack;
  sg_warp_env env;
  int live, waiting;
  uint32_t id, count, arrived_generation;
} warp_t;

typedef struct {
  uint32_t kind;
  uint64_t address;
  uint64_t barriers, yields;
} result_t;

static warp_t warps[MAX_WARPS];
static ucontext_t scheduler;
static const sg_kernel_desc* desc;
static uint32_t current, total;
static uint32_t arrived[SG_MAX_BARRIERS], generation[SG_MAX_BARRIERS];
static uint32_t reduced[SG_MAX_BARRIERS], reduce_result[SG_MAX_BARRIERS];
static jmp_buf fault_exit;
static result_t* result;

static void switch_out(void) { swapcontext(&warps[current].context, &scheduler); }

static uint32_t threads_of(uint32_t warp) {
  uint32_t left = warps[warp].env.threads - 32 * warp;
  return left < 32 ? left : 32;
}

/* Threads that a barrier over `count` (0: all live ones) still needs. */
static int complete(uint32_t id, uint32_t count) {
  uint32_t need = 0;
  if (count) return arrived[id] >= count;
  for (uint32_t w = 0; w < total; w++) need += warps[w].live ? (threads_of(w) + 31) / 32 * 32 : 0;
  return arrived[id] >= need;
}

static void wait_at(uint32_t id, uint32_t count) {
  result->barriers++;
  arrived[id] += 32;
  uint32_t mine = generation[id];
  for (;;) {
    if (generation[id] != mine) return;
    if (complete(id, count)) {
      arrived[id] = 0;
      generation[id]++;
      reduce_result[id] = reduced[id];
      return;
    }
    switch_out();
  }
}

static void barrier(sg_warp_env* env) { (void)env, wait_at(0, 0); }
static void barrier_n(sg_warp_env* env, uint32_t id, uint32_t count) {
  (void)env, wait_at(id, count);
}
static void arrive(sg_warp_env* env, uint32_t id, uint32_t count) {
  (void)env, (void)count;
  arrived[id] += 32;
}
static uint32_t barrier_reduce(sg_warp_env* env, uint32_t id, uint32_t count, uint32_t op,
                               uint32_t predicate, uint32_t mask) {
  (void)env;
  if (!arrived[id]) reduced[id] = op == SG_REDUCE_AND;
  if (op == SG_REDUCE_POPC) reduced[id] += (uint32_t)__builtin_popcount(predicate);
  if (op == SG_REDUCE_AND) reduced[id] &= predicate == mask;
  if (op == SG_REDUCE_OR) reduced[id] |= predicate != 0;
  wait_at(id, count);
  return reduce_result[id];
}
static void yield(sg_warp_env* env) {
  (void)env;
  result->yields++;
  if (desc->flags & SG_KERNEL_NEEDS_FIBERS) switch_out();
}
__attribute__((noreturn)) static void trap(sg_warp_env* env, uint32_t kind, uint64_t address) {
  (void)env;
  result->kind = kind;
  result->address = address;
  longjmp(fault_exit, 1);
}

static const sg_services services = {.abi_version = SG_ABI_VERSION,
                                     .bytes = sizeof(sg_services),
                                     .barrier = barrier,
                                     .barrier_n = barrier_n,
                                     .arrive = arrive,
                                     .barrier_reduce = barrier_reduce,
                                     .yield = yield,
                                     .trap = trap};

static void start(void) {
  uint32_t me = current;
  desc->entry(&warps[me].env);
  warps[me].live = 0;
  for (;;) switch_out();
}

static void run_block(void) {
  if (!(desc->flags & SG_KERNEL_NEEDS_FIBERS)) {
    for (current = 0; current < total; current++) desc->entry(&warps[current].env);
    return;
  }
  memset(arrived, 0, sizeof arrived);
  for (uint32_t w = 0; w < total; w++) {
    if (!warps[w].stack) warps[w].stack = aligned_alloc(4096, STACK);
    getcontext(&warps[w].context);
    warps[w].context.uc_stack.ss_sp = warps[w].stack;
    warps[w].context.uc_stack.ss_size = STACK;
    warps[w].context.uc_link = NULL;
    warps[w].live = 1;
    makecontext(&warps[w].context, start, 0);
  }
  for (uint64_t idle = 0;;) {
    uint32_t live = 0;
    for (uint32_t w = 0; w < total; w++) {
      if (!warps[w].live) continue;
      live++;
      current = w;
      swapcontext(&scheduler, &warps[w].context);
    }
    if (!live) return;
    if (++idle > 10000000) { /* deadlock */
      result->kind = 99;
      return;
    }
  }
}

/* env_template carries params, globals and the windows. */
void run_kernel(const sg_kernel_desc* d, const uint32_t grid[3], const uint32_t block[3],
                uint32_t dynamic, const sg_warp_env* env_template, result_t* out) {
  desc = d;
  result = out;
  memset(out, 0, sizeof *out);
  uint32_t threads = block[0] * block[1] * block[2];
  total = (threads + 31) / 32;
  uint32_t bytes = dynamic ? (d->static_shared + 15) / 16 * 16 + dynamic : d->static_shared;
  uint8_t* shared = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  uint32_t lane = d->local_bytes + (d->flags & SG_KERNEL_USES_STACK ? LANE_STACK : 0);
  uint8_t* local = aligned_alloc(64, (size_t)lane * 32 * total + 64);
  if (!setjmp(fault_exit)) {
    for (uint32_t z = 0; z < grid[2]; z++)
      for (uint32_t y = 0; y < grid[1]; y++)
        for (uint32_t x = 0; x < grid[0] && !out->kind; x++) {
          for (uint32_t w = 0; w < total; w++) {
            sg_warp_env* e = &warps[w].env;
            *e = *env_template;
            e->shared = shared;
            e->local = local + (size_t)w * 32 * lane;
            e->ctaid[0] = x, e->ctaid[1] = y, e->ctaid[2] = z;
            memcpy(e->nctaid, grid, 12);
            memcpy(e->ntid, block, 12);
            e->warp = w;
            e->threads = threads;
            e->dynamic_shared = dynamic;
            e->shared_bytes = bytes;
            e->local_bytes = lane;
            e->services = &services;
          }
          run_block();
        }
  }
  free(shared);
  free(local);
}
