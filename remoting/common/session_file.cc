#include "common/session_file.h"

#include <charconv>

#include "common/files.h"

namespace headrace {
namespace {

constexpr std::string_view first_line = "headrace-session 1";
constexpr std::size_t max_file = 256 * 1024;

Error bad(const std::string& why) {
  return Error{ErrorKind::invalid_input, "not a session file: " + why,
               "start the program with: headrace run -- PROGRAM"};
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

Result<void> take_setting(std::string_view line, SessionFile& into) {
  const std::size_t space = line.find(' ');
  const std::string_view key = line.substr(0, space);
  const std::string_view value = space == line.npos ? std::string_view() : line.substr(space + 1);
  if (key == "server") {
    Result<Endpoint> server = parse_endpoint(value);
    if (!server) return bad(server.error().text);
    into.server = server.take();
  } else if (key == "reservation") {
    into.reservation = value;
  } else if (key == "software") {
    into.software = value == "yes";
  } else if (key == "expires") {
    const auto [end, status] =
        std::from_chars(value.data(), value.data() + value.size(), into.expires);
    if (status != std::errc() || end != value.data() + value.size()) return bad("expires");
  }
  return {};  // unknown keys are a later release's
}

}  // namespace

std::string format_session_file(const SessionFile& session) {
  std::string text(first_line);
  text += "\nserver " + session.server.text();
  text += "\nreservation " + session.reservation;
  text += std::string("\nsoftware ") + (session.software ? "yes" : "no");
  text += "\nexpires " + std::to_string(session.expires);
  text += "\n[certificate]\n" + session.certificates;
  text += "[key]\n" + session.key;
  text += "[ca]\n" + session.trust;
  return text;
}

Result<SessionFile> parse_session_file(std::string_view text) {
  SessionFile session;
  if (next_line(text) != first_line) return bad("it does not begin with \"headrace-session 1\"");
  std::string* section = nullptr;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line == "[certificate]") {
      section = &session.certificates;
    } else if (line == "[key]") {
      section = &session.key;
    } else if (line == "[ca]") {
      section = &session.trust;
    } else if (section != nullptr) {
      section->append(line).push_back('\n');
    } else if (Result<void> taken = take_setting(line, session); !taken) {
      return taken.error();
    }
  }
  if (session.server.host.empty()) return bad("no server");
  if (session.certificates.empty()) return bad("no [certificate]");
  if (session.key.empty()) return bad("no [key]");
  if (session.trust.empty()) return bad("no [ca]");
  return session;
}

Result<SessionFile> read_session_file(const std::string& path) {
  Result<std::string> text = read_private_file(path, max_file);
  if (!text) return text.error();
  return parse_session_file(*text);
}

Result<void> write_session_file(const std::string& path, const SessionFile& session) {
  return write_private_file(path, format_session_file(session));
}

}  // namespace headrace
