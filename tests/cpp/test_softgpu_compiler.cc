// The client of the compile helper, against real helper processes with the tests' translator.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "softgpu/compiler/client.h"
#include "softgpu/compiler/json.h"
#include "softgpu/exec/executor.h"

using namespace headrace::softgpu;
namespace fs = std::filesystem;

namespace {

const std::string kHelper =
    HEADRACE_TEST_PYTHON " " HEADRACE_TEST_SOURCE
                         "/tests/unit/softgpu_compiler/run_helper.py --translator "
                         "fake_translator --device-archive " HEADRACE_TEST_DEVICE_ARCHIVE;

const char* const kKernel = R"(
extern void sgrt_atom_add_u32(unsigned, const unsigned long*, const unsigned*, unsigned*);
static void body(sg_warp_env* env) {
  unsigned long address[32] = {*(unsigned long*)env->params};
  unsigned one[32] = {5}, old[32];
  sgrt_atom_add_u32(1, address, one, old);
}
__attribute__((visibility("default"))) const sg_kernel_desc sgk_desc = {
    SG_ABI_VERSION, 0, NAME, body, 0, 0, 8, 0, 0, 0, {0, 0, 0}, 1};
)";

std::string module_text(const std::string& orders = "") {
  return "//fake\n//kernel first\n//kernel second\n" + orders + kKernel;
}

// Waits for something that other processes do, without an end of its own: the tests' time limit
// is the runner's.
void until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// A folder for sockets and cache, and an environment in which the client uses it.
struct Place {
  Place() {
    char name[] = "/tmp/headrace-test-XXXXXX";
    folder = mkdtemp(name);
    setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
    setenv("HEADRACE_SOFTGPU_LOG", (folder + "/log").c_str(), 1);
    settings.compiler = kHelper;
    settings.cache = folder + "/cache";
  }
  ~Place() {
    until([&] { return sockets() == 0; });  // helpers end with their clients, which are gone
    fs::remove_all(folder);
  }
  std::size_t sockets() const {
    std::size_t count = 0;
    if (!fs::exists(folder + "/headrace-softgpu")) return 0;
    for (const auto& entry : fs::directory_iterator(folder + "/headrace-softgpu"))
      count += entry.path().extension() == ".sock";
    return count;
  }
  std::string folder;
  CompilerSettings settings;
};

std::uint32_t run_first(const std::string& path) {
  std::string error;
  std::unique_ptr<KernelImage> image = KernelImage::load(path, error);
  REQUIRE_MESSAGE(image, error);
  std::uint32_t counter = 0;
  const std::uint64_t param = reinterpret_cast<std::uint64_t>(&counter);
  Launch launch;
  launch.kernel = image->desc();
  launch.grid = {3, 1, 1};
  launch.block = {32, 1, 1};
  launch.params = reinterpret_cast<const std::uint8_t*>(&param);
  launch.params_bytes = sizeof(param);
  REQUIRE(run(launch).ok());
  return counter;
}

}  // namespace

TEST_CASE("a helper is started on demand, and its kernels run") {
  Place place;
  {
    CompilerClient client(place.settings);
    std::string text = module_text();
    text.push_back('\0');
    JitResult<ModuleInfo> module = client.inspect(text);
    REQUIRE_MESSAGE(module.ok(), module.error().message);
    const ModuleInfo& info = module.value();
    CHECK(info.version == "8.7");
    CHECK(info.target == "sm_80");
    CHECK(info.hash.size() == 64);
    REQUIRE(info.kernels.size() == 2);
    REQUIRE(info.kernel("second") != nullptr);
    CHECK(info.kernel("third") == nullptr);
    CHECK(info.kernels[1].params.size() == 2);
    CHECK(info.kernels[1].params[1].offset == 8);
    CHECK(info.kernels[1].params[1].size == 4);
    CHECK(info.kernels[1].max_threads == 256);
    CHECK(info.globals_bytes == 4096);
    CHECK(info.globals_align == 256);
    REQUIRE(info.globals.size() == 2);
    CHECK(info.globals[1].name == "limit");
    CHECK(info.globals[1].constant);
    CHECK(info.image.size() == 20);
    CHECK(info.image[19] == 19);
    REQUIRE(info.relocations.size() == 1);
    CHECK(info.relocations[0].addend == -4);
    CHECK(info.relocations[0].generic);
    JitResult<std::string> path = client.compile(info, "first");
    REQUIRE_MESSAGE(path.ok(), path.error().message);
    CHECK(run_first(path.value()) == 15);
    CHECK(place.sockets() == 1);
  }
  until([&] { return place.sockets() == 0; });  // it ended with its last client
}

