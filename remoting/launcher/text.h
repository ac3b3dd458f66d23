// Words for terminals and for JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"

namespace headrace::launcher {

std::string value_or_empty(const Values& values, std::string_view name);
// Quoted and escaped.
std::string json_text(const std::string& text);
// What a server says goes to a terminal: control characters do not.
std::string printable(std::string text);
// Columns as wide as their widest cell, two blanks between them.
std::string format_rows(const std::vector<std::vector<std::string>>& rows);

}  // namespace headrace::launcher
