#include "client/host_pages.h"

#include <sys/mman.h>

namespace headrace::client {

std::uint64_t take_pages(std::uint64_t size) {
  void* const pages =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? 0 : reinterpret_cast<std::uint64_t>(pages);
}

void release_pages(std::uint64_t base, std::uint64_t size) {
  munmap(reinterpret_cast<void*>(base), size);
}

}  // namespace headrace::client
