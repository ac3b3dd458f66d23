// The client's handles and the driver's objects behind them (PROTOCOL.md §7.3).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "common/ids.h"

namespace headrace::worker {

class HandleTable {
 public:
  struct Entry {
    std::uint64_t object = 0;        // the driver's, as a number
    std::uint64_t context = 0;       // handle of the context that it ends with; 0: with the session
    unsigned device = 0;             // whose memory is charged
    std::uint64_t charged = 0;       // bytes given back when the handle ends
    std::shared_ptr<void> attached;  // of ours, for as long as the handle
  };

  explicit HandleTable(std::uint32_t limit) : limit_(limit) {}

  // nullptr: unknown, or of another kind.
  Entry* find(HandleKind kind, std::uint64_t handle) {
    if (handle_kind(handle) != kind) return nullptr;
    const auto found = entries_.find(handle);
    return found == entries_.end() ? nullptr : &found->second;
  }
  bool full() const { return entries_.size() >= limit_; }
  bool contains(std::uint64_t handle) const { return entries_.contains(handle); }
  void add(std::uint64_t handle, const Entry& entry) { entries_[handle] = entry; }
  void remove(std::uint64_t handle) { entries_.erase(handle); }

  // Drops everything that ends with a context; `gone` is told of each entry first.
  template <typename Gone>
  void remove_context(std::uint64_t context, Gone gone) {
    std::erase_if(entries_, [&](const auto& one) {
      if (one.second.context != context) return false;
      gone(one.second);
      return true;
    });
  }
  template <typename Visit>
  void for_each(HandleKind kind, Visit visit) const {
    for (const auto& [handle, entry] : entries_) {
      if (handle_kind(handle) == kind) visit(handle, entry);
    }
  }
  std::size_t size() const { return entries_.size(); }

 private:
  std::uint32_t limit_;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace headrace::worker
