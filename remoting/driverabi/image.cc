#include "driverabi/image.h"

#include <cstring>

#include "driverabi/cubin.h"
#include "driverabi/ptx_entries.h"

namespace headrace::driverabi {
namespace {

constexpr std::size_t kFatbinHeader = 16;
constexpr std::size_t kElfHeader = 64;
constexpr std::size_t kWrapperData = 8;  // offset of the pointer to the container

// Text ends at its zero, which CUDA's contract demands; a file read into memory may lack it.
std::string_view until_zero(std::string_view text) { return text.substr(0, text.find('\0')); }

Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::optional<std::vector<KernelLayout>> kernels_of_entry(EntryKind kind, Bytes image) {
  if (kind == EntryKind::ptx) return read_ptx_entries(until_zero(as_text(image)));
  std::optional<CubinInfo> info = read_cubin(image);
  if (!info) return std::nullopt;
  return std::move(info->kernels);
}

}  // namespace

std::optional<Image> image_at(const void* address) {
  if (address == nullptr) return std::nullopt;
  std::uint32_t magic = 0;
  const std::uint8_t* start = static_cast<const std::uint8_t*>(address);
  // Byte by byte: a short text may end before four bytes are readable.
  for (int i = 0; i < 4; ++i) {
    magic |= std::uint32_t{start[i]} << (8 * i);
    if (start[i] == 0) break;
  }
  if (magic == kFatbinWrapperMagic) {
    const void* data = nullptr;
    std::memcpy(&data, start + kWrapperData, sizeof data);
    if (data == nullptr) return std::nullopt;
    start = static_cast<const std::uint8_t*>(data);
    std::memcpy(&magic, start, sizeof magic);
    if (magic != kFatbinMagic) return std::nullopt;
  }
  if (magic == kFatbinMagic) {
    const std::optional<std::uint64_t> size = fatbin_size(Bytes(start, kFatbinHeader));
    if (!size) return std::nullopt;
    return Image{ImageKind::fatbin, Bytes(start, *size)};
  }
  if (std::memcmp(&magic, "\177ELF", 4) == 0) {
    const std::optional<std::uint64_t> size = elf_size(Bytes(start, kElfHeader));
    if (!size) return std::nullopt;
    return Image{ImageKind::cubin, Bytes(start, *size)};
  }
  // Only text is searched for its end: other bytes may not have one.
  const char first = static_cast<char>(start[0]);
  if (first != '.' && first != '/' && first != ' ' && first != '\t' && first != '\n' &&
      first != '\r') {
    return std::nullopt;
  }
  const std::string_view text(reinterpret_cast<const char*>(start));
  if (!looks_like_ptx(text)) return std::nullopt;
  return Image{ImageKind::ptx, as_bytes(text)};
}

std::optional<Image> image_in(Bytes bytes) {
  if (const std::optional<std::uint64_t> size = fatbin_size(bytes)) {
    if (*size > bytes.size()) return std::nullopt;
    return Image{ImageKind::fatbin, bytes.first(*size)};
  }
  if (const std::optional<std::uint64_t> size = elf_size(bytes)) {
    if (*size > bytes.size()) return std::nullopt;
    return Image{ImageKind::cubin, bytes.first(*size)};
  }
  const std::string_view text = until_zero(as_text(bytes));
  if (!looks_like_ptx(text)) return std::nullopt;
  return Image{ImageKind::ptx, as_bytes(text)};
}

std::optional<std::vector<KernelLayout>> kernels_of(const Image& image, std::uint32_t device_sm,
                                                    std::uint64_t limit) {
  if (image.kind == ImageKind::cubin) return kernels_of_entry(EntryKind::cubin, image.bytes);
  if (image.kind == ImageKind::ptx) return kernels_of_entry(EntryKind::ptx, image.bytes);
  const std::optional<std::vector<FatbinEntry>> entries = read_fatbin(image.bytes);
  if (!entries) return std::nullopt;
  const Selection selection = select_entries(*entries, device_sm);
  const int chosen = selection.sass >= 0 ? selection.sass : selection.ptx;
  if (chosen < 0) return std::nullopt;
  std::vector<std::uint8_t> plain;
  if (!unpack((*entries)[chosen], limit, plain)) return std::nullopt;
  return kernels_of_entry((*entries)[chosen].kind, plain);
}

}  // namespace headrace::driverabi
