#include "common/credentials.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace headrace {
namespace {

constexpr std::size_t max_certificates = 16;

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free_all)>;

BioPtr reading(std::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
}

std::string drained(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

// A key file must never make a library ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

Error bad_certificate(const std::string& why) {
  return Error{ErrorKind::invalid_input, "cannot read a certificate: " + why, ""};
}

bool has_purpose(X509* certificate, std::uint32_t usage) {
  const std::uint32_t usages = X509_get_extended_key_usage(certificate);
  return usages != UINT32_MAX && (usages & usage) != 0;
}

}  // namespace

OSSL_LIB_CTX* crypto_context() {
  // Never freed: other threads may be inside at exit. The first call also keeps OpenSSL from
  // reading openssl.cnf and from registering an atexit handler in a process that is not ours.
  static OSSL_LIB_CTX* const context = [] {
    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
    return OSSL_LIB_CTX_new();
  }();
  return context;
}

std::string crypto_failure() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  std::string text = reason != nullptr ? reason : "unknown reason";
  ERR_clear_error();
  return text;
}

PrivateKey::PrivateKey(EVP_PKEY* key) : key_(key, EVP_PKEY_free) {}

Result<PrivateKey> PrivateKey::generate() {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(crypto_context(), nullptr, "EC", "P-256");
  if (key == nullptr) {
    return Error{ErrorKind::internal, "cannot make a P-256 key: " + crypto_failure(), ""};
  }
  return PrivateKey(key);
}

Result<PrivateKey> PrivateKey::from_pem(std::string_view pem) {
  const BioPtr bio = reading(pem);
  EVP_PKEY* key = PEM_read_bio_PrivateKey_ex(bio.get(), nullptr, no_passphrase, nullptr,
                                             crypto_context(), nullptr);
  if (key == nullptr) {
    ERR_clear_error();
    return Error{ErrorKind::invalid_input, "cannot read a private key: not an unencrypted PEM key",
                 ""};
  }
  return PrivateKey(key);
}

Bytes PrivateKey::public_der() const {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key_.get(), &der);
  Bytes bytes;
  if (size > 0) bytes.assign(der, der + size);
  OPENSSL_free(der);
  return bytes;
}

std::string PrivateKey::private_pem() const {
  const BioPtr bio(BIO_new(BIO_s_mem()), BIO_free_all);
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
      1) {
    ERR_clear_error();
    return "";
  }
  return drained(bio.get());
}

Certificate::Certificate(X509* owned) : certificate_(owned, X509_free) {}

Result<Certificate> Certificate::from_der(std::span<const std::uint8_t> der) {
  Result<std::vector<Certificate>> all = certificates_from_der(der);
  if (!all) return all.error();
  if (all->size() != 1) return bad_certificate("expected exactly one");
  return all->front();
}

Bytes Certificate::der() const {
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate_.get(), &der);
  Bytes bytes;
  if (size > 0) bytes.assign(der, der + size);
  OPENSSL_free(der);
  return bytes;
}

std::string Certificate::pem() const {
  const BioPtr bio(BIO_new(BIO_s_mem()), BIO_free_all);
  PEM_write_bio_X509(bio.get(), certificate_.get());
  return drained(bio.get());
}

bool Certificate::matches(const PrivateKey& key) const {
  const bool same = X509_check_private_key(certificate_.get(), key.native()) == 1;
  ERR_clear_error();
  return same;
}

bool Certificate::for_servers() const { return has_purpose(certificate_.get(), XKU_SSL_SERVER); }
bool Certificate::for_clients() const { return has_purpose(certificate_.get(), XKU_SSL_CLIENT); }

Result<std::vector<Certificate>> certificates_from_pem(std::string_view pem) {
  std::vector<Certificate> all;
  const BioPtr bio = reading(pem);
  while (all.size() <= max_certificates) {
    X509* fresh = X509_new_ex(crypto_context(), nullptr);
    if (PEM_read_bio_X509(bio.get(), &fresh, no_passphrase, nullptr) == nullptr) {
      X509_free(fresh);
      const unsigned long code = ERR_peek_last_error();
      const bool at_end = ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
      const std::string why = crypto_failure();
      if (!at_end) return bad_certificate(why);
      if (all.empty()) return bad_certificate("no PEM certificate in it");
      return all;
    }
    all.emplace_back(fresh);
  }
  return bad_certificate("more than " + std::to_string(max_certificates));
}

Result<std::vector<Certificate>> certificates_from_der(std::span<const std::uint8_t> der) {
  std::vector<Certificate> all;
  const unsigned char* at = der.data();
  const unsigned char* const end = at + der.size();
  while (at != end) {
    if (all.size() == max_certificates) {
      return bad_certificate("more than " + std::to_string(max_certificates));
    }
    X509* fresh = X509_new_ex(crypto_context(), nullptr);
    if (d2i_X509(&fresh, &at, end - at) == nullptr) {
      X509_free(fresh);
      return bad_certificate(crypto_failure());
    }
    all.emplace_back(fresh);
  }
  return all;
}

std::string pem_of(const std::vector<Certificate>& certificates) {
  std::string text;
  for (const Certificate& one : certificates) text += one.pem();
  return text;
}

Result<Identity> identity_from_pem(std::string_view certificates, std::string_view key) {
  Result<std::vector<Certificate>> all = certificates_from_pem(certificates);
  if (!all) return all.error();
  Result<PrivateKey> own = PrivateKey::from_pem(key);
  if (!own) return own.error();
  if (!all->front().matches(*own)) {
    return Error{ErrorKind::invalid_input, "the key does not belong to the certificate", ""};
  }
  Identity identity{own.take(), all->front(), {all->begin() + 1, all->end()}};
  return identity;
}

}  // namespace headrace
