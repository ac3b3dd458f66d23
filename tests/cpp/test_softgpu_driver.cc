// The graph of operations behind streams, and the joining of PTX texts.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "remoting/softgpu/driver/merge_ptx.h"
#include "remoting/softgpu/driver/work.h"

namespace softgpu = headrace::softgpu;

namespace {

// Leaked, as in the library: its threads may outlive the test.
softgpu::Engine& engine() {
  static softgpu::Engine* one = new softgpu::Engine();
  return *one;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++out;
  }
  return out;
}

}  // namespace

TEST_CASE("operations run after what they wait for") {
  std::vector<int> order;
  softgpu::OperationPtr last;
  for (int i = 0; i < 1000; ++i) {
    last = engine().submit([&order, i] { order.push_back(i); }, 0, {last});
  }
  last->wait();
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(order[i] == i);
}

TEST_CASE("an operation may wait for many and many for it") {
  std::atomic<int> before{0}, after{0};
  std::vector<softgpu::OperationPtr> first, second;
  for (int i = 0; i < 50; ++i) first.push_back(engine().submit([&] { ++before; }, 0, {}));
  int seen = 0;
  softgpu::OperationPtr middle = engine().submit([&] { seen = before; }, 0, first);
  for (int i = 0; i < 50; ++i) second.push_back(engine().submit([&] { ++after; }, -1, {middle}));
  for (const softgpu::OperationPtr& one : second) one->wait();
  CHECK(seen == 50);
  CHECK(after == 50);
}

TEST_CASE("one that blocks does not stop another") {
  std::atomic<int> gate{0};
  std::vector<softgpu::OperationPtr> blocked;
  for (int i = 0; i < 20; ++i) {
    blocked.push_back(engine().submit([&] { gate.wait(0); }, 0, {}));
  }
  softgpu::OperationPtr opener = engine().submit(
      [&] {
        gate = 1;
        gate.notify_all();
      },
      0, {});
  for (const softgpu::OperationPtr& one : blocked) one->wait();
  CHECK(opener != nullptr);
}

TEST_CASE("an operation drops what it held before it is seen to be done") {
  std::shared_ptr<int> held = std::make_shared<int>(1);
  softgpu::OperationPtr operation = engine().submit([held] { ++*held; }, 0, {});
  operation->wait();
  CHECK(held.use_count() == 1);
}

TEST_CASE("one text is left as it is") {
  CHECK(softgpu::merge_ptx({"// a\n.version 8.0\n"}) == "// a\n.version 8.0\n");
}

TEST_CASE("a limit on registers goes to the entries that have none of their own") {
  std::string text =
      ".version 8.0\n// .entry in words {\n.func f() { ret; }\n.entry a(.param .u64 p)\n{ ret; }\n"
      ".entry b() .maxnreg 16 { ret; }\n.entry c()\n.maxntid 32, 1, 1\n{ ret; }\n";
  CHECK(softgpu::limit_registers(text, 24) ==
        ".version 8.0\n// .entry in words {\n.func f() { ret; }\n"
        ".entry a(.param .u64 p)\n.maxnreg 24\n{ ret; }\n"
        ".entry b() .maxnreg 16 { ret; }\n.entry c()\n.maxntid 32, 1, 1\n.maxnreg 24\n{ ret; }\n");
}

TEST_CASE("of weak definitions one stands, and none beside a strong one") {
  std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  std::string weak = head + ".weak .func once() { ret; }\n.weak .func both() { trap; }\n";
  std::string strong = head + ".visible .func both() { ret; }\n";
  std::string joined = softgpu::merge_ptx({weak, weak, strong});
  CHECK(count(joined, "once") == 1);
  CHECK(count(joined, "both") == 1);
  CHECK(count(joined, ".visible .func both") == 1);
}

TEST_CASE("texts are joined under the newest head, without declarations of what is defined") {
  std::string caller =
      "//\n.version 7.0\n.target sm_75\n.address_size 64\n"
      ".extern .func (.param .b32 result) twice\n(\n  .param .b32 x\n)\n;\n"
      ".extern .global .align 4 .b32 shared_counter;\n"
      ".extern .func  (.param .b32 status) vprintf (.param .b64 f, .param .b64 a);\n"
      ".visible .entry k(.param .u64 p)\n{\n  { call.uni twice, (x); }\n  ret; // }\n}\n";
  std::string callee =
      ".version 8.1\n.target sm_80\n.address_size 64\n"
      ".extern .func  (.param .b32 status) vprintf (.param .b64 f, .param .b64 a);\n"
      ".visible .global .align 4 .b32 shared_counter = 5;\n"
      ".global .align 1 .b8 text[4] = {37, 100, 10, 0};\n"
      ".visible .func (.param .b32 result) twice(.param .b32 x)\n{\n  ret;\n}\n";
  std::string joined = softgpu::merge_ptx({caller, callee});
  CHECK(count(joined, ".version") == 1);
  CHECK(joined.find(".version 8.1") != std::string::npos);
  CHECK(count(joined, ".target") == 1);
  CHECK(count(joined, ".address_size") == 1);
  CHECK(count(joined, ".extern .func (.param .b32 result) twice") == 0);
  CHECK(count(joined, "shared_counter") == 1);
  CHECK(count(joined, "vprintf") == 1);
  CHECK(count(joined, ".visible .func (.param .b32 result) twice") == 1);
  CHECK(count(joined, ".visible .entry k") == 1);
  CHECK(joined.find("text[4] = {37, 100, 10, 0};") != std::string::npos);
}
