// Names and texts of results.
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

struct Known {
  int number;
  const char* name;
  const char* text;
};

constexpr Known known_results[] = {
#define HEADRACE_ERROR(name, number, text) {number, #name, text},
#include "gen/error_names.inc"
#undef HEADRACE_ERROR
};

const Known* find(CUresult result) {
  for (const Known& known : known_results) {
    if (known.number == static_cast<int>(result)) return &known;
  }
  return nullptr;
}

}  // namespace

CUresult cuGetErrorName(CUresult result, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Known* const known = find(result);
  *name = known == nullptr ? nullptr : known->name;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Known* const known = find(result);
  *text = known == nullptr ? nullptr : known->text;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace headrace::client::families
