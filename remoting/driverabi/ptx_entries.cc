#include "driverabi/ptx_entries.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kMaxParamBytes = 1 << 16;
constexpr std::uint32_t kMaxThreadsPerBlock = 1024;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '.' || c == '%';
}

// Splits text into words (identifiers, directives, numbers) and single other characters, and skips
// blanks, comments and strings.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // The next token; empty at the end.
  std::string_view next() {
    skip_blanks();
    if (at_ >= text_.size()) return {};
    const std::size_t start = at_;
    if (text_[at_] == '"') {
      ++at_;
      while (at_ < text_.size() && text_[at_] != '"') ++at_;
      at_ = std::min(at_ + 1, text_.size());
    } else if (is_word(text_[at_])) {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    } else {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  std::string_view peek() {
    const std::size_t kept = at_;
    const std::string_view token = next();
    at_ = kept;
    return token;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::optional<std::uint64_t> number(std::string_view word) {
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) {
    base = 16;
    word.remove_prefix(2);
  }
  if (word.ends_with('U') || word.ends_with('u')) word.remove_suffix(1);
  std::uint64_t value = 0;
  const std::from_chars_result result =
      std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (result.ec != std::errc{} || result.ptr != word.data() + word.size()) return std::nullopt;
  return value;
}

std::uint64_t type_size(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, int>, 24> kTypes = {{
      {".b8", 1},         {".u8", 1},      {".s8", 1},     {".b16", 2},    {".u16", 2},
      {".s16", 2},        {".f16", 2},     {".bf16", 2},   {".b32", 4},    {".u32", 4},
      {".s32", 4},        {".f32", 4},     {".f16x2", 4},  {".bf16x2", 4}, {".b64", 8},
      {".u64", 8},        {".s64", 8},     {".f64", 8},    {".b128", 16},  {".texref", 8},
      {".samplerref", 8}, {".surfref", 8}, {".e4m3x2", 2}, {".e5m2x2", 2},
  }};
  for (const auto& [name, size] : kTypes) {
    if (name == type) return static_cast<std::uint64_t>(size);
  }
  return 0;
}

// One parameter after `.param`, up to its `,` or `)`, which is returned in `end`.
bool read_param(Tokens& tokens, KernelLayout& kernel, std::uint64_t& used, std::string_view& end) {
  std::uint64_t align = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 1;
  bool named = false;
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "," || token == ")") {
      end = token;
      if (size == 0 || !named) return false;
      align = std::max(align, size);
      if (align > 4096 || (align & (align - 1)) != 0) return false;
      const std::uint64_t offset = (used + align - 1) / align * align;
      if (count > kMaxParamBytes || offset + size * count > kMaxParamBytes) return false;
      used = offset + size * count;
      kernel.params.push_back(
          ParamSlot{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size * count)});
      return true;
    }
    if (token == ".ptr") {
      // A hint about what the pointer points to: `.ptr .global .align 16`. Its alignment is not
      // the parameter's own.
      for (std::string_view hint = tokens.peek();
           hint == ".global" || hint == ".const" || hint == ".shared" || hint == ".local" ||
           hint == ".param" || hint == ".align";
           hint = tokens.peek()) {
        tokens.next();
        if (hint == ".align" && !number(tokens.next())) return false;
      }
    } else if (token == ".align") {
      const std::optional<std::uint64_t> value = number(tokens.next());
      if (!value || *value == 0) return false;
      align = *value;
    } else if (token == "[") {
      const std::optional<std::uint64_t> value = number(tokens.next());
      if (!value || *value == 0 || *value > kMaxParamBytes || tokens.next() != "]") return false;
      count *= *value;
      if (count > kMaxParamBytes) return false;
    } else if (token.starts_with('.')) {
      size = type_size(token);
      if (size == 0) return false;
    } else if (is_word(token[0])) {
      named = true;
    } else {
      return false;
    }
  }
  return false;
}

// Between the parameters and the body: `.maxntid 128, 1, 1` and the like.
bool read_tuning(Tokens& tokens, KernelLayout& kernel) {
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "{" || token == ";") return true;
    if (token != ".maxntid" && token != ".reqntid") continue;
    std::uint64_t threads = 1;
    do {
      const std::optional<std::uint64_t> value = number(tokens.next());
      if (!value || *value == 0 || *value > UINT32_MAX) return false;
      threads = std::min<std::uint64_t>(threads * *value, UINT32_MAX);
    } while (tokens.peek() == "," && !tokens.next().empty());
    kernel.max_threads =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, kMaxThreadsPerBlock));
  }
  return false;
}

}  // namespace

std::optional<std::vector<KernelLayout>> read_ptx_entries(std::string_view text) {
  std::vector<KernelLayout> kernels;
  std::unordered_map<std::string_view, std::size_t> places;  // by name
  Tokens tokens(text);
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token != ".entry") continue;
    KernelLayout kernel;
    const std::string_view name = tokens.next();
    if (name.empty() || !is_word(name[0])) return std::nullopt;
    kernel.name = name;
    std::uint64_t used = 0;
    if (tokens.peek() == "(") {
      tokens.next();
      std::string_view separator = tokens.peek() == ")" ? tokens.next() : "(";
      while (separator != ")") {
        if (tokens.next() != ".param" || !read_param(tokens, kernel, used, separator)) {
          return std::nullopt;
        }
      }
    }
    kernel.param_bytes = static_cast<std::uint32_t>(used);
    if (!read_tuning(tokens, kernel)) return std::nullopt;
    // A forward declaration and its definition are one kernel.
    const auto [same, fresh] = places.try_emplace(name, kernels.size());
    if (fresh) {
      kernels.push_back(std::move(kernel));
    } else {
      kernels[same->second] = std::move(kernel);
    }
  }
  return kernels;
}

bool looks_like_ptx(std::string_view text) { return Tokens(text).next().starts_with('.'); }

}  // namespace headrace::driverabi
