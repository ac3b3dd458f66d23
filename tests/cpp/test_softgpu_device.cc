// The device helpers, called as generated code calls them, against references of their own.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
template <typename T>
using Lanes = std::array<T, 32>;

#define ATOMIC(NAME, T)                                 \
  void sgrt_atom_##NAME(u32, const u64*, const T*, T*); \
  void sgrt_shared_##NAME(u32, const u64*, const T*, T*)
#define COMPARE_AND_SWAP(NAME, T)                                 \
  void sgrt_atom_##NAME(u32, const u64*, const T*, const T*, T*); \
  void sgrt_shared_##NAME(u32, const u64*, const T*, const T*, T*)
#define DIRECTED(MODE)                                                          \
  void sgrt_add_##MODE##_f32(const float*, const float*, float*);               \
  void sgrt_mul_##MODE##_f32(const float*, const float*, float*);               \
  void sgrt_div_##MODE##_f32(const float*, const float*, float*);               \
  void sgrt_fma_##MODE##_f32(const float*, const float*, const float*, float*); \
  void sgrt_sqrt_##MODE##_f32(const float*, float*);                            \
  void sgrt_rcp_##MODE##_f32(const float*, float*);                             \
  void sgrt_add_##MODE##_f64(const double*, const double*, double*);            \
  void sgrt_mul_##MODE##_f64(const double*, const double*, double*);            \
  void sgrt_cvt_##MODE##_f32_f64(const double*, float*);                        \
  void sgrt_cvt_##MODE##_f32_u32(const u32*, float*);                           \
  void sgrt_cvt_##MODE##_f32_s64(const s64*, float*);                           \
  void sgrt_cvt_##MODE##_f32_u64(const u64*, float*);                           \
  void sgrt_cvt_##MODE##_f64_s64(const s64*, double*);                          \
  void sgrt_cvt_##MODE##_f64_u64(const u64*, double*)

extern "C" {
ATOMIC(add_u32, u32);
ATOMIC(add_u64, u64);
ATOMIC(add_f32, float);
ATOMIC(add_f64, double);
ATOMIC(add_f16, u16);
ATOMIC(add_bf16, u16);
ATOMIC(add_f16x2, u32);
ATOMIC(add_bf16x2, u32);
ATOMIC(min_s32, s32);
ATOMIC(max_s64, s64);
ATOMIC(min_u64, u64);
ATOMIC(max_u32, u32);
ATOMIC(and_b32, u32);
ATOMIC(or_b64, u64);
ATOMIC(xor_b32, u32);
ATOMIC(inc_u32, u32);
ATOMIC(dec_u32, u32);
ATOMIC(exch_b16, u16);
ATOMIC(exch_b64, u64);
COMPARE_AND_SWAP(cas_b16, u16);
COMPARE_AND_SWAP(cas_b32, u32);
COMPARE_AND_SWAP(cas_b64, u64);
void sgrt_match_any_b32(u32, const u32*, const u32*, u32*);
void sgrt_match_all_b64(u32, const u64*, const u32*, u32*, u32*);
void sgrt_redux_add_u32(u32, const u32*, const u32*, u32*);
void sgrt_redux_min_s32(u32, const s32*, const u32*, s32*);
void sgrt_redux_xor_b32(u32, const u32*, const u32*, u32*);
DIRECTED(rz);
DIRECTED(rm);
DIRECTED(rp);
u64 sgrt_globaltimer(void);
}

