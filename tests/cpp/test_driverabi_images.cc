// Readers of cubins, PTX headers and fatbins in remoting/driverabi, against what nvcc writes, and
// against truncated and damaged copies of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "driverabi/cubin.h"
#include "driverabi/fatbin.h"
#include "driverabi/image.h"
#include "driverabi/ptx_entries.h"

namespace {

namespace abi = headrace::driverabi;

constexpr std::uint64_t kLimit = 1 << 26;

std::vector<std::uint8_t> read_image(const std::string& name) {
  std::ifstream file(std::string(HEADRACE_TEST_IMAGES) + "/" + name, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const abi::KernelLayout* find(const std::vector<abi::KernelLayout>& kernels,
                              const std::string& part) {
  for (const abi::KernelLayout& kernel : kernels) {
    if (kernel.name.find(part) != std::string::npos) return &kernel;
  }
  return nullptr;
}

// char, pointer, short, 3-byte struct, 16-aligned struct, int, double: ordinary C layout.
const std::vector<abi::ParamSlot> kMixed = {{0, 1},   {8, 8},  {16, 2}, {18, 3},
                                            {32, 32}, {64, 4}, {72, 8}};

void check_kernels(const std::vector<abi::KernelLayout>& kernels) {
  CHECK(kernels.size() == 3);
  const abi::KernelLayout* mixed = find(kernels, "mixed");
  REQUIRE(mixed != nullptr);
  CHECK(mixed->params == kMixed);
  CHECK(mixed->param_bytes == 80);
  const abi::KernelLayout* none = find(kernels, "no_parameters");
  REQUIRE(none != nullptr);
  CHECK(none->params.empty());
  CHECK(none->param_bytes == 0);
  CHECK(none->max_threads == 128);
  CHECK(find(kernels, "hidden") != nullptr);
  CHECK(find(kernels, "helper") == nullptr);
}

}  // namespace

TEST_CASE("cubin: kernels with layouts and attributes, and no device functions") {
  for (const auto& [name, sm] :
       {std::pair{"sm_80.cubin", 80U}, std::pair{"sm_120.cubin", 120U},
        std::pair{"relocatable_80.cubin", 80U}, std::pair{"relocatable_120.cubin", 120U}}) {
    const std::vector<std::uint8_t> image = read_image(name);
    CHECK(abi::elf_size(image) == image.size());
    const std::optional<abi::CubinInfo> info = abi::read_cubin(image);
    REQUIRE(info);
    CHECK(info->sm == sm);
    check_kernels(info->kernels);
    CHECK(find(info->kernels, "mixed")->registers > 4);
    CHECK(find(info->kernels, "mixed")->shared_bytes == 128);
  }
}

TEST_CASE("cubin: variables with their initial values, and no managed ones") {
  for (const char* name :
       {"sm_80.cubin", "sm_120.cubin", "relocatable_80.cubin", "relocatable_120.cubin"}) {
    const std::vector<std::uint8_t> image = read_image(name);
    const std::optional<abi::CubinVariables> found = abi::read_cubin_variables(image, kLimit);
    REQUIRE(found);
    const auto variable = [&](const std::string& wanted) -> const abi::CubinVariable* {
      for (const abi::CubinVariable& one : found->variables) {
        if (one.name == wanted) return &one;
      }
      return nullptr;
    };
    REQUIRE(variable("factors") != nullptr);
    CHECK(variable("factors")->size == 16);
    CHECK(variable("factors")->constant);
    REQUIRE(variable("factors")->offset + 16 <= found->initial.size());
    CHECK(found->initial[variable("factors")->offset + 8] == 3);
    REQUIRE(variable("counter") != nullptr);
    CHECK(found->initial.at(variable("counter")->offset) == 7);
    REQUIRE(variable("room") != nullptr);
    CHECK(variable("room")->size == 1 << 20);
    CHECK(variable("room")->offset + (1 << 20) <= found->bytes);
    CHECK(found->initial.size() < 1 << 20);  // zeros are not stored
    CHECK(variable("managed") == nullptr);
    CHECK(variable("mixed") == nullptr);
    CHECK_FALSE(abi::read_cubin_variables(image, 1 << 20));
  }
}

TEST_CASE("PTX: the same layouts as the cubin's") {
  const std::vector<std::uint8_t> image = read_image("sm_80.ptx");
  const std::string text(image.begin(), image.end());
  CHECK(abi::looks_like_ptx(text));
  const std::optional<std::vector<abi::KernelLayout>> kernels = abi::read_ptx_entries(text);
  REQUIRE(kernels);
  check_kernels(*kernels);
}

TEST_CASE("PTX headers that compilers other than nvcc write") {
  const std::optional<std::vector<abi::KernelLayout>> kernels = abi::read_ptx_entries(R"(
    .version 8.0 // .entry in_a_comment(
    .target sm_80, debug
    .file 1 ".entry in_a_string("
    .visible .entry a(.param .u64 .ptr .global .align 16 p0, .param .align 16 .b8 p1[20],
                      .param .u32 p2) .maxntid 32, 4, 2 .minnctapersm 1 { ret; }
    .entry b { ret; }
    /* .entry c( */ .weak .entry d ( ) .reqntid 64 { ret; }
    .visible .entry e(.param .f32 x)
    ;)");
  REQUIRE(kernels);
  REQUIRE(kernels->size() == 4);
  CHECK((*kernels)[0].params == std::vector<abi::ParamSlot>{{0, 8}, {16, 20}, {36, 4}});
  CHECK((*kernels)[0].max_threads == 256);
  CHECK((*kernels)[1].params.empty());
  CHECK((*kernels)[2].name == "d");
  CHECK((*kernels)[2].max_threads == 64);
  CHECK((*kernels)[3].params == std::vector<abi::ParamSlot>{{0, 4}});
}

TEST_CASE("PTX headers that are not understood are not guessed at") {
  for (const char* text :
       {".entry", ".entry (", ".entry a(", ".entry a(.param", ".entry a(.param .u32 x",
        ".entry a(.param .what x) {", ".entry a(.param .b8 x[99999999999999999999]) {",
        ".entry a(.param .b8 x[-1]) {", ".entry a(.param .align 3 .b8 x[4]) {",
        ".entry a(.param .b8 x[60000], .param .b8 y[60000]) {", ".entry a() .maxntid 0 {"}) {
    CAPTURE(text);
    CHECK_FALSE(abi::read_ptx_entries(text));
  }
  CHECK_FALSE(abi::looks_like_ptx("hello"));
  CHECK_FALSE(abi::looks_like_ptx(""));
}

TEST_CASE("fatbin: entries, both compressions, selection for a device") {
  for (const char* name : {"zstd.fatbin", "lz4.fatbin"}) {
    CAPTURE(name);
    const std::vector<std::uint8_t> container = read_image(name);
    CHECK(abi::fatbin_size(container) == container.size());
    const std::optional<std::vector<abi::FatbinEntry>> entries = abi::read_fatbin(container);
    REQUIRE(entries);
    CHECK(entries->size() == 3);
    bool any_compressed = false;
    for (const abi::FatbinEntry& entry : *entries) {
      any_compressed = any_compressed || entry.compressed();
      std::vector<std::uint8_t> plain;
      REQUIRE(abi::unpack(entry, kLimit, plain));
      CHECK_FALSE(abi::unpack(entry, 16, plain));
    }
    CHECK(any_compressed);

    const abi::Selection on_80 = abi::select_entries(*entries, 80);
    REQUIRE(on_80.sass >= 0);
    CHECK((*entries)[on_80.sass].arch.sm == 80);
    CHECK(on_80.ptx >= 0);
    const abi::Selection on_90 = abi::select_entries(*entries, 90);
    REQUIRE(on_90.sass >= 0);
    CHECK((*entries)[on_90.sass].arch == abi::Architecture{90, true, false});
    const abi::Selection on_100 = abi::select_entries(*entries, 100);
    CHECK(on_100.sass < 0);
    CHECK(on_100.ptx >= 0);
    const abi::Selection on_75 = abi::select_entries(*entries, 75);
    CHECK(on_75.sass < 0);
    CHECK(on_75.ptx < 0);

    for (const std::uint32_t sm : {80U, 86U, 90U, 100U}) {
      const std::optional<abi::Image> image = abi::image_at(container.data());
      REQUIRE(image);
      CHECK(image->bytes.size() == container.size());
      const auto kernels = abi::kernels_of(*image, sm, kLimit);
      REQUIRE(kernels);
      check_kernels(*kernels);
    }
    const auto copied = abi::write_fatbin({(*entries)[on_80.ptx]});
    const auto again = abi::read_fatbin(copied);
    REQUIRE(again);
    CHECK(again->size() == 1);
    CHECK((*again)[0].kind == abi::EntryKind::ptx);
  }
}

TEST_CASE("which architectures an image runs on") {
  CHECK(abi::sass_runs_on({80, false, false}, 86));
  CHECK_FALSE(abi::sass_runs_on({86, false, false}, 80));
  CHECK_FALSE(abi::sass_runs_on({80, false, false}, 90));
  CHECK(abi::sass_runs_on({90, true, false}, 90));
  CHECK_FALSE(abi::sass_runs_on({100, true, false}, 103));
  CHECK(abi::sass_runs_on({100, false, true}, 103));
  CHECK_FALSE(abi::sass_runs_on({100, false, true}, 120));
  CHECK(abi::ptx_runs_on({75, false, false}, 120));
  CHECK_FALSE(abi::ptx_runs_on({120, false, false}, 90));
  CHECK_FALSE(abi::ptx_runs_on({90, true, false}, 100));
}

TEST_CASE("images by address: wrapper, cubin, text, and what is none") {
  const std::vector<std::uint8_t> container = read_image("zstd.fatbin");
  struct {
    std::uint32_t magic = abi::kFatbinWrapperMagic;
    std::uint32_t version = 1;
    const void* data;
    const void* more = nullptr;
  } wrapper;
  wrapper.data = container.data();
  const std::optional<abi::Image> wrapped = abi::image_at(&wrapper);
  REQUIRE(wrapped);
  CHECK(wrapped->kind == abi::ImageKind::fatbin);
  const std::vector<std::uint8_t> cubin = read_image("sm_80.cubin");
  CHECK(abi::image_at(cubin.data())->kind == abi::ImageKind::cubin);
  const std::optional<abi::Image> text = abi::image_at("// c\n.version 7.0\n");
  REQUIRE(text);
  CHECK(text->kind == abi::ImageKind::ptx);
  CHECK_FALSE(abi::image_at(nullptr));
  CHECK_FALSE(abi::image_at(""));
  CHECK_FALSE(abi::image_at("garbage"));
  CHECK_FALSE(abi::image_in(abi::Bytes(reinterpret_cast<const std::uint8_t*>(&wrapper), 24)));
}

TEST_CASE("truncated and damaged images never read outside and never crash") {
  std::minstd_rand random(20);
  for (const char* name : {"sm_80.cubin", "relocatable_120.cubin", "sm_120.cubin", "zstd.fatbin",
                           "lz4.fatbin", "sm_80.ptx"}) {
    const std::vector<std::uint8_t> good = read_image(name);
    for (int round = 0; round < 300; ++round) {
      // An exact-size heap copy, so that a sanitizer sees a read of one byte too many.
      std::vector<std::uint8_t> bad(good.begin(), good.begin() + random() % good.size());
      bad.shrink_to_fit();
      if (const auto image = abi::image_in(bad)) abi::kernels_of(*image, 80, kLimit);
      bad = good;
      for (int i = 0; i < 8; ++i) bad[random() % bad.size()] = static_cast<std::uint8_t>(random());
      for (int i = 0; i < 4; ++i) bad[random() % 64] = static_cast<std::uint8_t>(random());
      bad[random() % std::min<std::size_t>(bad.size(), 512)] ^= 0xff;
      if (const auto image = abi::image_in(bad)) abi::kernels_of(*image, 80, kLimit);
      abi::read_cubin(bad);
      abi::read_cubin_variables(bad, kLimit);
      abi::read_fatbin(bad);
    }
  }
}
