// Objects that each thread has one of.
#pragma once

#include <unistd.h>

namespace headrace::client {

// The calling thread's T for one purpose, made on first use and destroyed when the thread ends.
// Purpose is a type of the user's own: two users of the same T must never share one object. The
// main thread's stays: exit handlers and destructors of static objects run after its thread-local
// destructors, and runtimes call the driver from there.
template <typename T, typename Purpose>
T& per_thread() {
  static thread_local T* object = nullptr;  // no destructor: readable to the very end
  struct Owner {
    ~Owner() {
      if (gettid() == getpid()) return;
      delete object;
      object = nullptr;
    }
  };
  static thread_local Owner owner;
  if (object == nullptr) object = new T;
  return *object;
}

}  // namespace headrace::client
