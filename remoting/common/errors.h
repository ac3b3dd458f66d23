// What went wrong, in a form that callers can act on and people can read.
// Library code never prints, aborts or throws across its boundary: it returns one of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace headrace {

// A kind answers "what should the caller do?".
enum class ErrorKind {
  invalid_input,  // fix what was given
  not_permitted,  // certificate, role or reservation: ask the administrator
  not_found,      // name, file or object does not exist
  not_enough,     // ask for less, or wait
  unavailable,    // nobody answers there: check the address, retry
  timed_out,      // retry later
  closed,         // the other side ended the connection
  protocol,       // the other side broke the protocol: report a bug
  version,        // upgrade one side
  busy,           // retry later
  internal,       // our own fault or the system's
};

struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string text;  // what failed and why, one line
  std::string hint;  // the next command or step; may be empty
};

// Either a value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return *std::get_if<0>(&state_); }
  const T& operator*() const { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  T take() { return std::move(*std::get_if<0>(&state_)); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  explicit operator bool() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// "TEXT: No such file or directory": a system error under the words that say what was tried.
Error system_error(ErrorKind kind, const std::string& what, int error_number);

// What the code of a Refuse or Close frame (PROTOCOL.md) asks of who receives it.
ErrorKind refusal_kind(std::uint16_t code);

}  // namespace headrace
