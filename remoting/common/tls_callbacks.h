// What OpenSSL calls back into: our socket, our rules for certificates and protocols. Internal to
// common/tls_stream.cc.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <string_view>

#include "common/unique_fd.h"

namespace headrace {

// Reads and writes with recv and send, so that a lost peer is an error and never SIGPIPE. Keeps the
// errno of a failure in *failure. Owns neither.
BIO* new_socket_bio(const UniqueFd* socket, int* failure);

// Makes `ssl` check the server's certificate against a name or an address; sends SNI for a name.
bool expect_host(SSL* ssl, std::string_view host);

// Static members, because TlsStream befriends this struct.
struct TlsCallbacks {
  static int verify(int accepted, X509_STORE_CTX* store);
  static int client_hello(SSL* ssl, int* alert, void*);
  static int select_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_size,
                         const unsigned char* in, unsigned in_size, void*);
};

}  // namespace headrace
