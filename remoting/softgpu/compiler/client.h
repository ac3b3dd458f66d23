// Asks the compile helper: what is in a PTX module, and machine code for one of its kernels.
//
// The helper is a process of its own (README.md here), found through HEADRACE_SOFTGPU_COMPILER
// ("unix:/path" of a running one, or a command to start), otherwise started on demand with the
// command baked in at build time. No call prints, throws or leaves a child process to the
// application. Thread-safe: each request in flight has its own connection. After a fork the
// child's copies of the connections are closed, and it makes its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headrace::softgpu {

enum class JitErrorKind : std::uint8_t {
  compiler_not_found,   // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
  invalid_ptx,          // CUDA_ERROR_INVALID_PTX
  unsupported_form,     // CUDA_ERROR_INVALID_PTX (an instruction that the software GPU has not)
  unsupported_version,  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
  unknown_kernel,       // CUDA_ERROR_NOT_FOUND
  limit,                // compile took too long or too much memory: CUDA_ERROR_OUT_OF_MEMORY
  no_space,             // nowhere to write the machine code: CUDA_ERROR_OPERATING_SYSTEM
  internal,             // the helper or the compile ended unexpectedly: CUDA_ERROR_UNKNOWN
};

struct JitError {
  JitErrorKind kind = JitErrorKind::internal;
  std::string message;     // one or more lines for the JIT error log, with instruction and line
  std::uint32_t line = 0;  // line of the PTX text, 0 = none
};

template <typename T>
class JitResult {
 public:
  JitResult(T value) : content_(std::move(value)) {}         // NOLINT: conversion is the point
  JitResult(JitError error) : content_(std::move(error)) {}  // NOLINT
  bool ok() const { return content_.index() == 0; }
  T& value() { return std::get<0>(content_); }
  const T& value() const { return std::get<0>(content_); }
  const JitError& error() const { return std::get<1>(content_); }

 private:
  std::variant<T, JitError> content_;
};

struct ParamInfo {
  std::uint32_t offset = 0, size = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;
  std::uint32_t param_bytes = 0;
  std::uint32_t static_shared = 0;  // as declared; the compiled kernel's descriptor is exact
  std::uint32_t local_bytes = 0;
  std::uint32_t max_threads = 0;  // product of .maxntid, 0 = none
  std::uint32_t req_ntid[3] = {0, 0, 0};
  std::string
      refused;  // why it will not compile, where that was seen at once; mostly not looked for
};

struct GlobalInfo {
  std::string name;
  std::uint64_t offset = 0, size = 0;
  std::uint32_t align = 1;
  bool constant = false;
};

// At `offset` of the image stands an 8-byte address: of `target` in this module instance, plus
// addend.
struct RelocationInfo {
  std::uint64_t offset = 0;
  std::string target;
  std::int64_t addend = 0;
  bool generic = true;
};

struct ModuleInfo {
  std::string hash;     // SHA-256 of the text, hexadecimal
  std::string version;  // "8.7", of .version
  std::string target;   // "sm_80", of .target
  std::vector<KernelInfo> kernels;
  std::vector<GlobalInfo> globals;
  std::uint64_t globals_bytes = 0;  // size of the globals block; may be larger than the image
  std::uint32_t globals_align = 16;
  std::vector<std::uint8_t> image;  // initial content, the rest is zero
  std::vector<RelocationInfo> relocations;
  std::shared_ptr<const std::string> text;  // kept: the helper may have to be told it again

  const KernelInfo* kernel(std::string_view name) const {
    for (const KernelInfo& k : kernels)
      if (k.name == name) return &k;
    return nullptr;
  }
};

// A kernel's shared object, for KernelImage::load().
struct KernelObject {
  std::string path;
  bool final = true;  // false: made quickly; ask better() for optimised code
};

struct CompilerSettings {
  std::string compiler;  // "unix:/path", a command, or empty: the one baked in
  std::string cache;     // directory for the helper started on demand; empty: its default
  // From HEADRACE_SOFTGPU_COMPILER and HEADRACE_SOFTGPU_CACHE.
  static CompilerSettings from_environment();
};

class CompilerClient {
 public:
  explicit CompilerClient(CompilerSettings settings = CompilerSettings::from_environment());
  ~CompilerClient();
  CompilerClient(const CompilerClient&) = delete;
  CompilerClient& operator=(const CompilerClient&) = delete;

  // `text`: PTX without the trailing NUL (one is cut off if it is there).
  JitResult<ModuleInfo> inspect(std::string_view text) noexcept;

  // Path of a shared object for KernelImage::load(). It stays valid at least until the next
  // request of this process: load it at once. `opt`: 0..3, or none for the translator's choice.
  JitResult<std::string> compile(const ModuleInfo& module, std::string_view kernel,
                                 std::optional<unsigned> opt = std::nullopt) noexcept;

  // Like compile(), but a large kernel may come as code that was made quickly, while the helper
  // makes optimised code of it, which computes the same bits.
  JitResult<KernelObject> compile_in_tiers(const ModuleInfo& module,
                                           std::string_view kernel) noexcept;

  // The optimised code of a kernel that was not final; no path while it is being made. Does not
  // wait for it. An error says that there will be none.
  JitResult<std::optional<std::string>> better(const ModuleInfo& module,
                                               std::string_view kernel) noexcept;

 private:
  JitResult<KernelObject> compile(const ModuleInfo& module, std::string_view kernel,
                                  std::string_view wanted) noexcept;

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::softgpu
