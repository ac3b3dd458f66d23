// Semantics of the CUDA driver API, as programs rely on them. `driver_tests --help` lists options.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>

#include "tests/cuda/driver.h"

int main(int argc, char** argv) {
  std::string problem = load_driver();
  if (!problem.empty()) {
    std::fprintf(stderr, "driver_tests: %s\n", problem.c_str());
    return 2;
  }
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) return child_main(argv[2]);
  CUresult result = cu.cuInit(0);
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "driver_tests: cuInit gave %s: there is no device to test\n",
                 name_of(result).c_str());
    return 2;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
