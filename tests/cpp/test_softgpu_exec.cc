// The execution runtime: blocks, barriers, yields, reductions.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "softgpu_exec_kernels.h"

using namespace headrace::softgpu;
using namespace softgpu_test;

namespace {

void write_thread_numbers(sg_warp_env* env) {
  std::uint32_t* out = param<std::uint32_t*>(env, 0);
  for (std::uint32_t lane = 0; lane < lanes(env); ++lane) {
    const std::uint64_t thread = block_number(env) * env->threads + env->warp * 32 + lane;
    out[thread] = static_cast<std::uint32_t>(thread) + 1;
  }
}

// Each round every warp adds its neighbours' values of the round before: wrong at once when a
// barrier lets anybody through early.
void neighbours(sg_warp_env* env) {
  std::uint64_t* out = param<std::uint64_t*>(env, 0);
  const std::uint64_t rounds = param<std::uint64_t>(env, 1);
  const std::uint32_t warps = (env->threads + 31) / 32;
  std::uint64_t* now = reinterpret_cast<std::uint64_t*>(env->shared);
  std::uint64_t* next = now + warps;
  now[env->warp] = env->warp + 1;
  env->services->barrier(env);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    next[env->warp] = now[env->warp] + now[(env->warp + 1) % warps] % 1000;
    env->services->barrier(env);
    std::swap(now, next);
  }
  out[block_number(env) * warps + env->warp] = now[env->warp];
}

std::vector<std::uint64_t> expected_neighbours(std::uint32_t warps, std::uint64_t rounds) {
  std::vector<std::uint64_t> now(warps), next(warps);
  std::iota(now.begin(), now.end(), 1);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    for (std::uint32_t w = 0; w < warps; ++w) next[w] = now[w] + now[(w + 1) % warps] % 1000;
    now.swap(next);
  }
  return now;
}

// Warp w returns after w rounds; those that stay keep meeting at the barrier.
void early_exits(sg_warp_env* env) {
  std::uint32_t* met = param<std::uint32_t*>(env, 0);
  for (std::uint32_t round = 0; round < env->warp; ++round) {
    env->services->barrier(env);
    ++met[env->warp];
  }
}

void reductions(sg_warp_env* env) {
  std::uint32_t* out = param<std::uint32_t*>(env, 0) + env->warp * 4;
  const std::uint32_t live = lanes(env);
  const std::uint32_t mask = live == 32 ? ~0u : (1u << live) - 1;
  const std::uint32_t odd = 0xaaaaaaaau & mask;
  const sg_services* services = env->services;
  out[0] = services->barrier_reduce(env, 0, 0, SG_REDUCE_POPC, odd, mask);
  out[1] = services->barrier_reduce(env, 0, 0, SG_REDUCE_AND, mask, mask);
  out[2] = services->barrier_reduce(env, 0, 0, SG_REDUCE_AND, env->warp == 1 ? odd : mask, mask);
  out[3] = services->barrier_reduce(env, 0, 0, SG_REDUCE_OR, env->warp == 0 ? 1 : 0, mask);
}

// Warps 0 and 1 produce (arrive at 1, wait at 2), warps 2 and 3 consume.
void producers(sg_warp_env* env) {
  volatile std::uint32_t* slot = reinterpret_cast<volatile std::uint32_t*>(env->shared);
  std::uint32_t* sums = param<std::uint32_t*>(env, 0);
  for (std::uint32_t i = 1; i <= 100; ++i) {
    if (env->warp < 2) {
      slot[env->warp] = i * (env->warp + 1);
      env->services->arrive(env, 1, 128);
      env->services->barrier_n(env, 2, 128);
    } else {
      env->services->barrier_n(env, 1, 128);
      sums[env->warp] += slot[0] + slot[1];
      env->services->barrier_n(env, 2, 128);
    }
  }
}

// Halves of the block meet at barriers of their own, a different number of times.
void two_halves(sg_warp_env* env) {
  std::uint32_t* out = param<std::uint32_t*>(env, 0);
  const std::uint32_t half = env->warp / 2;
  const std::uint32_t meetings = half == 0 ? 3 : 50;
  for (std::uint32_t i = 0; i < meetings; ++i) {
    out[env->warp] += env->services->barrier_reduce(env, 1 + half, 64, SG_REDUCE_POPC, 0xff, ~0u);
  }
}

// The first warp waits for the last without a barrier.
void spin(sg_warp_env* env) {
  volatile std::uint32_t* flag = reinterpret_cast<volatile std::uint32_t*>(env->shared);
  if (env->warp == 0) flag[0] = 0;
  env->services->barrier(env);
  if (env->warp == 0) {
    while (flag[0] == 0) env->services->yield(env);
    param<std::uint32_t*>(env, 0)[block_number(env)] = flag[0];
  } else if (env->warp == (env->threads + 31) / 32 - 1) {
    flag[0] = 7;
  }
}