namespace {

template <typename T>
u64 address(T& place) {
  return reinterpret_cast<u64>(&place);
}

// All lanes on one place, both forms; the reference does them one after the other.
template <typename T, typename Function, typename Next>
void check_atomic(Function global, Function shared, T start, Next next) {
  std::mt19937_64 random(7);
  for (Function function : {global, shared}) {
    for (u32 mask : {~0u, 0u, 0x80000001u, 0x0ff0f0f0u}) {
      T place = start, expected = start;
      Lanes<u64> addresses;
      addresses.fill(address(place));
      Lanes<T> operands, old, expected_old;
      for (int k = 0; k < 32; ++k) {
        operands[k] = static_cast<T>(static_cast<s64>(random() % 200) - 100);
        old[k] = expected_old[k] = static_cast<T>(77);
        if ((mask >> k & 1) == 0) continue;
        expected_old[k] = expected;
        expected = next(expected, operands[k]);
      }
      function(mask, addresses.data(), operands.data(), old.data());
      CHECK(place == expected);
      CHECK(old == expected_old);
    }
  }
}

enum class Mode { rz, rm, rp };

// The neighbour of the nearest value that the mode wants. __float128 holds every exact result
// that is put in here.
template <typename T>
T round_to(__float128 exact, Mode mode) {
  const T nearest = static_cast<T>(exact);
  const T infinity = std::numeric_limits<T>::infinity();
  const bool up = mode == Mode::rp || (mode == Mode::rz && exact < 0);
  if (up && static_cast<__float128>(nearest) < exact) return std::nextafter(nearest, infinity);
  if (!up && static_cast<__float128>(nearest) > exact) return std::nextafter(nearest, -infinity);
  return nearest;
}

template <typename T>
std::vector<T> samples() {
  std::mt19937_64 random(11);
  std::vector<T> values = {0,
                           T(-0.0),
                           1,
                           -1,
                           std::numeric_limits<T>::epsilon(),
                           1 + std::numeric_limits<T>::epsilon(),
                           T(-3.5),
                           T(1) / 3};
  while (values.size() < 32 * 32) {
    const T fraction = static_cast<T>(static_cast<double>(random()) / 18446744073709551616.0);
    values.push_back(std::ldexp((random() & 1) != 0 ? fraction : -fraction,
                                static_cast<int>(random() % 20) - 10));
  }
  return values;
}

template <typename T, typename Function, typename Exact>
void check_binary(Function function, Mode mode, Exact exact) {
  const std::vector<T> values = samples<T>();
  for (std::size_t row = 0; row < 32; ++row) {
    Lanes<T> a, b, out;
    for (std::size_t k = 0; k < 32; ++k) {
      a[k] = values[row * 32 + k];
      b[k] = values[(row * 37 + k * 11 + 5) % values.size()];
    }
    function(a.data(), b.data(), out.data());
    for (std::size_t k = 0; k < 32; ++k) {
      const T expected = round_to<T>(exact(a[k], b[k]), mode);
      REQUIRE(std::bit_cast<std::array<unsigned char, sizeof(T)>>(out[k] + T(0)) ==
              std::bit_cast<std::array<unsigned char, sizeof(T)>>(expected + T(0)));
    }
  }
}

template <typename From, typename To, typename Function>
void check_conversion(Function function, Mode mode) {
  std::mt19937_64 random(13);
  Lanes<From> values;
  Lanes<To> out;
  for (int row = 0; row < 20; ++row) {
    for (std::size_t k = 0; k < 32; ++k)
      values[k] = static_cast<From>(random() >> (random() % (8 * sizeof(From))));
    values[0] = std::numeric_limits<From>::max();
    values[1] = std::numeric_limits<From>::min();
    function(values.data(), out.data());
    for (std::size_t k = 0; k < 32; ++k)
      REQUIRE(out[k] == round_to<To>(static_cast<__float128>(values[k]), mode));
  }
}

}  // namespace

