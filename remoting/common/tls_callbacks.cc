#include "common/tls_callbacks.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "common/tls_stream.h"

namespace headrace {
namespace {

struct SocketState {
  const UniqueFd* socket;
  int* failure;
};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

int bio_write(BIO* bio, const char* data, int size) {
  const SocketState* state = static_cast<SocketState*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t done =
      send(state->socket->get(), data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (done < 0) {
    if (would_block(errno)) {
      BIO_set_retry_write(bio);
    } else {
      *state->failure = errno;
    }
  }
  return static_cast<int>(done);
}

int bio_read(BIO* bio, char* into, int size) {
  const SocketState* state = static_cast<SocketState*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t done = recv(state->socket->get(), into, static_cast<std::size_t>(size), 0);
  if (done < 0) {
    if (would_block(errno)) {
      BIO_set_retry_read(bio);
    } else {
      *state->failure = errno;
    }
  } else if (done == 0) {
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  }
  return static_cast<int>(done);
}

long bio_control(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_EOF:
      return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    case BIO_CTRL_FLUSH:
    case BIO_CTRL_DUP:
      return 1;
    default:
      return 0;
  }
}

int bio_destroy(BIO* bio) {
  delete static_cast<SocketState*>(BIO_get_data(bio));
  BIO_set_data(bio, nullptr);
  return 1;
}

BIO_METHOD* socket_method() {
  // Never freed, like the library context.
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "headrace socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, bio_write);
      BIO_meth_set_read(made, bio_read);
      BIO_meth_set_ctrl(made, bio_control);
      BIO_meth_set_destroy(made, bio_destroy);
    }
    return made;
  }();
  return method;
}

std::string date_text(const ASN1_TIME* time) {
  tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return "an unreadable date";
  char text[32];
  const std::size_t size = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, size);
}

// Names of people and machines never go into these words: they end up in logs.
std::string refusal(bool server_side, int code, int depth, X509* certificate) {
  const std::string whose =
      std::string(server_side ? "the client's" : "the server's") +
      (depth == 0 ? " certificate" : " certificate chain (CA " + std::to_string(depth) + ")");
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return whose + " expired at " + date_text(X509_get0_notAfter(certificate));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return whose + " is not valid before " + date_text(X509_get0_notBefore(certificate)) +
             " (clock wrong?)";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return whose + " was issued by another CA";
    case X509_V_ERR_INVALID_PURPOSE:
      return whose + " is not for " + (server_side ? "clients" : "servers");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return whose + " is for another name or address than the one connected to";
    case X509_V_ERR_CERT_REVOKED:
      return whose + " was revoked";
    default:
      return whose + " was refused: " + X509_verify_cert_error_string(code);
  }
}

// OpenSSL picks the alert by this code. Two of its choices would leave the other side guessing: a
// CA of the same name but another key, and a certificate from the future.
int telling_alert(int code) {
  switch (code) {
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return X509_V_ERR_CERT_HAS_EXPIRED;
    default:
      return code;
  }
}

}  // namespace

BIO* new_socket_bio(const UniqueFd* socket, int* failure) {
  BIO_METHOD* method = socket_method();
  BIO* bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, new SocketState{socket, failure});
  BIO_set_init(bio, 1);
  return bio;
}

bool expect_host(SSL* ssl, std::string_view host) {
  std::string name(host);
  if (name.size() > 1 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  name = name.substr(0, name.find('%'));  // an interface is no part of an address
  unsigned char address[16];
  X509_VERIFY_PARAM* parameters = SSL_get0_param(ssl);
  if (inet_pton(AF_INET, name.c_str(), address) == 1) {
    return X509_VERIFY_PARAM_set1_ip(parameters, address, 4) == 1;
  }
  if (inet_pton(AF_INET6, name.c_str(), address) == 1) {
    return X509_VERIFY_PARAM_set1_ip(parameters, address, 16) == 1;
  }
  if (!name.empty() && name.back() == '.') name.pop_back();
  X509_VERIFY_PARAM_set_hostflags(
      parameters, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return !name.empty() && SSL_set_tlsext_host_name(ssl, name.c_str()) == 1 &&
         X509_VERIFY_PARAM_set1_host(parameters, name.c_str(), name.size()) == 1;
}

int TlsCallbacks::verify(int accepted, X509_STORE_CTX* store) {
  SSL* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  TlsStream* stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
  const int depth = X509_STORE_CTX_get_error_depth(store);
  X509* certificate = X509_STORE_CTX_get_current_cert(store);
  if (accepted == 1 && depth == 0) {
    // OpenSSL takes a certificate without any purpose as fit for all; we do not.
    const std::uint32_t usage = X509_get_extended_key_usage(certificate);
    const std::uint32_t needed = stream->server_ ? XKU_SSL_CLIENT : XKU_SSL_SERVER;
    if (usage == UINT32_MAX || (usage & needed) == 0) {
      X509_STORE_CTX_set_error(store, X509_V_ERR_INVALID_PURPOSE);
      accepted = 0;
    }
  }
  if (accepted != 1 && stream->peer_fault_.empty()) {
    stream->peer_fault_ =
        refusal(stream->server_, X509_STORE_CTX_get_error(store), depth, certificate);
    X509_STORE_CTX_set_error(store, telling_alert(X509_STORE_CTX_get_error(store)));
  }
  return accepted;
}

int TlsCallbacks::client_hello(SSL* ssl, int* alert, void*) {
  const unsigned char* extension = nullptr;
  std::size_t size = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &extension,
                                &size) == 1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  static_cast<TlsStream*>(SSL_get_app_data(ssl))->offer_fault_ =
      "the client offered no protocol (ALPN)";
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

int TlsCallbacks::select_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_size,
                              const unsigned char* in, unsigned in_size, void*) {
  std::string offered;
  for (unsigned at = 0; at < in_size;) {
    const unsigned size = in[at];
    if (at + 1 + size > in_size) break;
    const std::string_view name(reinterpret_cast<const char*>(in + at + 1), size);
    if (name == alpn_data) {
      *out = in + at + 1;
      *out_size = static_cast<unsigned char>(size);
      return SSL_TLSEXT_ERR_OK;
    }
    if (name == alpn_enroll) offered = "the client asked for enrolment, which is closed";
    at += 1 + size;
  }
  static_cast<TlsStream*>(SSL_get_app_data(ssl))->offer_fault_ =
      offered.empty() ? "the client offered no protocol that is spoken here (ALPN)" : offered;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace headrace
