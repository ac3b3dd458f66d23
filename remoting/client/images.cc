#include "client/images.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "client/process.h"
#include "client/remote.h"
#include "common/unique_fd.h"
#include "driverabi/fatbin.h"

namespace headrace::client {
namespace {

constexpr std::uint64_t max_image = std::uint64_t{1} << 30;  // of all open blobs together
constexpr std::size_t max_blob_piece = 1'048'544;
constexpr std::size_t compress_from = 64 * 1024;
constexpr int compression_level = 1;
constexpr std::uint8_t encoding_plain = 0;
constexpr std::uint8_t encoding_zstd = 1;

// The newest PTX, whatever it is for: a software GPU takes it.
int newest_ptx(const std::vector<driverabi::FatbinEntry>& entries) {
  int newest = -1;
  for (int i = 0; i < static_cast<int>(entries.size()); ++i) {
    if (entries[i].kind != driverabi::EntryKind::ptx) continue;
    if (newest < 0 || entries[i].arch.sm > entries[newest].arch.sm) newest = i;
  }
  return newest;
}

// Of a fatbin only what this device can use travels: its best SASS and its best PTX.
CUresult select_for(const Device& device, const driverabi::Image& image,
                    std::vector<std::uint8_t>& bytes) {
  const std::optional<std::vector<driverabi::FatbinEntry>> entries =
      driverabi::read_fatbin(image.bytes);
  if (!entries) return CUDA_ERROR_INVALID_IMAGE;
  driverabi::Selection chosen = driverabi::select_entries(*entries, device.sm());
  if (chosen.ptx < 0 && device.software) chosen.ptx = newest_ptx(*entries);
  std::vector<driverabi::FatbinEntry> kept;
  if (chosen.sass >= 0) kept.push_back((*entries)[chosen.sass]);
  if (chosen.ptx >= 0) kept.push_back((*entries)[chosen.ptx]);
  if (kept.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  bytes = driverabi::write_fatbin(kept);
  return CUDA_SUCCESS;
}

CUresult prepare(const driverabi::Image& image, const Device& device, PreparedImage& prepared) {
  if (image.bytes.size() > max_image) return CUDA_ERROR_OUT_OF_MEMORY;
  if (image.kind == driverabi::ImageKind::fatbin) {
    if (const CUresult bad = select_for(device, image, prepared.bytes); bad != CUDA_SUCCESS) {
      return bad;
    }
  } else {
    prepared.bytes.assign(image.bytes.begin(), image.bytes.end());
    if (image.kind == driverabi::ImageKind::ptx) prepared.bytes.push_back(0);
  }
  const driverabi::Image sent{image.kind, prepared.bytes};
  const std::uint32_t any_sm = device.software ? 999 : device.sm();
  std::optional<std::vector<driverabi::KernelLayout>> kernels =
      driverabi::kernels_of(sent, device.sm(), max_image);
  if (!kernels) kernels = driverabi::kernels_of(sent, any_sm, max_image);
  if (kernels) {
    prepared.kernels =
        std::make_shared<const std::vector<driverabi::KernelLayout>>(std::move(*kernels));
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult prepare_image(const void* image, const Device& device, PreparedImage& prepared) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<driverabi::Image> found = driverabi::image_at(image);
  return found ? prepare(*found, device, prepared) : CUDA_ERROR_INVALID_IMAGE;
}

CUresult prepare_file(const char* path, const Device& device, PreparedImage& prepared) {
  std::vector<std::uint8_t> content;
  if (const CUresult bad = read_file(path, content); bad != CUDA_SUCCESS) return bad;
  const std::optional<driverabi::Image> found = driverabi::image_in(content);
  return found ? prepare(*found, device, prepared) : CUDA_ERROR_INVALID_IMAGE;
}

CUresult read_file(const char* path, std::vector<std::uint8_t>& content) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (!S_ISREG(about.st_mode) || static_cast<std::uint64_t>(about.st_size) > max_image) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  content.resize(static_cast<std::size_t>(about.st_size));
  std::size_t have = 0;
  while (have < content.size()) {
    const ssize_t got = read(file.get(), content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return CUDA_ERROR_INVALID_IMAGE;
    have += static_cast<std::size_t>(got);
  }
  return CUDA_SUCCESS;
}

CUresult upload_blob(std::span<const std::uint8_t> bytes, std::uint64_t& blob) {
  Process& here = process();
  blob = here.handles.make(HandleKind::blob);
  protocol::BlobBegin begin;
  begin.blob = blob;
  begin.raw_size = bytes.size();
  begin.encoding = encoding_plain;
  std::vector<std::uint8_t> packed;
  if (bytes.size() >= compress_from) {
    packed.resize(ZSTD_compressBound(bytes.size()));
    const std::size_t size =
        ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), compression_level);
    // Fatbins are compressed already; a few per cent are not worth the server's work.
    if (ZSTD_isError(size) == 0 && size < bytes.size() / 10 * 9) {
      begin.encoding = encoding_zstd;
      bytes = std::span<const std::uint8_t>(packed).first(size);
    }
  }
  begin.size = bytes.size();
  if (const CUresult bad = result_of(here.connection->send(0, begin)); bad != CUDA_SUCCESS) {
    return bad;
  }
  std::uint64_t offset = 0;
  while (!bytes.empty()) {
    const std::span<const std::uint8_t> piece = bytes.first(std::min(bytes.size(), max_blob_piece));
    Writer before;
    before.u64(blob);
    before.u64(offset);
    before.u32(static_cast<std::uint32_t>(piece.size()));
    const CUresult bad = result_of(
        here.connection->send_around(0, protocol::BlobData::kType, before.view(), piece, {}));
    if (bad != CUDA_SUCCESS) return bad;
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
