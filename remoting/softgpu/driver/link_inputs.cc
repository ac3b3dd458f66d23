#include "remoting/softgpu/driver/link_inputs.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "remoting/driverabi/fatbin.h"
#include "remoting/softgpu/driver/module.h"

namespace headrace::softgpu {
namespace {

using driverabi::Bytes;

constexpr std::string_view kArchive = "!<arch>\n";
constexpr std::size_t kMemberHeader = 60;
constexpr std::string_view kDeviceRuntimeMember = "cuda_device_runtime.o";

// Cooperative groups of numba and of relocatable device code reach grid barriers through these. The
// barrier's word is the one that cooperative_groups.h uses in code that is compiled as a whole.
constexpr const char* kDeviceRuntime = R"ptx(.version 7.0
.target sm_70
.address_size 64
.weak .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u32 %r1, [scope];
  mov.u32 %r2, %envreg1;
  mov.u32 %r3, %envreg2;
  mov.b64 %rd1, {%r3, %r2};
  setp.eq.s32 %p1, %r1, 1;
  selp.b64 %rd2, %rd1, 0, %p1;
  st.param.b64 [result], %rd2;
  ret;
}
.weak .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p<6>;
  .reg .b32 %r<24>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  mov.u32 %r1, 999;
  setp.eq.s64 %p1, %rd1, 0;
  @%p1 bra done;
  add.s64 %rd2, %rd1, 4;
  bar.sync 0;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %tid.y;
  mov.u32 %r4, %tid.z;
  or.b32 %r5, %r2, %r3;
  or.b32 %r5, %r5, %r4;
  setp.ne.s32 %p2, %r5, 0;
  @%p2 bra joined;
  mov.u32 %r6, %nctaid.x;
  mov.u32 %r7, %nctaid.y;
  mov.u32 %r8, %nctaid.z;
  mul.lo.s32 %r9, %r6, %r7;
  mul.lo.s32 %r9, %r9, %r8;
  mov.u32 %r10, %ctaid.x;
  mov.u32 %r11, %ctaid.y;
  mov.u32 %r12, %ctaid.z;
  or.b32 %r13, %r10, %r11;
  or.b32 %r13, %r13, %r12;
  sub.s32 %r14, -2147483647, %r9;
  setp.eq.s32 %p3, %r13, 0;
  selp.b32 %r15, %r14, 1, %p3;
  membar.gl;
  atom.global.add.u32 %r16, [%rd2], %r15;
waiting:
  ld.volatile.global.u32 %r17, [%rd2];
  xor.b32 %r18, %r17, %r16;
  setp.gt.s32 %p4, %r18, -1;
  @%p4 bra waiting;
  membar.gl;
joined:
  bar.sync 0;
  mov.u32 %r1, 0;
done:
  st.param.b32 [result], %r1;
  ret;
}
)ptx";

// The bytes of the sections with fat binaries.
std::vector<Bytes> fatbin_sections(Bytes object) {
  std::vector<Bytes> out;
  Elf64_Ehdr head;
  if (object.size() < sizeof head) return out;
  std::memcpy(&head, object.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shstrndx >= head.e_shnum ||
      head.e_shoff > object.size() ||
      (object.size() - head.e_shoff) / sizeof(Elf64_Shdr) < head.e_shnum) {
    return out;
  }
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  std::memcpy(sections.data(), object.data() + head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr));
  const auto content = [&](const Elf64_Shdr& section) -> Bytes {
    if (section.sh_type == SHT_NOBITS || section.sh_offset > object.size() ||
        section.sh_size > object.size() - section.sh_offset) {
      return {};
    }
    return object.subspan(section.sh_offset, section.sh_size);
  };
  const Bytes names = content(sections[head.e_shstrndx]);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= names.size()) continue;
    const char* start = reinterpret_cast<const char*>(names.data()) + section.sh_name;
    const std::string_view name(start, strnlen(start, names.size() - section.sh_name));
    if (name == "__nv_relfatbin" || name == ".nv_fatbin") out.push_back(content(section));
  }
  return out;
}

// A member's name: in its header, or ("/offset") in the archive's table of long names.
std::string_view name_of(std::string_view header, Bytes long_names) {
  if (header.starts_with("/")) {
    const std::uint64_t offset = std::strtoull(std::string(header.substr(1)).c_str(), nullptr, 10);
    header = {reinterpret_cast<const char*>(long_names.data()), long_names.size()};
    header.remove_prefix(std::min<std::uint64_t>(offset, header.size()));
  }
  return header.substr(0, header.find('/'));
}

void ptx_of_object(Bytes object, std::vector<std::string>* texts, std::string* why) {
  for (Bytes section : fatbin_sections(object)) {
    while (section.size() >= 16) {
      const std::optional<std::uint64_t> size = driverabi::fatbin_size(section.first(16));
      if (!size || *size > section.size()) {
        section = section.subspan(8);  // padding between containers
        continue;
      }
      const Bytes one = section.first(*size);
      std::string text;
      if (extract_ptx(std::vector<std::uint8_t>(one.begin(), one.end()), &text, why) ==
          CUDA_SUCCESS) {
        texts->push_back(std::move(text));
      }
      section = section.subspan(*size);
    }
  }
}

}  // namespace

CUresult ptx_of_objects(const std::vector<std::uint8_t>& bytes, std::vector<std::string>* texts,
                        std::string* why) {
  const std::size_t before = texts->size();
  *why = "the input is machine code; the software GPU links PTX only";
  Bytes rest(bytes);
  const auto begins_with = [&](std::string_view what) {
    return rest.size() >= what.size() && std::memcmp(rest.data(), what.data(), what.size()) == 0;
  };
  if (!begins_with(kArchive)) {
    ptx_of_object(rest, texts, why);
  } else {
    rest = rest.subspan(kArchive.size());
    Bytes long_names;
    while (rest.size() > kMemberHeader) {
      // Name in 16 characters, size in 10 at 48; members begin at even places.
      const std::string size_text(reinterpret_cast<const char*>(rest.data()) + 48, 10);
      const std::size_t size = std::strtoull(size_text.c_str(), nullptr, 10);
      const std::string name(reinterpret_cast<const char*>(rest.data()), 16);
      rest = rest.subspan(kMemberHeader);
      if (size > rest.size()) break;
      if (name.starts_with("//")) {
        long_names = rest.first(size);
      } else if (name_of(name, long_names) == kDeviceRuntimeMember) {
        texts->push_back(kDeviceRuntime);
      } else {
        ptx_of_object(rest.first(size), texts, why);
      }
      rest = rest.subspan(std::min(size + size % 2, rest.size()));
    }
  }
  return texts->size() == before ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

}  // namespace headrace::softgpu
