#include "worker/blobs.h"

#include <zstd.h>

#include <cstring>

#include "common/ids.h"

namespace headrace::worker {
namespace {

enum Encoding : std::uint8_t { plain = 0, zstd = 1 };

std::unique_ptr<std::uint8_t[]> room(std::uint64_t size) {
  std::unique_ptr<std::uint8_t[]> bytes = std::make_unique_for_overwrite<std::uint8_t[]>(size + 1);
  bytes[size] = 0;
  return bytes;
}

}  // namespace

std::string Blobs::begin(std::uint64_t handle, std::uint64_t size, std::uint64_t raw_size,
                         std::uint8_t encoding) {
  if (handle_kind(handle) != HandleKind::blob || open_.contains(handle)) {
    return "BlobBegin: not a new blob handle";
  }
  if (encoding != plain && encoding != zstd) return "BlobBegin: unknown encoding";
  if (encoding == plain && raw_size != size) return "BlobBegin: sizes differ without encoding";
  if (open_.size() == max_open) return "BlobBegin: too many open blobs";
  if (size > max_bytes || raw_size > max_bytes || bytes_ + size + raw_size > 2 * max_bytes) {
    return "BlobBegin: more than 1 GiB of open blobs";
  }
  open_[handle] = Open{room(size), size, 0, raw_size, encoding == zstd};
  bytes_ += size + raw_size;
  return "";
}

std::string Blobs::data(std::uint64_t handle, std::uint64_t offset,
                        std::span<const std::uint8_t> bytes) {
  const auto found = open_.find(handle);
  if (found == open_.end()) return "BlobData: no such blob";
  Open& blob = found->second;
  if (offset != blob.filled || bytes.size() > blob.size - blob.filled) {
    return "BlobData: not the next piece of its blob";
  }
  if (!bytes.empty()) std::memcpy(blob.data.get() + offset, bytes.data(), bytes.size());
  blob.filled += bytes.size();
  return "";
}

bool Blobs::take(std::uint64_t handle, Blob& out) {
  const auto found = open_.find(handle);
  if (found == open_.end()) return false;
  Open blob = std::move(found->second);
  open_.erase(found);
  bytes_ -= blob.size + blob.raw_size;
  if (blob.filled != blob.size) return false;
  if (!blob.compressed) {
    out = Blob{std::move(blob.data), blob.size};
    return true;
  }
  out = Blob{room(blob.raw_size), blob.raw_size};
  const std::size_t raw =
      ZSTD_decompress(out.data.get(), blob.raw_size, blob.data.get(), blob.size);
  return ZSTD_isError(raw) == 0 && raw == blob.raw_size;
}

}  // namespace headrace::worker
