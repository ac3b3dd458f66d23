#include "worker/bodies/image_bounds.h"

#include <elf.h>

#include <cstring>

namespace headrace::worker::bodies {
namespace {

constexpr std::uint32_t fat_binary_magic = 0xba55ed50;
constexpr std::uint32_t wrapper_magic = 0x466243b1;  // holds pointers: never valid from a client

bool range_within(std::uint64_t offset, std::uint64_t count, std::uint64_t size) {
  return offset <= size && count <= size - offset;
}

// Sections that take no room in the file; relocatable cubins have types of NVIDIA's own for them.
bool without_content(std::uint32_t type) {
  constexpr std::uint32_t global = 0x70000007, local = 0x70000009, shared = 0x7000000a,
                          reserved_shared = 0x70000015;
  return type == SHT_NOBITS || type == global || type == local || type == shared ||
         type == reserved_shared;
}

bool elf_within(const std::uint8_t* data, std::size_t size) {
  if (size < sizeof(Elf64_Ehdr)) return false;
  Elf64_Ehdr header;
  std::memcpy(&header, data, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  // Also a table without entries must lie inside: its place alone may make a reader believe that
  // the image is larger than it is.
  if ((header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr)) ||
      !range_within(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), size)) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
    if (!range_within(segment.p_offset, segment.p_filesz, size)) return false;
  }
  if (header.e_shoff == 0) return header.e_shnum == 0;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !range_within(header.e_shoff, sizeof(Elf64_Shdr), size)) {
    return false;
  }
  std::uint64_t sections = header.e_shnum;
  if (sections == 0) {  // more than 16 bits count: the first section says how many
    Elf64_Shdr first;
    std::memcpy(&first, data + header.e_shoff, sizeof first);
    sections = first.sh_size;
  }
  if (sections > size / sizeof(Elf64_Shdr) ||
      !range_within(header.e_shoff, sections * sizeof(Elf64_Shdr), size)) {
    return false;
  }
  for (std::uint64_t i = header.e_shnum == 0 ? 1 : 0; i < sections; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, data + header.e_shoff + i * sizeof section, sizeof section);
    if (!without_content(section.sh_type) &&
        !range_within(section.sh_offset, section.sh_size, size)) {
      return false;
    }
  }
  return true;
}

// Header: u32 magic, u16 version, u16 header size, u64 bytes of all entries. An entry: u16 kind,
// u16 version, u32 header size, u64 payload size, then further fields.
bool fat_binary_within(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t header_size = 16, entry_head = 16, smallest_entry = 64;
  if (size < header_size) return false;
  std::uint16_t stated_header = 0;
  std::uint64_t entries = 0;
  std::memcpy(&stated_header, data + 6, sizeof stated_header);
  std::memcpy(&entries, data + 8, sizeof entries);
  if (stated_header < header_size || !range_within(stated_header, entries, size)) return false;
  std::uint64_t at = stated_header;
  const std::uint64_t end = stated_header + entries;
  while (end - at >= entry_head) {
    std::uint32_t entry_header = 0;
    std::uint64_t payload = 0;
    std::memcpy(&entry_header, data + at + 4, sizeof entry_header);
    std::memcpy(&payload, data + at + 8, sizeof payload);
    if (entry_header < smallest_entry || !range_within(at, entry_header, end)) return false;
    if (!range_within(at + entry_header, payload, end)) return false;
    at += entry_header + payload;
  }
  return true;
}

}  // namespace

bool image_within(const std::uint8_t* data, std::size_t size) {
  std::uint32_t magic = 0;
  if (size >= sizeof magic) std::memcpy(&magic, data, sizeof magic);
  if (magic == wrapper_magic) return false;
  if (magic == fat_binary_magic) return fat_binary_within(data, size);
  if (size >= SELFMAG && std::memcmp(data, ELFMAG, SELFMAG) == 0) return elf_within(data, size);
  return true;  // text: ends at the zero byte at the latest
}

}  // namespace headrace::worker::bodies
