// late_calls [WAIT]: calls the driver from exit handlers and from destructors of static objects,
// made before and after cuInit, while a second thread is inside a synchronise. With WAIT it first
// waits for a byte on standard input, so that the server can be taken away. Ends with status 7.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

template <typename Function>
Function* find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) _exit(99);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

CUcontext context;
CUmodule module;
CUstream stream;
CUdeviceptr memory;

constexpr char ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry none()\n{\n  ret;\n}\n";

void call_late() {
  find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
  find<decltype(cuModuleUnload)>("cuModuleUnload")(module);
  find<CUresult(CUdeviceptr)>("cuMemFree_v2")(memory);
  find<CUresult(CUstream)>("cuStreamDestroy_v2")(stream);
  find<decltype(cuCtxSynchronize)>("cuCtxSynchronize")();
  find<CUresult(CUdevice)>("cuDevicePrimaryCtxRelease_v2")(0);
}

struct Late {
  ~Late() { call_late(); }
} first;

void* wait_for_ever(void*) {
  find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
  for (;;) find<decltype(cuCtxSynchronize)>("cuCtxSynchronize")();
}

}  // namespace

int main(int count, char**) {
  atexit(call_late);
  if (find<decltype(cuInit)>("cuInit")(0) != CUDA_SUCCESS) return 1;
  static Late second;
  atexit(call_late);
  if (find<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0) != 0) {
    return 2;
  }
  find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
  if (find<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, ptx) != 0) return 3;
  if (find<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&memory, 1 << 20) != 0) return 4;
  if (find<decltype(cuStreamCreate)>("cuStreamCreate")(&stream, 0) != 0) return 5;
  pthread_t thread;
  pthread_create(&thread, nullptr, wait_for_ever, nullptr);
  if (count > 1) {
    // Told apart from what the library might print: nothing else may be on standard output.
    puts("ready");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) < 0) return 6;
  }
  exit(7);
}
