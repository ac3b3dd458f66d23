// Handles given to the application: numbers that are never reused, checked by look-up. They look
// like addresses (kind in the upper bits) and lie where nothing is mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace headrace::softgpu {

enum class HandleKind : std::uint64_t {
  context = 1,
  stream,
  event,
  module,
  library,
  kernel,
  function,
  pool,
  link,
  physical,
  array,
};

inline HandleKind kind_of(const void* handle) {
  return static_cast<HandleKind>(reinterpret_cast<std::uint64_t>(handle) >> 40);
}

template <typename T>
class HandleTable {
 public:
  explicit HandleTable(HandleKind kind) : kind_(kind) {}

  std::uint64_t add(std::shared_ptr<T> object) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    std::uint64_t handle = (static_cast<std::uint64_t>(kind_) << 40) | (next_ << 4);
    ++next_;
    object->handle = handle;
    objects_[handle] = std::move(object);
    return handle;
  }

  std::shared_ptr<T> find(std::uint64_t handle) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> find(const void* handle) const {
    return find(reinterpret_cast<std::uint64_t>(handle));
  }

  std::shared_ptr<T> remove(std::uint64_t handle) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> out = std::move(found->second);
    objects_.erase(found);
    return out;
  }
  std::shared_ptr<T> remove(const void* handle) {
    return remove(reinterpret_cast<std::uint64_t>(handle));
  }

  std::vector<std::shared_ptr<T>> all() const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    std::vector<std::shared_ptr<T>> out;
    for (const auto& entry : objects_) out.push_back(entry.second);
    return out;
  }

  // Objects end outside the lock: their end may take other locks.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> remove_if(Predicate&& predicate) {
    std::vector<std::shared_ptr<T>> out;
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (predicate(*it->second)) {
        out.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return out;
  }

 private:
  const HandleKind kind_;
  mutable std::shared_mutex mutex_;
  std::uint64_t next_ = 1;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;
};

template <typename Handle>
Handle to_handle(std::uint64_t value) {
  return reinterpret_cast<Handle>(value);
}

}  // namespace headrace::softgpu
