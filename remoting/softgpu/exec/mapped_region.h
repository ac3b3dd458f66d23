// Anonymous memory that grows when a launch needs more, is zero when it is mapped, and costs
// nothing until it is touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace headrace::softgpu::exec {

class MappedRegion {
 public:
  MappedRegion() = default;
  ~MappedRegion() { release(); }
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  // False when there is no memory; then nothing is mapped.
  bool reserve(std::size_t bytes) {
    if (bytes <= bytes_) return true;
    release();
    const std::size_t rounded = (bytes + 0xffff) & ~std::size_t{0xffff};
    void* mapping = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return false;
    data_ = static_cast<std::uint8_t*>(mapping);
    bytes_ = rounded;
    return true;
  }
  // Gives large regions back, so that one big launch does not hold memory for ever.
  void trim(std::size_t keep) {
    if (bytes_ > keep) release();
  }
  std::uint8_t* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void release() {
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace headrace::softgpu::exec
