#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "tests/cuda/driver.h"
#include "tests/cuda/kernels.h"

TEST_SUITE("modules") {
  TEST_CASE("a module has functions and globals") {
    Primary primary;
    Kernels kernels;
    CUdeviceptr factor = 0, counter = 0;
    std::size_t bytes = 0;
    CU_OK(cu.cuModuleGetGlobal_v2(&factor, &bytes, kernels.module, "factor"));
    CHECK(bytes == 4);
    CU_OK(cu.cuModuleGetGlobal_v2(&counter, &bytes, kernels.module, "counter"));
    CHECK(bytes == 4);
    CHECK(download<float>(factor, 1)[0] == 2.0f);
    CHECK(download<std::uint32_t>(counter, 1)[0] == 7);
    CUdeviceptr table = 0;
    CU_OK(cu.cuModuleGetGlobal_v2(&table, &bytes, kernels.module, "table"));
    CHECK(bytes == 64);
    CHECK(download<std::uint8_t>(table, 64) == std::vector<std::uint8_t>(64, 0));

    std::vector<float> data(300);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) * 0.5f;
    Buffer memory(data.size() * 4);
    CU_OK(cu.cuMemcpyHtoD_v2(memory, data.data(), data.size() * 4));
    float five = 5;
    CU_OK(cu.cuMemcpyHtoD_v2(factor, &five, 4));
    CUdeviceptr address = memory;
    int count = static_cast<int>(data.size());
    CU_OK(launch(kernels["scale"], 3, 128, nullptr, {&address, &count}));
    std::vector<float> got = download<float>(memory, data.size());
    for (std::size_t i = 0; i < data.size(); ++i) REQUIRE(got[i] == data[i] * 5);
    CHECK(download<std::uint32_t>(counter, 1)[0] == 8);
  }

  TEST_CASE("each load has globals of its own") {
    Primary primary;
    Kernels one, two;
    CUdeviceptr first = 0, second = 0;
    CU_OK(cu.cuModuleGetGlobal_v2(&first, nullptr, one.module, "counter"));
    CU_OK(cu.cuModuleGetGlobal_v2(&second, nullptr, two.module, "counter"));
    CHECK(first != second);
    CU_OK(cu.cuMemsetD32_v2(first, 100, 1));
    CHECK(download<std::uint32_t>(second, 1)[0] == 7);
  }

  TEST_CASE("what is not in a module is not found") {
    Primary primary;
    Kernels kernels;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
    CU_IS(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&function, kernels.module, "absent"));
    CU_IS(CUDA_ERROR_NOT_FOUND,
          cu.cuModuleGetGlobal_v2(&address, nullptr, kernels.module, "absent"));
  }

  TEST_CASE("functions have attributes") {
    Primary primary;
    Kernels kernels;
    CUfunction shares = kernels["shares"], bounded = kernels["bounded"];
    int value = -1;
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, shares));
    CHECK(value >= 40000);
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded));
    CHECK(value == 64);
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, shares));
    CHECK(value > 0);
    CHECK(value <= 255);
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, kernels["scale"]));
    CHECK(value >= 4);
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, shares));
    CHECK(value == 75);
    CUfunction reverse = kernels["reverse"];
    CU_OK(cu.cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse));
    CHECK(value == 60000);
    CU_IS(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 10 << 20));
    CU_IS(CUDA_SUCCESS, cu.cuFuncSetCacheConfig(reverse, CU_FUNC_CACHE_PREFER_SHARED));
    CUmodule module = nullptr;
    CU_OK(cu.cuFuncGetModule(&module, reverse));
    CHECK(module == kernels.module);
  }

  TEST_CASE("a library serves kernels to every context") {
    Primary primary;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr, absent = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "step"));
    CU_IS(CUDA_ERROR_NOT_FOUND, cu.cuLibraryGetKernel(&absent, library, "absent"));
    Buffer memory(4);
    CU_OK(cu.cuMemsetD32_v2(memory, 10, 1));
    CUdeviceptr address = memory;
    std::uint32_t multiplier = 3, addend = 4;
    // A CUkernel may stand where a CUfunction is wanted.
    CU_OK(launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr,
                 {&address, &multiplier, &addend}));
    CHECK(download<std::uint32_t>(memory, 1)[0] == 34);
    CUfunction function = nullptr;
    CU_OK(cu.cuKernelGetFunction(&function, kernel));
    CU_OK(launch(function, 1, 1, nullptr, {&address, &multiplier, &addend}));
    CHECK(download<std::uint32_t>(memory, 1)[0] == 106);
    int value = 0;
    CU_OK(cu.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel,
                                  primary.device));
    CHECK(value >= 256);
    CUmodule module = nullptr;
    CUdeviceptr from_library = 0, from_module = 0;
    std::size_t bytes = 0;
    CU_OK(cu.cuLibraryGetModule(&module, library));
    CU_OK(cu.cuLibraryGetGlobal(&from_library, &bytes, library, "counter"));
    CU_OK(cu.cuModuleGetGlobal_v2(&from_module, nullptr, module, "counter"));
    CHECK(bytes == 4);
    CHECK(from_library == from_module);

    CUcontext other = nullptr;
    CUdeviceptr in_other = 0;
    CU_OK(cu.cuCtxCreate_v2(&other, 0, primary.device));
    CU_OK(cu.cuLibraryGetGlobal(&in_other, nullptr, library, "counter"));
    CHECK(in_other != from_library);
    CU_OK(cu.cuCtxDestroy_v2(other));
    CU_OK(cu.cuLibraryUnload(library));
  }

  TEST_CASE("garbage is no module") {
    Primary primary;
    CUmodule module = nullptr;
    CUresult result = cu.cuModuleLoadData(&module, "this is no image of any kind");
    CHECK_MESSAGE((result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX),
                  name_of(result));
    std::vector<std::uint8_t> zeros(4096, 0);
    result = cu.cuModuleLoadData(&module, zeros.data());
    CHECK_MESSAGE((result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX),
                  name_of(result));
    CU_IS(CUDA_ERROR_FILE_NOT_FOUND, cu.cuModuleLoad(&module, "/nonexistent/module.ptx"));
    // A fatbin header that promises more than there is sense in.
    std::uint32_t header[64] = {0xba55ed50, 0x00100001, 16, 0};
    header[4] = 0x01010001;
    header[5] = 0xffffffff;
    CHECK(cu.cuModuleLoadData(&module, header) != CUDA_SUCCESS);
  }

  TEST_CASE("a wrong program is explained in the error log") {
    Primary primary;
    const char* text =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n"
        "  .reg .b32 %r<3>;\n  frobnicate.u32 %r1, %r2;\n  ret;\n}\n";
    std::vector<char> log(512, 'x');
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), reinterpret_cast<void*>(std::size_t{256})};
    CUmodule module = nullptr;
    CU_IS(CUDA_ERROR_INVALID_PTX, cu.cuModuleLoadDataEx(&module, text, 2, options, values));
    std::string_view written(log.data(), strnlen(log.data(), log.size()));
    CHECK(written.size() > 0);
    CHECK(written.size() < 256);
    CHECK(log[256] == 'x');  // nothing beyond the size that was given
    CHECK(written.find("frobnicate") != std::string_view::npos);
  }

  TEST_CASE("logs and times of loads stay inside what was given") {
    Primary primary;
    const std::string good = kKernels;
    const std::string bad =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n"
        "  .reg .b32 %r<3>;\n  frobnicate.u32 %r1, %r2;\n  ret;\n}\n";
    constexpr std::size_t kRoom = 9000;
    for (const bool works : {true, false}) {
      for (const std::size_t size : {std::size_t{1}, std::size_t{16}, std::size_t{8192}}) {
        for (const char way : {'m', 'l', 'k'}) {  // module, library, linker
          CAPTURE(works);
          CAPTURE(size);
          CAPTURE(way);
          const std::string& text = works ? good : bad;
          std::vector<std::uint8_t> info(kRoom, 0xa5), error(kRoom, 0xa5);
          CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                    CU_JIT_WALL_TIME,        CU_JIT_OPTIMIZATION_LEVEL};
          void* const five = reinterpret_cast<void*>(std::size_t{0xa5a5a5a5a5a5a5a5});
          void* values[] = {info.data(),  reinterpret_cast<void*>(size),
                            error.data(), reinterpret_cast<void*>(size),
                            five,         reinterpret_cast<void*>(std::size_t{4})};
          CUresult result = CUDA_SUCCESS;
          CUmodule module = nullptr;
          CUlibrary library = nullptr;
          CUlinkState link = nullptr;
          if (way == 'm') {
            result = cu.cuModuleLoadDataEx(&module, text.c_str(), 6, options, values);
          } else if (way == 'l') {
            result = cu.cuLibraryLoadData(&library, text.c_str(), options, values, 6, nullptr,
                                          nullptr, 0);
          } else {
            CU_OK(cu.cuLinkCreate_v2(6, options, values, &link));
            std::string copy = text;
            result = cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, copy.data(), copy.size() + 1,
                                         "text", 0, nullptr, nullptr);
            void* image = nullptr;
            std::size_t bytes = 0;
            if (result == CUDA_SUCCESS) result = cu.cuLinkComplete(link, &image, &bytes);
            // A driver may leave finding the bad instruction to the load of what was linked.
            if (!works && result == CUDA_SUCCESS) result = CUDA_ERROR_INVALID_PTX;
          }
          CU_IS(works ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX, result);
          for (const std::vector<std::uint8_t>* log : {&info, &error}) {
            const std::size_t length =
                strnlen(reinterpret_cast<const char*>(log->data()), log->size());
            if (way == 'k' && length == log->size()) continue;  // this driver wrote nothing
            CHECK(length < size);
            for (std::size_t i = size; i < kRoom; ++i) REQUIRE((*log)[i] == 0xa5);
          }
          if (way != 'k') {
            CHECK(reinterpret_cast<std::size_t>(values[1]) < size);
            CHECK(reinterpret_cast<std::size_t>(values[3]) < size);
            CHECK(values[4] != five);
            if (!works && size > 1000) {
              CHECK(std::string(reinterpret_cast<char*>(error.data())).find("frobnicate") !=
                    std::string::npos);
            }
          }
          if (module != nullptr) CU_OK(cu.cuModuleUnload(module));
          if (library != nullptr) CU_OK(cu.cuLibraryUnload(library));
          if (link != nullptr) CU_OK(cu.cuLinkDestroy(link));
        }
      }
    }
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {nullptr, reinterpret_cast<void*>(std::size_t{64})};
    CUmodule module = nullptr;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu.cuModuleLoadDataEx(&module, good.c_str(), 2, options, values));
  }

  TEST_CASE("a link may limit the registers of its kernels") {
    Primary primary;
    CUlinkState link = nullptr;
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void* most = reinterpret_cast<void*>(std::uintptr_t{16});
    void* image = nullptr;
    std::size_t bytes = 0;
    CU_OK(cu.cuLinkCreate_v2(1, &option, &most, &link));
    std::string text = kKernels;
    CU_OK(cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "kernels", 0,
                              nullptr, nullptr));
    CU_OK(cu.cuLinkComplete(link, &image, &bytes));
    CUmodule module = nullptr;
    CU_OK(cu.cuModuleLoadData(&module, image));
    CU_OK(cu.cuLinkDestroy(link));
    CUfunction mixed = nullptr;
    int value = 0;
    CU_OK(cu.cuModuleGetFunction(&mixed, module, "mixed"));
    CU_OK(cu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, mixed));
    CHECK(value == 16);
    CU_OK(cu.cuModuleUnload(module));
  }

  TEST_CASE("linking joins texts into one module") {
    Primary primary;
    CUlinkState link = nullptr;
    void* image = nullptr;
    std::size_t bytes = 0;
    CU_OK(cu.cuLinkCreate_v2(0, nullptr, nullptr, &link));
    std::string text = kKernels;
    CU_OK(cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "kernels", 0,
                              nullptr, nullptr));
    std::string more =
        ".version 7.1\n.target sm_75\n.address_size 64\n"
        ".visible .entry second(.param .u64 out)\n{\n  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
        "  ld.param.u64 %rd1, [out];\n  cvta.to.global.u64 %rd1, %rd1;\n  mov.u32 %r1, 99;\n"
        "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
    CU_OK(cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, more.data(), more.size() + 1, "more", 0,
                              nullptr, nullptr));
    CU_OK(cu.cuLinkComplete(link, &image, &bytes));
    CHECK(bytes > 0);
    CUmodule module = nullptr;
    CUfunction step = nullptr, second = nullptr;
    CU_OK(cu.cuModuleLoadData(&module, image));
    CU_OK(cu.cuLinkDestroy(link));
    CU_OK(cu.cuModuleGetFunction(&step, module, "step"));
    CU_OK(cu.cuModuleGetFunction(&second, module, "second"));
    Buffer memory(4);
    CUdeviceptr address = memory;
    std::uint32_t multiplier = 2, addend = 1;
    CU_OK(launch(second, 1, 1, nullptr, {&address}));
    CU_OK(launch(step, 1, 1, nullptr, {&address, &multiplier, &addend}));
    CHECK(download<std::uint32_t>(memory, 1)[0] == 199);
    CU_OK(cu.cuModuleUnload(module));
  }
}