// Each block waits for the block before it: blocks are handed out in order.
void look_back(sg_warp_env* env) {
  std::atomic<std::uint64_t>* sums = param<std::atomic<std::uint64_t>*>(env, 0);
  const std::uint64_t block = block_number(env);
  std::uint64_t before = 0;
  if (block != 0)
    while ((before = sums[block - 1].load(std::memory_order_acquire)) == 0)
      env->services->yield(env);
  sums[block].store(before + block + 1, std::memory_order_release);
}

// All blocks count up in turn; none can finish before all have started.
void grid_barrier(sg_warp_env* env) {
  std::atomic<std::uint32_t>* count = param<std::atomic<std::uint32_t>*>(env, 0);
  std::uint32_t* bad = param<std::uint32_t*>(env, 1);
  const std::uint32_t warps = env->nctaid[0] * ((env->threads + 31) / 32);
  for (std::uint32_t round = 1; round <= 5; ++round) {
    env->services->barrier(env);
    count->fetch_add(1);
    while (count->load() < round * warps) env->services->yield(env);
    if ((env->flags & SG_ENV_COOPERATIVE) == 0) *bad = 1;
  }
}

void record_order(sg_warp_env* env) {
  std::uint32_t* count = param<std::uint32_t*>(env, 1);
  const std::uint32_t place = __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
  param<std::uint32_t*>(env, 0)[place] = static_cast<std::uint32_t>(block_number(env));
}

void check_environment(sg_warp_env* env) {
  std::uint32_t* bad = param<std::uint32_t*>(env, 0);
  bool good = env->dynamic_shared == 100 && env->shared_bytes == 48 + 100 && env->threads == 70;
  good = good && address(env->shared) % 256 == 0 && address(env->local) % 64 == 0;
  good = good && env->nctaid[0] == 3 && env->nctaid[1] == 2 && env->nctaid[2] == 2;
  good = good && env->ntid[0] == 7 && env->ntid[1] == 5 && env->ntid[2] == 2;
  good = good && env->grid_id == 99 && env->globals == reinterpret_cast<std::uint8_t*>(0x1230);
  good = good && env->arena_lo == 1 && env->arena_hi == 2 && env->pinned_lo == 3;
  good = good && env->pinned_hi == 4 && env->services->abi_version == SG_ABI_VERSION;
  for (std::uint32_t i = 8; i < 64 + 16; ++i) good = good && env->params[i] == 0;
  for (std::uint32_t i = 0; i < 32 * 64; ++i) env->local[i] = 1;  // 64 bytes a lane
  env->shared[env->shared_bytes - 1] = 1;
  if (!good) *bad = 1;
}

}  // namespace

TEST_CASE("every thread of every block runs once") {
  for (unsigned threads : {1u, 2u, 4u}) {
    CAPTURE(threads);
    const Dim3 grid{7, 5, 3}, block{33, 2, 1};
    std::vector<std::uint32_t> out(grid.count() * block.count());
    TestLaunch launch(write_thread_numbers, grid, block, {address(out.data())});
    REQUIRE(launch.run(threads).ok());
    for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == i + 1);
  }
}

TEST_CASE("warps find their launch in the environment") {
  std::uint32_t bad = 0;
  TestLaunch launch(check_environment, {3, 2, 2}, {7, 5, 2}, {address(&bad)},
                    SG_KERNEL_NEEDS_FIBERS, 40);
  launch.desc.local_bytes = 64;
  launch.launch.dynamic_shared = 100;
  launch.launch.grid_id = 99;
  launch.launch.globals = reinterpret_cast<std::uint8_t*>(0x1230);
  launch.launch.arena = {1, 2};
  launch.launch.pinned = {3, 4};
  for (std::uint32_t flags : {0u, SG_KERNEL_NEEDS_FIBERS}) {
    launch.desc.flags = flags;
    REQUIRE(launch.run().ok());
    CHECK(bad == 0);
  }
}

TEST_CASE("bar.sync holds every warp until all have come") {
  for (std::uint32_t warps : {1u, 2u, 3u, 31u, 32u}) {
    CAPTURE(warps);
    const std::uint32_t blocks = 20;
    std::vector<std::uint64_t> out(blocks * warps);
    TestLaunch launch(neighbours, {blocks}, {warps * 32 - 5}, {address(out.data()), 50},
                      SG_KERNEL_NEEDS_FIBERS, warps * 16);
    REQUIRE(launch.run().ok());
    const std::vector<std::uint64_t> expected = expected_neighbours(warps, 50);
    for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == expected[i % warps]);
  }
}

TEST_CASE("warps that have exited count as arrived") {
  std::vector<std::uint32_t> met(32);
  TestLaunch launch(early_exits, {}, {1024}, {address(met.data())}, SG_KERNEL_NEEDS_FIBERS);
  REQUIRE(launch.run().ok());
  for (std::uint32_t warp = 0; warp < 32; ++warp) CHECK(met[warp] == warp);
}