TEST_CASE("integer atomics") {
  check_atomic<u32>(sgrt_atom_add_u32, sgrt_shared_add_u32, 5, [](u32 v, u32 x) { return v + x; });
  check_atomic<u64>(sgrt_atom_add_u64, sgrt_shared_add_u64, 5, [](u64 v, u64 x) { return v + x; });
  check_atomic<s32>(sgrt_atom_min_s32, sgrt_shared_min_s32, 5,
                    [](s32 v, s32 x) { return std::min(v, x); });
  check_atomic<s64>(sgrt_atom_max_s64, sgrt_shared_max_s64, -500,
                    [](s64 v, s64 x) { return std::max(v, x); });
  check_atomic<u64>(sgrt_atom_min_u64, sgrt_shared_min_u64, ~u64{0},
                    [](u64 v, u64 x) { return std::min(v, x); });
  check_atomic<u32>(sgrt_atom_max_u32, sgrt_shared_max_u32, 5,
                    [](u32 v, u32 x) { return std::max(v, x); });
  check_atomic<u32>(sgrt_atom_and_b32, sgrt_shared_and_b32, ~0u,
                    [](u32 v, u32 x) { return v & x; });
  check_atomic<u64>(sgrt_atom_or_b64, sgrt_shared_or_b64, 0, [](u64 v, u64 x) { return v | x; });
  check_atomic<u32>(sgrt_atom_xor_b32, sgrt_shared_xor_b32, 5, [](u32 v, u32 x) { return v ^ x; });
  check_atomic<u32>(sgrt_atom_inc_u32, sgrt_shared_inc_u32, 60,
                    [](u32 v, u32 x) { return v >= x ? 0 : v + 1; });
  check_atomic<u32>(sgrt_atom_dec_u32, sgrt_shared_dec_u32, 60,
                    [](u32 v, u32 x) { return v == 0 || v > x ? x : v - 1; });
  check_atomic<u16>(sgrt_atom_exch_b16, sgrt_shared_exch_b16, 5, [](u16, u16 x) { return x; });
  check_atomic<u64>(sgrt_atom_exch_b64, sgrt_shared_exch_b64, 5, [](u64, u64 x) { return x; });
  check_atomic<double>(sgrt_atom_add_f64, sgrt_shared_add_f64, 0.5,
                       [](double v, double x) { return v + x; });
  check_atomic<float>(sgrt_atom_add_f32, sgrt_shared_add_f32, 0.5f,
                      [](float v, float x) { return v + x; });
}

TEST_CASE("compare and swap") {
  auto check = [](auto function, auto start) {
    using T = decltype(start);
    T place = start;
    Lanes<u64> addresses;
    addresses.fill(address(place));
    Lanes<T> compare, value, old{};
    for (std::size_t k = 0; k < 32; ++k) {
      compare[k] = static_cast<T>(k % 2 == 0 ? k / 2 : 1000);  // every second one succeeds
      value[k] = static_cast<T>(k / 2 + 1);
    }
    function(~0u, addresses.data(), compare.data(), value.data(), old.data());
    CHECK(place == 16);
    for (std::size_t k = 0; k < 32; ++k) CHECK(old[k] == (k + 1) / 2);
  };
  check(sgrt_atom_cas_b16, u16{0});
  check(sgrt_shared_cas_b16, u16{0});
  check(sgrt_atom_cas_b32, u32{0});
  check(sgrt_shared_cas_b32, u32{0});
  check(sgrt_atom_cas_b64, u64{0});
  check(sgrt_shared_cas_b64, u64{0});
}

