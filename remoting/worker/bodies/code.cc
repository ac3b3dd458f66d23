// Modules, libraries and their functions (apispec/module.toml, library.toml).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "worker/bodies/bodies.h"
#include "worker/bodies/image_bounds.h"
#include "worker/bodies/jit.h"

namespace headrace::worker::bodies {
namespace {

constexpr std::size_t max_parameters = 4096;

// A load on its way: owned by the pool's work and by what is left to do afterwards.
struct Load {
  Blob blob;
  JitOptions jit;
  unsigned device = 0;
  std::uint64_t charged = 0;
  CUcontext context = nullptr;
};

// Takes the blob, checks it, charges its size. Null: `result` says why not.
template <typename Call>
std::shared_ptr<Load> begin_load(Session& session, const Call& call, CUresult& result) {
  std::shared_ptr<Load> load = std::make_shared<Load>();
  if (!session.blobs().take(call.blob, load->blob)) {
    result = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  result = session.enter();
  if (result != CUDA_SUCCESS) return nullptr;
  if (!load->jit.read(call.jit)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else if (!image_within(load->blob.data.get(), load->blob.size)) {
    result = CUDA_ERROR_INVALID_IMAGE;
  } else {
    load->charged = round_up(std::max<std::uint64_t>(load->blob.size, 1), memory_unit);
    load->device = session.current().device;
    load->context = session.current().context;
    if (session.memory().charge(load->device, load->charged)) return load;
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return nullptr;
}

template <typename Call, typename Object>
void end_load(Session& session, std::uint32_t number, HandleKind kind, std::uint64_t handle,
              CUcontext wanted, const Load& load, CUresult result,
              const std::vector<std::uint8_t>& reason, Object object, CUresult (*unload)(Object)) {
  // Whoever's context is current by now: the object belongs to the one it was loaded in.
  if (result == CUDA_SUCCESS) {
    result = session.adopt(kind, handle, object);
    if (result != CUDA_SUCCESS) {
      session.driver().cuCtxSetCurrent(wanted);
      session.current_changed();
      unload(object);
    }
  }
  if (result == CUDA_SUCCESS) {
    session.charge_handle(handle, load.device, load.charged);
  } else {
    session.memory().give_back(load.device, load.charged);
  }
  typename Call::Reply reply;
  load.jit.tell(result, reason, reply);
  session.answer({Call::kType, number}, CUDA_SUCCESS, reply);
}

// A kernel that the driver cannot compile and says why: the reply tells, in place of an error.
template <typename Reply>
bool refused(const DriverTable& driver, CUresult result, Reply& reply) {
  if (result == CUDA_SUCCESS) return false;
  reply.reason = last_refusal(driver);
  reply.refused = result;
  return !reply.reason.empty();
}

template <typename Reply, typename Get, typename GetParameter>
void describe(Reply& reply, Get get, GetParameter get_parameter) {
  for (int id = 0; id < CU_FUNC_ATTRIBUTE_MAX; ++id) {
    int value = 0;
    if (get(&value, static_cast<CUfunction_attribute>(id)) == CUDA_SUCCESS) {
      reply.attributes.push_back({id, value});
    }
  }
  for (std::size_t i = 0; i < max_parameters; ++i) {
    std::size_t offset = 0, size = 0;
    if (get_parameter(i, &offset, &size) != CUDA_SUCCESS) break;
    reply.layout.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
  }
}

// Kernels in flight may still use what goes away.
CUresult unload(Session& session, HandleKind kind, std::uint64_t handle, Later::Call call) {
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  session.later().run(std::move(call), [&session, kind, handle](CUresult result) {
    if (result == CUDA_SUCCESS) session.forget(kind, handle);
    session.keep(result);
  });
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<CUresult> cuModuleLoadDataEx(Session& session, std::uint32_t number,
                                           const calls::CuModuleLoadDataEx& call) {
  CUresult result = CUDA_SUCCESS;
  const std::shared_ptr<Load> load = begin_load(session, call, result);
  if (load == nullptr) return result;
  const SessionContext context = session.current();
  const std::uint64_t life = session.life(context.handle);
  session.pool().submit(
      [&session, load, number, context, life, handle = call.module]() -> WaiterPool::Completion {
        const DriverTable& driver = session.driver();
        CUmodule module = nullptr;
        CUresult done = driver.cuCtxSetCurrent(context.context);
        if (done == CUDA_SUCCESS) {
          done = driver.cuModuleLoadDataEx(&module, load->blob.data.get(), load->jit.count(),
                                           load->jit.options(), load->jit.values());
        }
        const std::vector<std::uint8_t> reason = last_refusal(driver);
        return [&session, load, number, context, life, handle, module, done, reason]() {
          const bool alive = session.life(context.handle) == life;
          end_load<calls::CuModuleLoadDataEx>(session, number, HandleKind::module, handle,
                                              context.context, *load,
                                              alive ? done : CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                              reason, module, session.driver().cuModuleUnload);
          if (alive && done == CUDA_SUCCESS) session.belongs_to(handle, context);
        };
      });
  return std::nullopt;
}

std::optional<CUresult> cuLibraryLoadData(Session& session, std::uint32_t number,
                                          const calls::CuLibraryLoadData& call) {
  if (session.driver().cuLibraryLoadData == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = CUDA_SUCCESS;
  const std::shared_ptr<Load> load = begin_load(session, call, result);
  if (load == nullptr) return result;
  session.pool().submit([&session, load, number,
                         handle = call.library]() -> WaiterPool::Completion {
    const DriverTable& driver = session.driver();
    CUlibrary library = nullptr;
    CUresult done = driver.cuCtxSetCurrent(load->context);
    if (done == CUDA_SUCCESS) {
      done = driver.cuLibraryLoadData(&library, load->blob.data.get(), load->jit.options(),
                                      load->jit.values(), load->jit.count(), nullptr, nullptr, 0);
    }
    const std::vector<std::uint8_t> reason = last_refusal(driver);
    return [&session, load, number, handle, library, done, reason] {
      end_load<calls::CuLibraryLoadData>(session, number, HandleKind::library, handle,
                                         load->context, *load, done, reason, library,
                                         session.driver().cuLibraryUnload);
    };
  });
  return std::nullopt;
}

CUresult cuModuleUnload(Session& session, const calls::CuModuleUnload& call) {
  CUmodule module = nullptr;
  if (!session.find(HandleKind::module, call.hmod, module)) return CUDA_ERROR_INVALID_HANDLE;
  return unload(session, HandleKind::module, call.hmod,
                [&session, module] { return session.driver().cuModuleUnload(module); });
}

CUresult cuLibraryUnload(Session& session, const calls::CuLibraryUnload& call) {
  CUlibrary library = nullptr;
  if (!session.find(HandleKind::library, call.library, library)) return CUDA_ERROR_INVALID_HANDLE;
  return unload(session, HandleKind::library, call.library, [&session, library] {
    return HEADRACE_DRIVER_CALL(session, cuLibraryUnload, library);
  });
}

CUresult cuModuleGetFunction(Session& session, const calls::CuModuleGetFunction& call,
                             calls::CuModuleGetFunctionReply& reply) {
  CUmodule module = nullptr;
  if (!session.find(HandleKind::module, call.hmod, module)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const DriverTable& driver = session.driver();
  CUfunction function = nullptr;
  CUresult result = driver.cuModuleGetFunction(&function, module, std::string(call.name).c_str());
  if (refused(driver, result, reply)) return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = session.adopt(HandleKind::function, call.hfunc, function);
  if (result != CUDA_SUCCESS) return result;
  describe(
      reply,
      [&](int* value, CUfunction_attribute id) {
        return driver.cuFuncGetAttribute(value, id, function);
      },
      [&](std::size_t index, std::size_t* offset, std::size_t* size) {
        return HEADRACE_DRIVER_CALL(session, cuFuncGetParamInfo, function, index, offset, size);
      });
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(Session& session, const calls::CuLibraryGetKernel& call,
                            calls::CuLibraryGetKernelReply& reply) {
  CUlibrary library = nullptr;
  if (!session.find(HandleKind::library, call.library, library)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  CUkernel kernel = nullptr;
  CUresult result = HEADRACE_DRIVER_CALL(session, cuLibraryGetKernel, &kernel, library,
                                         std::string(call.name).c_str());
  if (refused(session.driver(), result, reply)) return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = session.adopt(HandleKind::kernel, call.pKernel, kernel);
  if (result != CUDA_SUCCESS) return result;
  const SessionDevice* device =
      session.device_at(static_cast<std::int32_t>(session.current().device));
  if (device == nullptr) return CUDA_SUCCESS;
  describe(
      reply,
      [&](int* value, CUfunction_attribute id) {
        return HEADRACE_DRIVER_CALL(session, cuKernelGetAttribute, value, id, kernel,
                                    device->device);
      },
      [&](std::size_t index, std::size_t* offset, std::size_t* size) {
        return HEADRACE_DRIVER_CALL(session, cuKernelGetParamInfo, kernel, index, offset, size);
      });
  return CUDA_SUCCESS;
}

}  // namespace headrace::worker::bodies