TEST_CASE("barrier reductions") {
  for (std::uint32_t threads : {32u, 64u, 90u}) {
    CAPTURE(threads);
    const std::uint32_t warps = (threads + 31) / 32;
    std::vector<std::uint32_t> out(warps * 4, 77);
    TestLaunch launch(reductions, {}, {threads}, {address(out.data())}, SG_KERNEL_NEEDS_FIBERS);
    REQUIRE(launch.run().ok());
    for (std::uint32_t warp = 0; warp < warps; ++warp) {
      CHECK(out[warp * 4 + 0] == threads / 2);
      CHECK(out[warp * 4 + 1] == 1);
      CHECK(out[warp * 4 + 2] == (warps == 1 ? 1 : 0));
      CHECK(out[warp * 4 + 3] == 1);
    }
  }
}

TEST_CASE("named barriers: arrive and wait") {
  std::vector<std::uint32_t> sums(4);
  TestLaunch launch(producers, {}, {128}, {address(sums.data())}, SG_KERNEL_NEEDS_FIBERS, 64);
  REQUIRE(launch.run().ok());
  CHECK(sums == std::vector<std::uint32_t>{0, 0, 15150, 15150});
}

TEST_CASE("named barriers over parts of a block are independent") {
  std::vector<std::uint32_t> out(4);
  TestLaunch launch(two_halves, {}, {128}, {address(out.data())}, SG_KERNEL_NEEDS_FIBERS);
  REQUIRE(launch.run().ok());
  CHECK(out == std::vector<std::uint32_t>{48, 48, 800, 800});
}

TEST_CASE("a warp that spins lets the others run") {
  std::vector<std::uint32_t> out(10);
  TestLaunch launch(spin, {10}, {1024}, {address(out.data())}, SG_KERNEL_NEEDS_FIBERS, 16);
  REQUIRE(launch.run().ok());
  CHECK(out == std::vector<std::uint32_t>(10, 7));
}

TEST_CASE("a block may wait for the block before it") {
  const std::uint32_t blocks = 3000;
  std::vector<std::atomic<std::uint64_t>> sums(blocks);
  TestLaunch launch(look_back, {blocks}, {32}, {address(sums.data())}, SG_KERNEL_NEEDS_FIBERS);
  REQUIRE(launch.run(4).ok());
  CHECK(sums[blocks - 1] == std::uint64_t{blocks} * (blocks + 1) / 2);
}

TEST_CASE("a cooperative grid has all its blocks at once") {
  std::atomic<std::uint32_t> count{0};
  std::uint32_t bad = 0;
  TestLaunch launch(grid_barrier, {max_cooperative_blocks(64)}, {64},
                    {address(&count), address(&bad)},
                    SG_KERNEL_NEEDS_FIBERS | SG_KERNEL_COOPERATIVE);
  launch.launch.cooperative = true;
  REQUIRE(launch.run().ok());
  CHECK(count == 5 * 2 * max_cooperative_blocks(64));
  CHECK(bad == 0);
  launch.launch.grid.x += 1;
  CHECK(launch.run().status == LaunchStatus::invalid);
}

TEST_CASE("what cannot be launched is refused") {
  std::uint32_t unused = 0;
  TestLaunch launch(check_environment, {}, {32}, {address(&unused)});
  launch.launch.block = {1025, 1, 1};
  CHECK(launch.run().status == LaunchStatus::invalid);
  launch.launch.block = {0, 1, 1};
  CHECK(launch.run().status == LaunchStatus::invalid);
  launch.launch.block = {32, 1, 1};
  launch.launch.grid = {1, 0, 1};
  CHECK(launch.run().status == LaunchStatus::invalid);
  launch.launch.grid = {1, 1, 1};
  launch.desc.abi_version = SG_ABI_VERSION + 1;
  CHECK(launch.run().status == LaunchStatus::invalid);
}

TEST_CASE("settings: number of threads, and one thread in block order") {
  struct Setting {
    const char *name, *value;
    unsigned threads;
  };
  for (const Setting& setting : {Setting{"HEADRACE_SOFTGPU_THREADS", "3", 3},
                                 Setting{"HEADRACE_SOFTGPU_DETERMINISTIC", "1", 1}}) {
    CAPTURE(setting.name);
    const pid_t child = fork();  // settings are read once in a process; a child starts afresh
    if (child == 0) {
      setenv(setting.name, setting.value, 1);
      if (worker_threads() != setting.threads) _exit(1);
      std::vector<std::uint32_t> order(2000);
      std::uint32_t count = 0;
      TestLaunch launch(record_order, {2000}, {32}, {address(order.data()), address(&count)});
      if (!launch.run().ok()) _exit(2);
      bool in_order = true;
      for (std::uint32_t i = 0; i < 2000; ++i) in_order = in_order && order[i] == i;
      _exit(in_order || setting.threads > 1 ? 0 : 3);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("launches from many threads at once") {
  std::vector<std::thread> callers;
  std::atomic<int> good{0};
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&good] {
      const std::vector<std::uint64_t> expected = expected_neighbours(4, 20);
      for (int i = 0; i < 20; ++i) {
        std::vector<std::uint64_t> out(40 * 4);
        TestLaunch launch(neighbours, {40}, {128}, {address(out.data()), 20},
                          SG_KERNEL_NEEDS_FIBERS, 64);
        bool right = launch.run().ok();
        for (std::size_t k = 0; k < out.size(); ++k) right = right && out[k] == expected[k % 4];
        good += right;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(good == 160);
}
