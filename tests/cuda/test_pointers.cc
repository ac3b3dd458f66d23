// What a pointer is. Libraries decide by these answers how to treat memory, so each kind has its
// line here, and the answers must be the same whatever context is current.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "tests/cuda/driver.h"

namespace {

constexpr std::size_t kBytes = 5000;
constexpr int kNoDevice = -2;  // CU_DEVICE_INVALID

// The answers to a fixed list of questions.
struct Answers {
  unsigned type = 0;
  CUcontext context = nullptr;
  CUdeviceptr device_pointer = 0;
  void* host_pointer = nullptr;
  int ordinal = kNoDevice;
  unsigned managed = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  unsigned mapped = 0;
  unsigned long long buffer = 0;
};

constexpr CUpointer_attribute kQuestions[] = {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_BUFFER_ID};
constexpr unsigned kCount = std::size(kQuestions);

void places(Answers& answers, void* (&out)[kCount]) {
  void* all[kCount] = {&answers.type,         &answers.context, &answers.device_pointer,
                       &answers.host_pointer, &answers.ordinal, &answers.managed,
                       &answers.start,        &answers.size,    &answers.mapped,
                       &answers.buffer};
  std::copy(all, all + kCount, out);
}

Answers filled() {
  Answers answers;
  std::memset(static_cast<void*>(&answers), 0x5a, sizeof answers);
  return answers;
}

bool same(const Answers& a, const Answers& b) {
  return a.type == b.type && a.context == b.context && a.device_pointer == b.device_pointer &&
         a.host_pointer == b.host_pointer && a.ordinal == b.ordinal && a.managed == b.managed &&
         a.start == b.start && a.size == b.size && a.mapped == b.mapped;
}

// All at once; then each by itself must say the same, or refuse where there is nothing to say.
Answers ask(CUdeviceptr address, bool known) {
  Answers all = filled(), single = filled();
  void *out[kCount], *one[kCount];
  places(all, out);
  places(single, one);
  CUpointer_attribute questions[kCount];
  std::copy(std::begin(kQuestions), std::end(kQuestions), questions);
  CU_IS(CUDA_SUCCESS, cu.cuPointerGetAttributes(kCount, questions, out, address));
  for (unsigned i = 0; i < kCount; ++i) {
    CAPTURE(i);
    const bool of_device_only = known && all.type == CU_MEMORYTYPE_DEVICE &&
                                kQuestions[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
    const CUresult expected = known && !of_device_only ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    CU_IS(expected, cu.cuPointerGetAttribute(one[i], kQuestions[i], address));
  }
  if (known) {
    if (all.type == CU_MEMORYTYPE_DEVICE) single.host_pointer = nullptr;
    CHECK(same(all, single));
    CHECK(all.buffer == single.buffer);
    CHECK(all.buffer != 0);
  }
  return all;
}

struct Line {
  std::string name;
  CUdeviceptr address = 0;
  Answers expected;
  bool known() const { return expected.type != 0; }
};

Line unknown(const std::string& name, const void* address) {
  return {name, reinterpret_cast<CUdeviceptr>(address), {}};
}

Line device_line(const std::string& name, CUdeviceptr base, std::size_t offset, CUcontext context,
                 int ordinal) {
  Answers expected;
  expected.type = CU_MEMORYTYPE_DEVICE;
  expected.context = context;
  expected.device_pointer = base + offset;
  expected.ordinal = ordinal;
  expected.start = base;
  expected.size = kBytes;
  expected.mapped = 1;
  return {name, base + offset, expected};
}

Line host_line(const std::string& name, void* base, std::size_t offset, CUcontext context,
               int ordinal) {
  const CUdeviceptr start = reinterpret_cast<CUdeviceptr>(base);
  Line line = device_line(name, start, offset, context, ordinal);
  line.expected.type = CU_MEMORYTYPE_HOST;
  line.expected.host_pointer = static_cast<char*>(base) + offset;
  return line;
}

void check_all(const std::vector<Line>& table) {
  for (const Line& line : table) {
    CAPTURE(line.name);
    const Answers got = ask(line.address, line.known());
    CHECK(got.type == line.expected.type);
    CHECK(got.context == line.expected.context);
    CHECK(got.device_pointer == line.expected.device_pointer);
    CHECK(got.host_pointer == line.expected.host_pointer);
    CHECK(got.ordinal == line.expected.ordinal);
    CHECK(got.managed == 0);
    CHECK(got.start == line.expected.start);
    CHECK(got.size == line.expected.size);
    CHECK(got.mapped == line.expected.mapped);
  }
}

// A device's primary context with memory of each kind.
struct Memory {
  int ordinal = 0;
  CUcontext context = nullptr;
  CUdeviceptr device = 0, pooled = 0;
  void* pinned = nullptr;
  std::vector<char> registered = std::vector<char>(kBytes + 64);

  explicit Memory(int which) : ordinal(which) {
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, ordinal));
    CU_OK(cu.cuCtxSetCurrent(context));
    CU_OK(cu.cuMemAlloc_v2(&device, kBytes));
    CU_OK(cu.cuMemAllocAsync(&pooled, kBytes, nullptr));
    CU_OK(cu.cuMemHostAlloc(&pinned, kBytes, 0));
    CU_OK(cu.cuMemHostRegister_v2(registered.data(), kBytes, 0));
  }
  ~Memory() {
    CU_IS(CUDA_SUCCESS, cu.cuCtxSetCurrent(context));
    CU_IS(CUDA_SUCCESS, cu.cuMemHostUnregister(registered.data()));
    CU_IS(CUDA_SUCCESS, cu.cuMemFreeHost(pinned));
    CU_IS(CUDA_SUCCESS, cu.cuMemFreeAsync(pooled, nullptr));
    CU_IS(CUDA_SUCCESS, cu.cuMemFree_v2(device));
    CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
    CU_IS(CUDA_SUCCESS, cu.cuCtxSetCurrent(nullptr));
    CU_IS(CUDA_SUCCESS, cu.cuDevicePrimaryCtxRelease_v2(ordinal));
  }

