// The JSON of the compile helper's frames: read into a tree, written as strings. Bounded in depth;
// the length is bounded by the frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::softgpu::json {

class Value {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

  // Nothing if the text is no JSON document.
  static std::optional<Value> parse(std::string_view text);

  // Accessors never fail: what is absent or of another kind reads as empty.
  const Value& operator[](std::string_view name) const;
  const std::vector<Value>& items() const { return items_; }
  const std::string& text() const { return text_; }
  std::int64_t integer() const { return integer_; }
  std::uint64_t size() const { return integer_ < 0 ? 0 : static_cast<std::uint64_t>(integer_); }
  std::uint32_t u32() const;
  bool truth() const { return kind_ == Kind::boolean && integer_ != 0; }

 private:
  friend class Parser;
  Kind kind_ = Kind::null;
  std::int64_t integer_ = 0;  // number (whole part) or boolean
  std::string text_;
  std::vector<Value> items_;  // of an array; of an object: the values
  std::vector<std::string> names_;
};

// "text" with quotes and escapes.
std::string quote(std::string_view text);

}  // namespace headrace::softgpu::json
