// Keys and certificates: P-256 keys made here, certificates read from DER or PEM. Thin owners over
// OpenSSL, in a library context of our own: nothing of a host program's OpenSSL is touched, and no
// configuration file of its is read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/errors.h"

typedef struct evp_pkey_st EVP_PKEY;
typedef struct x509_st X509;
typedef struct ossl_lib_ctx_st OSSL_LIB_CTX;

namespace headrace {

using Bytes = std::vector<std::uint8_t>;

// Made on first use and kept for the life of the process.
OSSL_LIB_CTX* crypto_context();
// The newest line of OpenSSL's own error queue, and clears it; for texts that have no better words.
std::string crypto_failure();

class PrivateKey {
 public:
  static Result<PrivateKey> generate();
  static Result<PrivateKey> from_pem(std::string_view pem);

  Bytes public_der() const;         // SubjectPublicKeyInfo
  std::string private_pem() const;  // PKCS#8
  EVP_PKEY* native() const { return key_.get(); }

 private:
  explicit PrivateKey(EVP_PKEY* key);
  std::shared_ptr<EVP_PKEY> key_;
};

class Certificate {
 public:
  static Result<Certificate> from_der(std::span<const std::uint8_t> der);
  explicit Certificate(X509* owned);

  Bytes der() const;
  std::string pem() const;
  bool matches(const PrivateKey& key) const;
  // Certificates without an extended key usage have no purpose at all (PROTOCOL.md §1).
  bool for_servers() const;
  bool for_clients() const;
  X509* native() const { return certificate_.get(); }

 private:
  std::shared_ptr<X509> certificate_;
};

// All certificates of a PEM text (at least one), or of DER certificates one after another (may be
// empty). At most 16: longer chains are refused.
Result<std::vector<Certificate>> certificates_from_pem(std::string_view pem);
Result<std::vector<Certificate>> certificates_from_der(std::span<const std::uint8_t> der);
std::string pem_of(const std::vector<Certificate>& certificates);

// What one end shows the other.
struct Identity {
  PrivateKey key;
  Certificate certificate;
  std::vector<Certificate> chain;  // issuing certificates below the trust anchor
};

// PEM files of certificate and chain, and of the key; refuses a key that does not belong to it.
Result<Identity> identity_from_pem(std::string_view certificates, std::string_view key);

}  // namespace headrace
