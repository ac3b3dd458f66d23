#include "driverabi/context_storage.h"

#include <mutex>
#include <utility>
#include <vector>

namespace headrace::driverabi {

void ContextStorage::put(void* context, void* key, void* value, Destructor destructor) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  values_[Slot{context, key}] = Value{value, destructor};
}

bool ContextStorage::erase(void* context, void* key) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  return values_.erase(Slot{context, key}) != 0;
}

bool ContextStorage::get(void* context, void* key, void** value) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = values_.find(Slot{context, key});
  if (found == values_.end()) return false;
  *value = found->second.value;
  return true;
}

void ContextStorage::destroy_all(void* context) {
  std::vector<std::pair<void*, Value>> doomed;
  {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    for (auto it = values_.begin(); it != values_.end();) {
      if (it->first.context == context) {
        doomed.emplace_back(it->first.key, it->second);
        it = values_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const auto& [key, value] : doomed) {
    if (value.destructor != nullptr) value.destructor(context, key, value.value);
  }
}

}  // namespace headrace::driverabi
