#include "softgpu/compiler/json.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

namespace headrace::softgpu::json {

namespace {
constexpr int kMaxDepth = 32;
const Value kNothing;
}  // namespace

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  bool document(Value& value) {
    if (!element(value, 0)) return false;
    space();
    return rest_.empty();
  }

 private:
  void space() {
    while (!rest_.empty() && (rest_[0] == ' ' || (rest_[0] >= '\t' && rest_[0] <= '\r')))
      rest_.remove_prefix(1);
  }
  bool take(char wanted) {
    space();
    if (rest_.empty() || rest_[0] != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }

  bool element(Value& value, int depth) {
    space();
    if (rest_.empty() || depth > kMaxDepth) return false;
    switch (rest_[0]) {
      case '{':
        return object(value, depth);
      case '[':
        return array(value, depth);
      case '"':
        value.kind_ = Value::Kind::string;
        return string(value.text_);
      case 't':
      case 'f':
        value.kind_ = Value::Kind::boolean;
        value.integer_ = rest_[0] == 't';
        return word("true") || word("false");
      case 'n':
        return word("null");
      default:
        value.kind_ = Value::Kind::number;
        return number(value.integer_);
    }
  }

  bool array(Value& value, int depth) {
    value.kind_ = Value::Kind::array;
    take('[');
    if (take(']')) return true;
    do {
      if (!element(value.items_.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool object(Value& value, int depth) {
    value.kind_ = Value::Kind::object;
    take('{');
    if (take('}')) return true;
    do {
      space();
      if (!string(value.names_.emplace_back()) || !take(':')) return false;
      if (!element(value.items_.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  // Fractions and exponents do not occur in our frames; they are read over.
  bool number(std::int64_t& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    while (!rest_.empty() && std::string_view(".eE+-0123456789").find(rest_[0]) != rest_.npos)
      rest_.remove_prefix(1);
    return true;
  }

  bool string(std::string& text) {
    if (rest_.empty() || rest_[0] != '"') return false;
    rest_.remove_prefix(1);
    while (!rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c == '\\') {
        if (!escape(text)) return false;
      } else {
        text += c;
      }
    }
    return false;
  }

  bool escape(std::string& text) {
    if (rest_.empty()) return false;
    const char c = rest_[0];
    rest_.remove_prefix(1);
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (const std::size_t place = kLetters.find(c); place != kLetters.npos) {
      text += kMeant[place];
      return true;
    }
    std::uint32_t code = 0;
    if (c != 'u' || !hexadecimal(code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {
      std::uint32_t low = 0;
      if (!word("\\u") || !hexadecimal(low) || low < 0xdc00 || low > 0xdfff) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    utf8(text, code);
    return true;
  }

  bool hexadecimal(std::uint32_t& code) {
    if (rest_.size() < 4) return false;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 4, code, 16);
    if (error != std::errc() || end != rest_.data() + 4) return false;
    rest_.remove_prefix(4);
    return true;
  }

  static void utf8(std::string& text, std::uint32_t code) {
    if (code < 0x80) {
      text += static_cast<char>(code);
      return;
    }
    const int following = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const std::uint32_t lead = following == 1 ? 0xc0 : following == 2 ? 0xe0 : 0xf0;
    text += static_cast<char>(lead | code >> (6 * following));
    for (int i = following - 1; i >= 0; --i)
      text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  }

  std::string_view rest_;
};

std::optional<Value> Value::parse(std::string_view text) {
  Value value;
  if (!Parser(text).document(value)) return std::nullopt;
  return value;
}

const Value& Value::operator[](std::string_view name) const {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return items_[i];
  return kNothing;
}

std::uint32_t Value::u32() const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(size(), std::numeric_limits<std::uint32_t>::max()));
}

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace headrace::softgpu::json
