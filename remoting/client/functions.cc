#include "client/functions.h"

#include <algorithm>
#include <mutex>

#include "client/process.h"

namespace headrace::client {

std::shared_ptr<Function> find_function(std::uint64_t handle) {
  return process().functions.find(handle);
}

std::shared_ptr<Function> keep_function(const std::shared_ptr<Function>& function,
                                        const CodeTable& code,
                                        const std::vector<calls::Attribute>& attributes,
                                        const std::vector<calls::ParamLayout>& layout) {
  for (const calls::Attribute& attribute : attributes) {
    note_attribute(*function, attribute.id, attribute.value);
  }
  if (const driverabi::KernelLayout* known = code.layout_of(function->name)) {
    function->layout_known = true;
    function->params = known->params;
    function->param_bytes = known->param_bytes;
  } else {
    // A kernel without parameters and a server that cannot tell look the same; a launch of the
    // latter with parameters cannot be laid out and is refused there.
    function->layout_known = true;
    for (const calls::ParamLayout& slot : layout) {
      function->params.push_back({slot.offset, slot.size});
      function->param_bytes = std::max(function->param_bytes, slot.offset + slot.size);
    }
  }
  process().functions.insert(function->id, function);
  return function;
}

void note_attribute(Function& function, int attribute, int value) {
  const std::lock_guard<std::mutex> lock(function.mutex);
  function.attributes[attribute] = value;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) function.max_threads = value;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    function.max_dynamic_shared = value;
  }
}

bool known_attribute(Function& function, int attribute, int& value) {
  const std::lock_guard<std::mutex> lock(function.mutex);
  const auto found = function.attributes.find(attribute);
  if (found == function.attributes.end()) return false;
  value = found->second;
  return true;
}

CUresult param_info(const Function& function, std::size_t index, std::size_t* offset,
                    std::size_t* size) {
  if (offset == nullptr || index >= function.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.params[index].offset;
  if (size != nullptr) *size = function.params[index].size;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
