// Texts that programs of ours read: session files, addresses, certificates and keys, and the JSON
// of the compile helper. The first byte chooses one of the readers.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/credentials.h"
#include "common/session_file.h"
#include "common/socket.h"
#include "softgpu/compiler/json.h"

namespace {

using namespace headrace;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_session_file(std::string_view text) {
  const Result<SessionFile> session = parse_session_file(text);
  if (!session) return require(!session.error().text.empty());
  const Result<SessionFile> again = parse_session_file(format_session_file(*session));
  require(static_cast<bool>(again));
  require(again->server.text() == session->server.text() && again->key == session->key &&
          again->reservation == session->reservation && again->trust == session->trust);
}

void check_endpoint(std::string_view text) {
  const Result<Endpoint> endpoint = parse_endpoint(text);
  if (!endpoint) return require(!endpoint.error().text.empty());
  const Result<Endpoint> again = parse_endpoint(endpoint->text());
  require(static_cast<bool>(again) && again->host == endpoint->host &&
          again->port == endpoint->port);
}

void check_pem(std::string_view text) {
  if (const Result<std::vector<Certificate>> all = certificates_from_pem(text)) {
    require(!all->empty());
    const Result<std::vector<Certificate>> again = certificates_from_pem(pem_of(*all));
    require(static_cast<bool>(again) && again->size() == all->size());
  }
  if (const Result<PrivateKey> key = PrivateKey::from_pem(text)) key->public_der();
}

void check_json(std::string_view text) {
  const std::optional<softgpu::json::Value> value = softgpu::json::Value::parse(text);
  if (!value) return;
  const softgpu::json::Value& error = (*value)["error"];
  const std::optional<softgpu::json::Value> again =
      softgpu::json::Value::parse(softgpu::json::quote(error.text()));
  // What was read as text can be written and read again.
  require(again.has_value() && again->text() == error.text());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 's':
      check_session_file(text);
      break;
    case 'a':
      check_endpoint(text);
      break;
    case 'p':
      check_pem(text);
      break;
    case 'j':
      check_json(text);
      break;
    default:
      break;
  }
  return 0;
}