TEST_CASE("global atomics are atomic between threads") {
  u32 sum = 0, wrapped = 0;
  float real = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Lanes<u64> sums, reals, wraps;
      sums.fill(address(sum));
      reals.fill(address(real));
      wraps.fill(address(wrapped));
      Lanes<u32> one, limit, old;
      one.fill(1);
      limit.fill(999);
      Lanes<float> half, seen;
      half.fill(0.5f);
      for (int i = 0; i < 1000; ++i) {
        sgrt_atom_add_u32(~0u, sums.data(), one.data(), old.data());
        sgrt_atom_add_f32(~0u, reals.data(), half.data(), seen.data());
        sgrt_atom_inc_u32(~0u, wraps.data(), limit.data(), old.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sum == 128000);
  CHECK(real == 64000.0f);
  CHECK(wrapped == 0);
}

TEST_CASE("floating atomics: subnormals and half precision") {
  const float tiny = std::ldexp(1.0f, -140);
  Lanes<u64> addresses{};
  Lanes<float> operand{}, old{};
  float place = tiny;
  addresses[0] = address(place);
  operand[0] = tiny;
  sgrt_shared_add_f32(1, addresses.data(), operand.data(), old.data());
  CHECK(place == 2 * tiny);  // kept in shared memory
  sgrt_atom_add_f32(1, addresses.data(), operand.data(), old.data());
  CHECK(place == 0.0f);  // flushed in global memory
  CHECK(old[0] == 2 * tiny);

  auto add16 = [](auto function, u16 a, u16 b) {
    u16 value = a;
    Lanes<u64> where{};
    Lanes<u16> with{}, before{};
    where[0] = address(value);
    with[0] = b;
    function(1, where.data(), with.data(), before.data());
    CHECK(before[0] == a);
    return value;
  };
  CHECK(add16(sgrt_atom_add_f16, 0x3c00, 0x4000) == 0x4200);   // 1 + 2
  CHECK(add16(sgrt_atom_add_f16, 0x6800, 0x3c00) == 0x6800);   // 2048 + 1: to even
  CHECK(add16(sgrt_atom_add_f16, 0x6801, 0x3c00) == 0x6802);   // 2050 + 1: to even
  CHECK(add16(sgrt_atom_add_f16, 0x7bff, 0x7bff) == 0x7c00);   // overflow
  CHECK(add16(sgrt_atom_add_f16, 0x0001, 0x0001) == 0x0002);   // subnormal
  CHECK(add16(sgrt_atom_add_f16, 0x7c00, 0xfc00) == 0x7fff);   // inf - inf
  CHECK(add16(sgrt_atom_add_bf16, 0x3f80, 0x4000) == 0x4040);  // 1 + 2
  CHECK(add16(sgrt_atom_add_bf16, 0x4380, 0x3f80) == 0x4380);  // 256 + 1: to even
  CHECK(add16(sgrt_atom_add_bf16, 0x4381, 0x3f80) == 0x4382);  // 258 + 1: to even
  CHECK(add16(sgrt_atom_add_bf16, 0x7f80, 0xff80) == 0x7fff);
  // Just above and just below the middle, by less than f32 can hold next to it.
  CHECK(add16(sgrt_atom_add_bf16, 0x3f80, 0x3b80) == 0x3f80);  // 1 + 2^-8: a tie, to even
  u32 pair = 0x3c004000;
  Lanes<u64> where{};
  Lanes<u32> with{}, before{};
  where[0] = address(pair);
  with[0] = 0x40003c00;
  sgrt_atom_add_f16x2(1, where.data(), with.data(), before.data());
  CHECK(pair == 0x42004200);
  pair = 0x3f804000;
  with[0] = 0x40003f80;
  sgrt_shared_add_bf16x2(1, where.data(), with.data(), before.data());
  CHECK(pair == 0x40404040);
}

TEST_CASE("match and redux see active members only") {
  Lanes<u32> value, members, out;
  Lanes<u64> wide;
  Lanes<s32> negative, least;
  Lanes<u32> predicate;
  for (u32 k = 0; k < 32; ++k) {
    value[k] = k % 3;
    wide[k] = k < 16 ? u64{1} << 40 : k;
    negative[k] = static_cast<s32>(k) - 20;
    members[k] = k < 16 ? 0x0000ffffu : 0xffff0000u;
  }
  const u32 mask = 0xfffffffeu;  // lane 0 is inactive
  out.fill(123);
  sgrt_match_any_b32(mask, value.data(), members.data(), out.data());
  CHECK(out[0] == 123);
  for (u32 k = 1; k < 32; ++k) {
    u32 expected = 0;
    for (u32 other = 1; other < 32; ++other)
      if (other % 3 == k % 3 && other / 16 == k / 16) expected |= 1u << other;
    CHECK(out[k] == expected);
  }
  sgrt_match_all_b64(mask, wide.data(), members.data(), out.data(), predicate.data());
  for (u32 k = 1; k < 32; ++k) {
    CHECK(out[k] == (k < 16 ? 0xfffeu : 0));
    CHECK(predicate[k] == (k < 16 ? 1 : 0));
  }
  sgrt_redux_add_u32(mask, value.data(), members.data(), out.data());
  CHECK(out[1] == 15);
  CHECK(out[31] == 16);
  sgrt_redux_min_s32(mask, negative.data(), members.data(), least.data());
  CHECK(least[1] == -19);
  CHECK(least[16] == -4);
  sgrt_redux_xor_b32(0x3u, value.data(), members.data(), out.data());
  CHECK(out[0] == 1);
}

TEST_CASE_TEMPLATE_DEFINE("directed rounding", Case, directed) { Case::check(); }
#define DIRECTED_CASE(MODE)                                                                        \
  struct Directed_##MODE {                                                                         \
    static void check() {                                                                          \
      using q = __float128;                                                                        \
      const Mode mode = Mode::MODE;                                                                \
      check_binary<float>(sgrt_add_##MODE##_f32, mode, [](q a, q b) { return a + b; });            \
      check_binary<float>(sgrt_mul_##MODE##_f32, mode, [](q a, q b) { return a * b; });            \
      check_binary<double>(sgrt_add_##MODE##_f64, mode, [](q a, q b) { return a + b; });           \
      check_binary<double>(sgrt_mul_##MODE##_f64, mode, [](q a, q b) { return a * b; });           \
      check_binary<float>(                                                                         \
          [](const float* a, const float* b, float* out) { sgrt_fma_##MODE##_f32(a, b, a, out); }, \
          mode, [](q a, q b) { return a * b + a; });                                               \
      check_conversion<double, float>(sgrt_cvt_##MODE##_f32_f64, mode);                            \
      check_conversion<u32, float>(sgrt_cvt_##MODE##_f32_u32, mode);                               \
      check_conversion<s64, float>(sgrt_cvt_##MODE##_f32_s64, mode);                               \
      check_conversion<u64, float>(sgrt_cvt_##MODE##_f32_u64, mode);                               \
      check_conversion<s64, double>(sgrt_cvt_##MODE##_f64_s64, mode);                              \
      check_conversion<u64, double>(sgrt_cvt_##MODE##_f64_u64, mode);                              \
      Lanes<float> three, one, out;                                                                \
      three.fill(3);                                                                               \
      one.fill(1);                                                                                 \
      const bool up = mode == Mode::rp;                                                            \
      sgrt_div_##MODE##_f32(one.data(), three.data(), out.data());                                 \
      CHECK(std::bit_cast<u32>(out[31]) == (up ? 0x3eaaaaabu : 0x3eaaaaaau));                      \
      sgrt_rcp_##MODE##_f32(three.data(), out.data());                                             \
      CHECK(std::bit_cast<u32>(out[0]) == (up ? 0x3eaaaaabu : 0x3eaaaaaau));                       \
      sgrt_sqrt_##MODE##_f32(three.data(), out.data());                                            \
      CHECK(std::bit_cast<u32>(out[5]) == (up ? 0x3fddb3d8u : 0x3fddb3d7u));                       \
      volatile float third = 1.0f;                                                                 \
      CHECK(third / 3 == 1.0f / 3); /* the mode is as it was */                                    \
    }                                                                                              \
  }
DIRECTED_CASE(rz);
DIRECTED_CASE(rm);
DIRECTED_CASE(rp);
TEST_CASE_TEMPLATE_INVOKE(directed, Directed_rz, Directed_rm, Directed_rp);

TEST_CASE("the global timer is wall time in nanoseconds") {
  const u64 before = sgrt_globaltimer();
  CHECK(before > u64{1'600'000'000} * 1'000'000'000);
  CHECK(sgrt_globaltimer() >= before);
}
