#include "common/errors.h"

#include <cstring>

namespace headrace {

Error system_error(ErrorKind kind, const std::string& what, int error_number) {
  char text[128] = "";
  // The GNU form returns the text, which may lie elsewhere than in the buffer.
  const char* said = strerror_r(error_number, text, sizeof text);
  return Error{kind, what + ": " + said, ""};
}

}  // namespace headrace
