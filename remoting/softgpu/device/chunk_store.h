// The physical memory of one software device: a shared-memory file cut into 2 MiB chunks, and a
// table beside it that says which process holds which chunk.
//
// With a state directory both are files there, shared by all processes of that directory: one
// device, one amount of memory, exact accounting across processes. Chunks of a process that died
// are taken back when the next one looks. Freed chunks keep their content, as the memory of a GPU
// does. Without a state directory both are anonymous and private to the process.
//
// The owner table is the only truth (the free count is counted from it), so a process killed
// between two stores leaves no contradiction behind.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace headrace::softgpu {

inline constexpr std::uint64_t kChunkBytes = std::uint64_t{2} << 20;

struct ProcessUsage {
  std::uint32_t pid;
  std::uint64_t bytes;
};

class ChunkStore {
 public:
  // nullptr when the files cannot be made, or belong to a device of another size; `why` says it.
  static std::unique_ptr<ChunkStore> open(const std::string& state_dir, int device_index,
                                          std::uint64_t bytes, std::string* why);
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  // Takes `count` chunks for this process, ascending, as contiguous as the store allows; false (and
  // nothing taken) when fewer are free or the file system behind could not hold them.
  bool take(std::uint32_t count, std::vector<std::uint32_t>* chunks);
  void give(const std::vector<std::uint32_t>& chunks);

  std::uint32_t free_chunks();
  std::uint32_t total_chunks() const { return total_; }
  std::vector<ProcessUsage> usage();
  int data_fd() const { return data_fd_; }

 private:
  struct Table;
  class Lock;
  ChunkStore() = default;
  void reap_locked();
  int own_slot_locked();
  std::uint16_t* owners() const;

  std::mutex mutex_;
  int data_fd_ = -1;
  int table_fd_ = -1;
  Table* table_ = nullptr;
  std::size_t table_bytes_ = 0;
  std::uint32_t total_ = 0;
  int slot_ = -1;
};

}  // namespace headrace::softgpu
