#include "common/errors.h"

#include <cstring>

namespace headrace {

Error system_error(ErrorKind kind, const std::string& what, int error_number) {
  char text[128] = "";
  // The GNU form returns the text, which may lie elsewhere than in the buffer.
  const char* said = strerror_r(error_number, text, sizeof text);
  return Error{kind, what + ": " + said, ""};
}

ErrorKind refusal_kind(std::uint16_t code) {
  switch (code) {
    case 2:
      return ErrorKind::version;
    case 3:
      return ErrorKind::not_permitted;
    case 4:
    case 6:
      return ErrorKind::busy;
    case 10:
      return ErrorKind::not_enough;
    case 11:
      return ErrorKind::not_found;
    case 12:
      return ErrorKind::invalid_input;
    default:
      return ErrorKind::internal;
  }
}

}  // namespace headrace
