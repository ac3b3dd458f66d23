// Values that runtimes hang on a context, by key (export table c693336e). Asked before nearly every
// runtime call, so a lookup takes a shared lock only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <shared_mutex>
#include <unordered_map>

namespace headrace::driverabi {

class ContextStorage {
 public:
  using Destructor = void (*)(void* context, void* key, void* value);

  void put(void* context, void* key, void* value, Destructor destructor);
  bool erase(void* context, void* key);
  bool get(void* context, void* key, void** value) const;

  // Forgets a context's values and runs their destructors, with no lock held. For resets and
  // destructions of contexts.
  void destroy_all(void* context);

 private:
  struct Slot {
    void* context;
    void* key;
    bool operator==(const Slot&) const = default;
  };
  struct SlotHash {
    std::size_t operator()(const Slot& slot) const {
      return std::hash<void*>{}(slot.context) * 31 + std::hash<void*>{}(slot.key);
    }
  };
  struct Value {
    void* value;
    Destructor destructor;
  };

  mutable std::shared_mutex mutex_;
  std::unordered_map<Slot, Value, SlotHash> values_;
};

}  // namespace headrace::driverabi