TEST_CASE("the command of the build compiles PTX, wherever the program stands") {
  Place place;
  place.settings.compiler.clear();
  // Python would take its own modules from here if it looked.
  for (const char* name : {"json", "asyncio", "remoting"})
    std::ofstream(place.folder + "/" + name + ".py") << "raise SystemExit(1)\n";
  const fs::path before = fs::current_path();
  fs::current_path(place.folder);
  {
    CompilerClient client(place.settings);
    JitResult<ModuleInfo> module = client.inspect(
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry count(.param .u64 to)\n{\n"
        "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
        "  ld.param.u64 %rd1, [to];\n  atom.global.add.u32 %r1, [%rd1], 2;\n  ret;\n}\n");
    REQUIRE_MESSAGE(module.ok(), module.error().message);
    JitResult<std::string> path = client.compile(module.value(), "count");
    REQUIRE_MESSAGE(path.ok(), path.error().message);
    std::string error;
    std::unique_ptr<KernelImage> image = KernelImage::load(path.value(), error);
    REQUIRE_MESSAGE(image, error);
    alignas(64) std::uint32_t counter = 0;
    const std::uint64_t param = reinterpret_cast<std::uint64_t>(&counter);
    Launch launch;
    launch.kernel = image->desc();
    launch.grid = {5, 1, 1};
    launch.block = {70, 1, 1};
    launch.params = reinterpret_cast<const std::uint8_t*>(&param);
    launch.params_bytes = sizeof(param);
    launch.arena = {param, param + sizeof(counter)};
    CHECK(run(launch).ok());
    CHECK(counter == 5 * 70 * 2);
    launch.arena = {param + 64, param + 128};  // the counter is no device memory any more
    const LaunchResult result = run(launch);
    CHECK(result.status == LaunchStatus::illegal_address);
    CHECK(result.address == param);
    CHECK(counter == 5 * 70 * 2);
  }
  fs::current_path(before);
}

TEST_CASE("quick code comes first, optimised code is asked for") {
  Place place;
  place.settings.compiler += " --quick-from 1";
  CompilerClient client(place.settings);
  JitResult<ModuleInfo> module = client.inspect(module_text("//tiers\n"));
  REQUIRE(module.ok());
  JitResult<KernelObject> quick = client.compile_in_tiers(module.value(), "first");
  REQUIRE_MESSAGE(quick.ok(), quick.error().message);
  CHECK(!quick.value().final);
  CHECK(run_first(quick.value().path) == 15);
  std::string path;
  until([&] {
    JitResult<std::optional<std::string>> better = client.better(module.value(), "first");
    REQUIRE_MESSAGE(better.ok(), better.error().message);
    if (better.value()) path = *better.value();
    return better.value().has_value();
  });
  CHECK(path != quick.value().path);
  CHECK(run_first(path) == 15);
  JitResult<KernelObject> now = client.compile_in_tiers(module.value(), "first");
  REQUIRE(now.ok());
  CHECK(now.value().final);
  CHECK(now.value().path == path);
}

TEST_CASE("the helper is no child of this process") {
  Place place;
  CompilerClient client(place.settings);
  REQUIRE(client.inspect(module_text()).ok());
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("errors have kind, text and line") {
  Place place;
  CompilerClient client(place.settings);
  JitResult<ModuleInfo> garbage = client.inspect("garbage");
  REQUIRE(!garbage.ok());
  CHECK(garbage.error().kind == JitErrorKind::invalid_ptx);
  CHECK(garbage.error().line == 1);
  JitResult<ModuleInfo> module = client.inspect(module_text("//refuse tcgen05.mma\n"));
  REQUIRE(module.ok());
  JitResult<std::string> refused = client.compile(module.value(), "first");
  REQUIRE(!refused.ok());
  CHECK(refused.error().kind == JitErrorKind::unsupported_form);
  CHECK(refused.error().message == "instruction form not supported: tcgen05.mma");
  CHECK(refused.error().line == 4);
}

TEST_CASE("a helper that cannot be started or found is reported as missing") {
  Place place;
  for (const std::string& command :
       {std::string("/nonexistent/compiler --flag"), std::string("unix:/nonexistent/socket"),
        std::string("/bin/false"), std::string(" ")}) {
    CAPTURE(command);
    place.settings.compiler = command;
    CompilerClient client(place.settings);
    JitResult<ModuleInfo> module = client.inspect(module_text());
    REQUIRE(!module.ok());
    CHECK(module.error().kind == JitErrorKind::compiler_not_found);
    CHECK(module.error().message.size() > 20);
  }
  fs::remove_all(place.folder +
                 "/headrace-softgpu");  // with the socket that /bin/false never served
}

TEST_CASE("clients with equal settings share a helper, from many threads") {
  Place place;
  std::atomic<int> good{0};
  CompilerClient shared(place.settings);
  JitResult<ModuleInfo> module = shared.inspect(module_text("//shared\n"));
  REQUIRE(module.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      CompilerClient own(place.settings);
      CompilerClient& client = i % 2 == 0 ? shared : own;
      JitResult<std::string> path = client.compile(module.value(), i % 3 == 0 ? "first" : "second");
      good += path.ok() && fs::exists(path.value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 6);
  CHECK(place.sockets() == 1);
}

TEST_CASE("a helper that was killed is replaced, and told the module again") {
  Place place;
  CompilerClient client(place.settings);
  JitResult<ModuleInfo> module = client.inspect(module_text("//killed\n"));
  REQUIRE(module.ok());
  std::ifstream log(place.folder + "/log");
  std::string words;
  std::getline(log, words);
  const std::size_t start = words.find("compiler[") + 9;
  const pid_t helper = static_cast<pid_t>(std::stol(words.substr(start)));
  REQUIRE(helper > 1);
  REQUIRE(kill(helper, SIGKILL) == 0);
  until([&] { return kill(helper, 0) != 0; });
  JitResult<std::string> path = client.compile(module.value(), "first");
  REQUIRE_MESSAGE(path.ok(), path.error().message);
  CHECK(run_first(path.value()) == 15);
}

TEST_CASE("a forked child makes its own connections and keeps no helper alive") {
  Place place;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  pid_t idle_child = 0;
  {
    CompilerClient client(place.settings);
    JitResult<ModuleInfo> module = client.inspect(module_text("//forked\n"));
    REQUIRE(module.ok());
    const pid_t child = fork();
    if (child == 0) {
      const bool good = client.compile(module.value(), "first").ok();
      _exit(good ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(client.compile(module.value(), "first").ok());
    idle_child = fork();
    if (idle_child == 0) {
      char byte;
      close(pipe_ends[1]);
      _exit(read(pipe_ends[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  until([&] { return place.sockets() == 0; });  // though the child lives
  close(pipe_ends[1]);
  close(pipe_ends[0]);
  waitpid(idle_child, nullptr, 0);
}

TEST_CASE("JSON is read within bounds") {
  using json::Value;
  std::optional<Value> value = Value::parse(
      R"( {"a":[1,-2,3.5e3,true,null],"b":{"c":"x\n\u00e9\ud83d\ude00\"/"},"d":"é"} )");
  REQUIRE(value);
  CHECK((*value)["a"].items().size() == 5);
  CHECK((*value)["a"].items()[1].integer() == -2);
  CHECK((*value)["a"].items()[3].truth());
  CHECK((*value)["b"]["c"].text() == "x\n\u00e9\U0001f600\"/");
  CHECK((*value)["nothing"]["here"].text().empty());
  CHECK((*value)["a"].u32() == 0);
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "\"\\x\"", "\"\\ud800\"", "tru", "1 2",
                          "{1:2}", "\"open", "[\"a\" \"b\"]", "nul", "-", "\"\\u12\""})
    CHECK_MESSAGE(!Value::parse(bad), bad);
  CHECK(!Value::parse(std::string(100, '[') + std::string(100, ']')));
  CHECK(Value::parse(json::quote("a\"\\\n\x01z"))->text() == "a\"\\\n\x01z");
}
