// Objects of one kind by handle. Handles are numbers, never pointers: every one that a program
// passes in is looked up here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace headrace::client {

template <typename T>
class Table {
 public:
  void insert(std::uint64_t handle, std::shared_ptr<T> object) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    objects_[handle] = std::move(object);
  }
  // Null if there is no such object.
  std::shared_ptr<T> find(std::uint64_t handle) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  bool contains(std::uint64_t handle) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return objects_.contains(handle);
  }
  std::vector<std::shared_ptr<T>> all() const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    for (const auto& [handle, object] : objects_) objects.push_back(object);
    return objects;
  }
  std::shared_ptr<T> take(std::uint64_t handle) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // Takes out all that `doomed` says yes to.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> take_if(Predicate doomed) {
    std::vector<std::shared_ptr<T>> taken;
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (doomed(*it->second)) {
        taken.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;
};

// Makes handles of all kinds (PROTOCOL.md §7.3): serials from 1, never reused.
class HandleMaker {
 public:
  std::uint64_t make(HandleKind kind) {
    return make_handle(kind, serials_[static_cast<std::size_t>(kind)].fetch_add(1) + 1);
  }

 private:
  std::atomic<std::uint64_t> serials_[static_cast<std::size_t>(last_handle_kind) + 1]{};
};

}  // namespace headrace::client
