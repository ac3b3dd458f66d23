#include "remoting/softgpu/driver/merge_ptx.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

namespace headrace::softgpu {
namespace {

bool word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

// One directive at the outer level of a module: "... ;" or "... { ... }".
struct Statement {
  std::size_t begin = 0, end = 0;
  std::size_t body = 0;  // where its bracket opens, or its end
  std::string name{};    // of the function or variable; empty: neither
  bool is_extern = false;
  bool is_entry = false;
  bool is_weak = false;
  bool is_head = false;  // .version, .target, .address_size
};

std::size_t skip_blank(const std::string& text, std::size_t at) {
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    } else if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.compare(at, 2, "/*") == 0) {
      std::size_t close = text.find("*/", at);
      at = close == std::string::npos ? text.size() : close + 2;
    } else {
      break;
    }
  }
  return at;
}

// The name that a declaration introduces: of a function, the first word that is followed by '(' and
// not inside brackets or a directive; of a variable, the last word before '[', '=' or the end.
std::string name_of(const std::string& head, bool function) {
  std::string last;
  int depth = 0;
  for (std::size_t at = 0; at < head.size();) {
    char c = head[at];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (depth == 0 && !function && (c == '[' || c == '=')) break;
    if (word_char(c)) {
      std::size_t end = at;
      while (end < head.size() && word_char(head[end])) ++end;
      bool directive = at > 0 && head[at - 1] == '.';
      bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (depth == 0 && !directive && !number) {
        last = head.substr(at, end - at);
        if (function) return last;
      }
      at = end;
    } else {
      ++at;
    }
  }
  return last;
}

std::vector<Statement> statements(const std::string& text) {
  std::vector<Statement> out;
  std::size_t at = skip_blank(text, 0);
  while (at < text.size()) {
    Statement one{at, at};
    for (const char* word : {".version", ".target", ".address_size"}) {
      if (text.compare(at, std::string(word).size(), word) == 0) one.is_head = true;
    }
    std::size_t head_end = at;
    if (one.is_head || text.compare(at, 5, ".file") == 0) {
      head_end = one.end = std::min(text.find('\n', at), text.size());
    } else {
      int braces = 0;
      std::size_t end = at;
      head_end = std::string::npos;
      while (end < text.size()) {
        std::size_t next = skip_blank(text, end);
        if (next != end) {
          end = next;
          continue;
        }
        char c = text[end];
        if (c == '"') {
          end = std::min(text.find('"', end + 1), text.size() - 1);
        } else if (c == '{') {
          if (braces++ == 0 && head_end == std::string::npos) head_end = end;
        } else if (c == '}') {
          // A function's body ends with its bracket, a variable's initialiser with a semicolon.
          if (--braces == 0 && text.substr(at, head_end - at).find('=') == std::string::npos) {
            ++end;
            break;
          }
        } else if (c == ';' && braces == 0) {
          if (head_end == std::string::npos) head_end = end;
          ++end;
          break;
        }
        ++end;
      }
      one.end = end;
      if (head_end == std::string::npos) head_end = end;
      std::string head = text.substr(at, head_end - at);
      bool function =
          head.find(".func") != std::string::npos || head.find(".entry") != std::string::npos;
      one.body = head_end;
      one.is_entry = head.find(".entry") != std::string::npos;
      one.is_weak = head.compare(0, 5, ".weak") == 0;
      one.is_extern = head.compare(0, 7, ".extern") == 0;
      one.name = name_of(head, function);
    }
    out.push_back(one);
    at = skip_blank(text, one.end);
  }
  return out;
}

double version_of(const std::string& text) {
  std::size_t at = text.find(".version");
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 8, nullptr);
}

}  // namespace

std::string merge_ptx(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts[0];
  const std::string* newest = &texts[0];
  for (const std::string& text : texts) {
    if (version_of(text) > version_of(*newest)) newest = &text;
  }
  std::set<std::string> defined, strong;
  for (const std::string& text : texts) {
    for (const Statement& one : statements(text)) {
      if (one.is_extern || one.name.empty()) continue;
      defined.insert(one.name);
      if (!one.is_weak) strong.insert(one.name);
    }
  }
  std::string out;
  for (const Statement& one : statements(*newest)) {
    if (one.is_head) out += newest->substr(one.begin, one.end - one.begin) + "\n";
  }
  std::set<std::string> declared;
  for (const std::string& text : texts) {
    for (const Statement& one : statements(text)) {
      if (one.is_head) continue;
      if (one.is_extern && (defined.count(one.name) != 0 || !declared.insert(one.name).second)) {
        continue;
      }
      // Of several weak definitions the first one stands, unless there is a strong one.
      if (one.is_weak && !strong.insert(one.name).second) continue;
      out += text.substr(one.begin, one.end - one.begin) + "\n";
    }
  }
  return out;
}

std::string limit_registers(const std::string& text, unsigned most) {
  std::string out;
  std::size_t done = 0;
  for (const Statement& one : statements(text)) {
    if (!one.is_entry || text[one.body] != '{') continue;
    if (text.substr(one.begin, one.body - one.begin).find(".maxnreg") != std::string::npos)
      continue;
    out += text.substr(done, one.body - done) + ".maxnreg " + std::to_string(most) + "\n";
    done = one.body;
  }
  return out + text.substr(done);
}

}  // namespace headrace::softgpu
