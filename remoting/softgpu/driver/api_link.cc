// cuLink*: several PTX texts become one. What comes out is PTX again, which the load calls take.
#include <cuda.h>

#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "remoting/softgpu/driver/link_inputs.h"
#include "remoting/softgpu/driver/link_state.h"
#include "remoting/softgpu/driver/merge_ptx.h"
#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

using LinkPtr = std::shared_ptr<LinkState>;

template <typename Body>
CUresult with_link(CUlinkState handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    LinkPtr link = runtime.links.find(handle);
    if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard<std::mutex> guard(link->mutex);
    return body(runtime, link);
  });
}

CUresult add(LinkPtr& link, CUjitInputType type, const std::vector<std::uint8_t>& bytes,
             const char* name) {
  std::string text, why;
  CUresult result = CUDA_SUCCESS;
  switch (type) {
    case CU_JIT_INPUT_PTX:
      text.assign(bytes.begin(), bytes.end());
      break;
    case CU_JIT_INPUT_FATBINARY:
      result = extract_ptx(bytes, &text, &why);
      break;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
      result = ptx_of_objects(bytes, &link->texts, &why);
      if (result == CUDA_SUCCESS) return result;
      break;
    case CU_JIT_INPUT_CUBIN:
      result = CUDA_ERROR_NO_BINARY_FOR_GPU;
      why = "the input is machine code; the software GPU links PTX only";
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) {
    link->options.error((name != nullptr ? std::string(name) + ": " : std::string()) + why);
    link->options.write_back(0);
    return result;
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  link->texts.push_back(std::move(text));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* out) {
  return with_context([&](Runtime& runtime, ContextPtr&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    LinkPtr link = std::make_shared<LinkState>();
    if (CUresult result = JitOptions::read(count, options, values, &link->options)) return result;
    *out = to_handle<CUlinkState>(runtime.links.add(link));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int, CUjit_option*, void**) {
  return with_link(handle, [&](Runtime&, LinkPtr& link) {
    if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::uint8_t* bytes = static_cast<const std::uint8_t*>(data);
    return add(link, type, std::vector<std::uint8_t>(bytes, bytes + size), name);
  });
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  return with_link(handle, [&](Runtime&, LinkPtr& link) {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file),
                                    std::istreambuf_iterator<char>()};
    return add(link, type, bytes, path);
  });
}

CUresult cuLinkComplete(CUlinkState handle, void** out, size_t* size) {
  return with_link(handle, [&](Runtime& runtime, LinkPtr& link) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (link->texts.empty()) {
      link->options.error("nothing was added to the link");
      link->options.write_back(0);
      return CUDA_ERROR_INVALID_VALUE;
    }
    link->result = merge_ptx(link->texts);
    if (unsigned most = link->options.max_registers()) {
      link->result = limit_registers(link->result, most);
    }
    JitResult<ModuleInfo> info = runtime.compiler().inspect(link->result);
    CUresult result = CUDA_SUCCESS;
    if (!info.ok()) {
      link->options.error(text_of(info.error()));
      result = result_of(info.error());
    } else {
      *out = link->result.data();
      // With its terminating zero: the size is all that callers copy by.
      if (size != nullptr) *size = link->result.size() + 1;
    }
    link->options.write_back(0);
    return result;
  });
}

CUresult cuLinkDestroy(CUlinkState handle) {
  return with_runtime([&](Runtime& runtime) {
    return runtime.links.remove(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuLinkCreate(unsigned int count, CUjit_option* options, void** values, CUlinkState* out) {
  return softgpu::cuLinkCreate_v2(count, options, values, out);
}
CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                       const char* name, unsigned int count, CUjit_option* options, void** values) {
  return softgpu::cuLinkAddData_v2(handle, type, data, size, name, count, options, values);
}
CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path,
                       unsigned int count, CUjit_option* options, void** values) {
  return softgpu::cuLinkAddFile_v2(handle, type, path, count, options, values);
}

}  // namespace headrace::softgpu