  void add_to(std::vector<Line>& table) {
    const std::string of = " of device " + std::to_string(ordinal);
    for (std::size_t offset : {std::size_t{0}, kBytes / 2, kBytes - 1}) {
      table.push_back(device_line("device memory" + of, device, offset, context, ordinal));
      table.push_back(device_line("pool memory" + of, pooled, offset, nullptr, ordinal));
      table.push_back(host_line("pinned memory" + of, pinned, offset, context, ordinal));
      table.push_back(
          host_line("registered memory" + of, registered.data(), offset, context, ordinal));
    }
    table.push_back(unknown("one past registered memory", registered.data() + kBytes));
  }
};

}  // namespace

TEST_SUITE("pointers") {
  TEST_CASE("every kind of pointer is told, whatever context is current") {
    int devices = 0;
    CU_OK(cu.cuDeviceGetCount(&devices));
    std::vector<std::unique_ptr<Memory>> memory;
    for (int i = 0; i < devices && i < 2; ++i) memory.push_back(std::make_unique<Memory>(i));
    CU_OK(cu.cuCtxSetCurrent(memory[0]->context));
    CUdeviceptr freed = 0;
    CU_OK(cu.cuMemAlloc_v2(&freed, 8 << 20));
    CU_OK(cu.cuMemFree_v2(freed));
    std::vector<char> pageable(100);
    int local = 0;
    std::vector<Line> table = {unknown("null", nullptr), unknown("malloc", pageable.data()),
                               unknown("stack", &local),
                               unknown("freed", reinterpret_cast<void*>(freed))};
    for (const std::unique_ptr<Memory>& one : memory) one->add_to(table);
    std::vector<CUcontext> contexts = {nullptr};
    for (const std::unique_ptr<Memory>& one : memory) contexts.push_back(one->context);
    for (CUcontext current : contexts) {
      CAPTURE(current);
      CU_OK(cu.cuCtxSetCurrent(current));
      check_all(table);
    }
    // The same from many threads at once.
    std::vector<int> wrong(8, 0);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        cu.cuCtxSetCurrent(contexts[t % contexts.size()]);
        for (int round = 0; round < 20; ++round) {
          for (const Line& line : table) {
            unsigned type = 0;
            const CUresult result =
                cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, line.address);
            wrong[t] += (result == CUDA_SUCCESS) != line.known() ||
                        (line.known() && type != line.expected.type);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int count : wrong) CHECK(count == 0);
    CU_OK(cu.cuCtxSetCurrent(nullptr));
  }

  TEST_CASE("two threads push and pop one context without disturbing each other") {
    Primary primary;
    std::vector<int> wrong(2, 0);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) {
          CUcontext popped = nullptr, current = nullptr;
          wrong[t] += cu.cuCtxPushCurrent_v2(primary.context) != CUDA_SUCCESS;
          wrong[t] += cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != primary.context;
          wrong[t] += cu.cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS || popped != primary.context;
          wrong[t] += cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != nullptr;
          CUdeviceptr none = 0;
          wrong[t] += cu.cuMemAlloc_v2(&none, 16) != CUDA_ERROR_INVALID_CONTEXT;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int count : wrong) CHECK(count == 0);
  }

  TEST_CASE("flags of host memory are those that were asked for") {
    Primary primary;
    void* memory = nullptr;
    unsigned flags = 0;
    CU_OK(cu.cuMemHostAlloc(&memory, 100, CU_MEMHOSTALLOC_WRITECOMBINED));
    CU_OK(cu.cuMemHostGetFlags(&flags, static_cast<char*>(memory) + 99));
    CHECK((flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0);
    CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) == 0);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetFlags(&flags, &flags));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetFlags(nullptr, memory));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CU_OK(cu.cuMemGetAddressRange_v2(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory) + 40));
    CHECK(base == reinterpret_cast<CUdeviceptr>(memory));
    CHECK(bytes == 100);
    CU_OK(cu.cuMemFreeHost(memory));
  }
}
