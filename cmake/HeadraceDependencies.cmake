# Outside libraries. OpenSSL, zstd and LZ4 are linked statically wherever code is loaded into
# foreign processes, so that nothing of theirs is visible there.
set(HEADRACE_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "Python of the build tools")
if(NOT EXISTS ${HEADRACE_PYTHON})
  message(FATAL_ERROR "No ${HEADRACE_PYTHON}: run 'make setup' first")
endif()
execute_process(
  COMMAND ${HEADRACE_PYTHON} -c
          "import sysconfig,pathlib;print(pathlib.Path(sysconfig.get_paths()['purelib'])/'nvidia'/'cu13'/'include')"
  OUTPUT_VARIABLE HEADRACE_CUDA_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${HEADRACE_CUDA_INCLUDE}/cuda.h)
  message(FATAL_ERROR "No cuda.h in ${HEADRACE_CUDA_INCLUDE}: run 'make setup' first")
endif()

find_package(Threads REQUIRED)
set(OPENSSL_USE_STATIC_LIBS TRUE)
find_package(OpenSSL 3.0 REQUIRED)
find_library(HEADRACE_ZSTD libzstd.a REQUIRED)
find_library(HEADRACE_LZ4 liblz4.a REQUIRED)
