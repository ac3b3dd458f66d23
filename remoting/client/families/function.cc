// Functions and kernels: names, layouts, attributes. Attributes come with the function, are asked
// for once, or are what the program has set.
#include <memory>

#include "client/functions.h"
#include "client/modules.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

CUresult existing(CUfunction handle, std::shared_ptr<Function>& function) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  function = find_function(handle);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult existing(CUkernel handle, std::shared_ptr<Function>& function) {
  return existing(reinterpret_cast<CUfunction>(handle), function);
}

bool is_settable(CUfunction_attribute attribute) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return true;
    default:
      return false;
  }
}

// What the driver rejects at the call.
CUresult check_setting(Function& function, const Device& device, CUfunction_attribute attribute,
                       int value) {
  if (!is_settable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    int fixed = 0;
    known_attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, fixed);
    const int limit = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (value < 0 || value > limit - fixed) return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
      (value < -1 || value > 100)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

bool is_attribute(CUfunction_attribute attribute) {
  return attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX;
}

}  // namespace

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  if (value == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (known_attribute(*function, attribute, *value)) return CUDA_SUCCESS;
  calls::CuFuncGetAttribute call;
  call.attrib = attribute;
  call.hfunc = function->id;
  calls::CuFuncGetAttribute::Reply reply;
  const CUresult result = trip(call, reply);
  if (result != CUDA_SUCCESS) return result;
  note_attribute(*function, attribute, reply.pi);
  *value = reply.pi;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (const CUresult bad = check_setting(*function, *context->device, attribute, value);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuFuncSetAttribute call;
  call.hfunc = function->id;
  call.attrib = attribute;
  call.value = value;
  const CUresult result = send_in(context->id, call);
  if (result == CUDA_SUCCESS) note_attribute(*function, attribute, value);
  return result;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();  // lives as long as the module that holds the function
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function->module != 0) {
    *module = reinterpret_cast<CUmodule>(function->module);
    return CUDA_SUCCESS;
  }
  return families::cuLibraryGetModule(module, reinterpret_cast<CUlibrary>(function->library));
}

CUresult cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  return param_info(*function, index, offset, size);
}

// Functions are loaded when their handle is made.
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult bad = existing(handle, function); bad != CUDA_SUCCESS) return bad;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
  std::shared_ptr<Function> function;
  return existing(handle, function);
}

// ---------------------------------------------------------------- kernels

// The kernel itself: CUDA launches and asks either.
CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  std::shared_ptr<Function> kernel;
  if (const CUresult bad = existing(handle, kernel); bad != CUDA_SUCCESS) return bad;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = kernel->handle();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  std::shared_ptr<Function> kernel;
  if (const CUresult bad = existing(handle, kernel); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  return families::cuFuncGetName(name, reinterpret_cast<CUfunction>(handle));
}

CUresult cuKernelGetParamInfo(CUkernel handle, std::size_t index, std::size_t* offset,
                              std::size_t* size) {
  return families::cuFuncGetParamInfo(reinterpret_cast<CUfunction>(handle), index, offset, size);
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) {
  std::shared_ptr<Function> kernel;
  if (const CUresult bad = existing(handle, kernel); bad != CUDA_SUCCESS) return bad;
  calls::CuKernelGetAttribute call;
  if (const CUresult bad = to_wire_device(ordinal, call.dev); bad != CUDA_SUCCESS) return bad;
  if (value == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (known_attribute(*kernel, attribute, *value)) return CUDA_SUCCESS;
  call.attrib = attribute;
  call.kernel = kernel->id;
  calls::CuKernelGetAttribute::Reply reply;
  const CUresult result = trip_in(current_context_id(), call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  note_attribute(*kernel, attribute, reply.pi);
  *value = reply.pi;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) {
  std::shared_ptr<Function> kernel;
  if (const CUresult bad = existing(handle, kernel); bad != CUDA_SUCCESS) return bad;
  const Device* const device = process().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult bad = check_setting(*kernel, *device, attribute, value); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuKernelSetAttribute call;
  call.attrib = attribute;
  call.val = value;
  call.kernel = kernel->id;
  call.dev = device->wire_ordinal;
  const CUresult result = send_in(current_context_id(), call);
  if (result == CUDA_SUCCESS) note_attribute(*kernel, attribute, value);
  return result;
}

}  // namespace headrace::client::families
