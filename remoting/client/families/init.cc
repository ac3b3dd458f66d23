// Start, versions, look-ups: answered here.
#include "client/export_hooks.h"
#include "client/process.h"
#include "driverabi/export_tables.h"
#include "gen/client_families.h"
#include "gen/proc_table.h"

namespace headrace::client::families {

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return initialise();
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = reported_driver_version();
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version,
                             cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t known =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || function == nullptr || (flags & ~known) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const gen::ProcAnswer answer = gen::find_proc(symbol, cuda_version, per_thread);
  *function = answer.symbol;
  if (status != nullptr) *status = answer.status;
  return answer.symbol != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int cuda_version, cuuint64_t flags) {
  return families::cuGetProcAddress_v2(symbol, function, cuda_version, flags, nullptr);
}

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  set_export_hooks();  // runtimes ask for tables before they call cuInit
  return static_cast<CUresult>(driverabi::get_export_table(table, id));
}

}  // namespace headrace::client::families
