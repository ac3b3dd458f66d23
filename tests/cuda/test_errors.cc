// What CUDA refuses, it refuses at the call, with the same code: a table of cases. Impossible
// launches are in test_launches.cc.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "tests/cuda/driver.h"
#include "tests/cuda/kernels.h"

namespace {

struct Row {
  const char* what;
  CUresult expected;
  std::function<CUresult()> call;
};

void check_all(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(std::string(row.what));
    CU_IS(row.expected, row.call());
  }
  // None of it spoiled the context, or was told a second time.
  CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
  CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
}

// A context beside the primary one, which stays current.
class OtherContext {
 public:
  OtherContext() {
    CUcontext popped = nullptr;
    CU_OK(cu.cuCtxCreate_v2(&context, 0, 0));
    CU_OK(cu.cuModuleLoadData(&module, kKernels));
    CU_OK(cu.cuModuleGetFunction(&function, module, "nothing"));
    CU_OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_OK(cu.cuEventCreate(&event, 0));
    CU_OK(cu.cuCtxPopCurrent_v2(&popped));
  }
  ~OtherContext() { CU_IS(CUDA_SUCCESS, cu.cuCtxDestroy_v2(context)); }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

}  // namespace

TEST_SUITE("errors") {
  TEST_CASE("freed memory") {
    Primary primary;
    CUdeviceptr freed = 0, freed_in_order = 0;
    CUstream stream = make_stream();
    CU_OK(cu.cuMemAlloc_v2(&freed, 1 << 16));
    CU_OK(cu.cuMemFree_v2(freed));
    CU_OK(cu.cuMemAllocAsync(&freed_in_order, 1 << 16, stream));
    CU_OK(cu.cuMemFreeAsync(freed_in_order, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    std::uint32_t word = 0;
    check_all({
        {"freed twice", CUDA_ERROR_INVALID_VALUE, [&] { return cu.cuMemFree_v2(freed); }},
        {"freed twice in a stream's order", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemFreeAsync(freed_in_order, stream); }},
        {"a copy to it", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemcpyHtoD_v2(freed, &word, 4); }},
        {"a copy from it", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemcpyDtoH_v2(&word, freed, 4); }},
        {"its range", CUDA_ERROR_NOT_FOUND,
         [&] { return cu.cuMemGetAddressRange_v2(nullptr, nullptr, freed); }},
    });
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("memory") {
    Primary primary;
    Buffer memory(4096);
    CUdeviceptr address = 0;
    char byte = 0;
    void* host = nullptr;
    check_all({
        {"nothing allocated", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemAlloc_v2(&address, 0); }},
        {"nowhere to tell", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemAlloc_v2(nullptr, 4096); }},
        {"more than there is", CUDA_ERROR_OUT_OF_MEMORY,
         [&] { return cu.cuMemAlloc_v2(&address, std::size_t{1} << 50); }},
        {"more than can be counted", CUDA_ERROR_OUT_OF_MEMORY,
         [&] { return cu.cuMemAlloc_v2(&address, SIZE_MAX - 5); }},
        {"freed from within", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemFree_v2(memory + 8); }},
        {"freed, but of the host", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(&byte)); }},
        {"freed null", CUDA_SUCCESS, [&] { return cu.cuMemFree_v2(0); }},
        {"a copy beyond its end", CUDA_ERROR_INVALID_VALUE,
         [&] {
           std::vector<char> much(8192);
           return cu.cuMemcpyHtoD_v2(memory, much.data(), much.size());
         }},
        {"a copy to null", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemcpyHtoD_v2(0, &byte, 1); }},
        {"a copy from null", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemcpyHtoD_v2(memory, nullptr, 1); }},
        {"set beyond its end", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemsetD8_v2(memory, 1, 8192); }},
        {"set null", CUDA_ERROR_INVALID_VALUE, [&] { return cu.cuMemsetD8_v2(0, 1, 1); }},
        {"set words at an odd address", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemsetD32_v2(memory + 1, 1, 1); }},
        {"no pinned memory", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemHostAlloc(&host, 0, 0); }},
        {"pinned memory that is none", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuMemFreeHost(&byte); }},
    });
  }

  TEST_CASE("things of another context") {
    Primary primary;
    OtherContext other;
    Kernels kernels;
    CUfunction nothing = kernels["nothing"];
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, 0));
    check_all({
        {"a function", CUDA_ERROR_INVALID_HANDLE,
         [&] { return launch(other.function, 1, 1, nullptr, {}); }},
        {"a stream to launch in", CUDA_ERROR_INVALID_HANDLE,
         [&] { return launch(nothing, 1, 1, other.stream, {}); }},
        {"an event to record here", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuEventRecord(other.event, nullptr); }},
        {"an event to wait for", CUDA_SUCCESS,
         [&] { return cu.cuStreamWaitEvent(nullptr, other.event, 0); }},
        {"a stream to wait for", CUDA_SUCCESS,
         [&] { return cu.cuStreamSynchronize(other.stream); }},
    });
    CU_OK(cu.cuEventDestroy_v2(event));
  }

  TEST_CASE("handles") {
    Primary primary;
    Kernels kernels;
    CUstream stream = make_stream();
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, 0));
    CU_OK(cu.cuEventDestroy_v2(event));
    CUstream gone = make_stream();
    CU_OK(cu.cuStreamDestroy_v2(gone));
    float time = 0;
    int value = 0;
    CUfunction function = nullptr;
    check_all({
        {"no function", CUDA_ERROR_INVALID_HANDLE,
         [&] { return launch(nullptr, 1, 1, stream, {}); }},
        {"no event to record", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuEventRecord(nullptr, stream); }},
        {"no event to wait for", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuStreamWaitEvent(stream, nullptr, 0); }},
        {"no event to ask", CUDA_ERROR_INVALID_HANDLE, [&] { return cu.cuEventQuery(nullptr); }},
        {"no events to compare", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuEventElapsedTime(&time, nullptr, nullptr); }},
        {"no function to ask", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr); }},
        {"no module", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuModuleGetFunction(&function, nullptr, "nothing"); }},
        {"an event that was destroyed", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuEventRecord(event, stream); }},
        {"a stream that was destroyed", CUDA_ERROR_INVALID_HANDLE,
         [&] { return cu.cuStreamSynchronize(gone); }},
    });
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("code") {
    Primary primary;
    Kernels kernels;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
    std::string cut = kKernels;
    cut.resize(cut.find("mad.lo.s32") + 20);
    std::string wrong =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n"
        "  .reg .b32 %r<3>;\n  frobnicate.u32 %r1, %r2;\n  ret;\n}\n";
    std::vector<unsigned char> noise(4096, 0xa5);
    check_all({
        {"no image", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuModuleLoadData(&module, nullptr); }},
        {"noise", CUDA_ERROR_INVALID_IMAGE,
         [&] { return cu.cuModuleLoadData(&module, noise.data()); }},
        {"nothing but an end", CUDA_ERROR_INVALID_IMAGE,
         [&] { return cu.cuModuleLoadData(&module, "\0\0\0"); }},
        {"PTX that breaks off", CUDA_ERROR_INVALID_PTX,
         [&] { return cu.cuModuleLoadData(&module, cut.c_str()); }},
        {"PTX with a wrong word", CUDA_ERROR_INVALID_PTX,  // a driver may look at it when it must
         [&] {
           const CUresult loaded = cu.cuModuleLoadData(&module, wrong.c_str());
           return loaded != CUDA_SUCCESS ? loaded : cu.cuModuleGetFunction(&function, module, "k");
         }},
        {"a file that is not there", CUDA_ERROR_FILE_NOT_FOUND,
         [&] { return cu.cuModuleLoad(&module, "/nonexistent/kernels.ptx"); }},
        {"a function that is not there", CUDA_ERROR_NOT_FOUND,
         [&] { return cu.cuModuleGetFunction(&function, kernels.module, "absent"); }},
        {"a function without a name", CUDA_ERROR_INVALID_VALUE,
         [&] { return cu.cuModuleGetFunction(&function, kernels.module, nullptr); }},
        {"a variable that is not there", CUDA_ERROR_NOT_FOUND,
         [&] { return cu.cuModuleGetGlobal_v2(&address, nullptr, kernels.module, "absent"); }},
    });
  }

  TEST_CASE("devices and contexts") {
    Primary primary;
    CUdevice device = 0;
    int value = 0, count = 0;
    std::size_t bytes = 0;
    CUcontext context = nullptr;
    CU_OK(cu.cuDeviceGetCount(&count));
    CUcontext gone = nullptr, popped = nullptr;
    CU_OK(cu.cuCtxCreate_v2(&gone, 0, 0));
    CU_OK(cu.cuCtxPopCurrent_v2(&popped));
    CU_OK(cu.cuCtxDestroy_v2(gone));
    check_all({
        {"a device beyond the last", CUDA_ERROR_INVALID_DEVICE,
         [&] { return cu.cuDeviceGet(&device, count); }},
        {"a device before the first", CUDA_ERROR_INVALID_DEVICE,
         [&] { return cu.cuDeviceGet(&device, -1); }},
        {"an attribute that is none", CUDA_ERROR_INVALID_VALUE,
         [&] {
           return cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100'000), 0);
         }},
        {"memory of no device", CUDA_ERROR_INVALID_DEVICE,
         [&] { return cu.cuDeviceTotalMem_v2(&bytes, count); }},
        {"a context of no device", CUDA_ERROR_INVALID_DEVICE,
         [&] { return cu.cuCtxCreate_v2(&context, 0, count); }},
        {"a context that was destroyed", CUDA_ERROR_INVALID_CONTEXT,
         [&] { return cu.cuCtxDestroy_v2(gone); }},
        {"a limit that is none", CUDA_ERROR_UNSUPPORTED_LIMIT,
         [&] { return cu.cuCtxGetLimit(&bytes, static_cast<CUlimit>(1000)); }},
    });
  }

  TEST_CASE("a call without a context") {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CUcontext current = nullptr;
    CU_OK(cu.cuCtxGetCurrent(&current));
    CU_OK(cu.cuCtxSetCurrent(nullptr));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc_v2(&memory, 16));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuStreamCreate(&stream, 0));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&current));
    CU_OK(cu.cuCtxSetCurrent(current));
  }
}
