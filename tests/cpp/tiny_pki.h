// A certificate authority for tests: made in memory, with every fault that a test wants.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <string>
#include <vector>

#include "common/credentials.h"

namespace headrace::testing {

struct CertificateWish {
  std::string usage = "clientAuth";  // empty: none
  std::string names = "URI:headrace://client/test";
  long not_before_s = -3600;
  long not_after_s = 3600;
};

class TinyCa {
 public:
  TinyCa() : key_(PrivateKey::generate().take()) {
    certificate_ = std::vector<Certificate>{issue(key_, "", "CA:TRUE", "", -3600, 3600)};
  }
  std::vector<Certificate> trust() const { return certificate_; }

  Identity identity(const CertificateWish& wish = {}) const {
    PrivateKey key = PrivateKey::generate().take();
    Certificate leaf =
        issue(key, wish.usage, "CA:FALSE", wish.names, wish.not_before_s, wish.not_after_s);
    return Identity{key, leaf, {}};
  }
  Identity server(const std::string& names = "IP:127.0.0.1,DNS:localhost") const {
    return identity({"serverAuth", names, -3600, 3600});
  }

 private:
  Certificate issue(const PrivateKey& key, const std::string& usage, const std::string& basic,
                    const std::string& names, long not_before_s, long not_after_s) const {
    X509* made = X509_new_ex(crypto_context(), nullptr);
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), next_serial_++);
    X509_gmtime_adj(X509_getm_notBefore(made), not_before_s);
    X509_gmtime_adj(X509_getm_notAfter(made), not_after_s);
    X509_NAME* subject = X509_get_subject_name(made);
    const std::string name = basic == "CA:TRUE" ? "tiny CA" : "leaf";
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_NAME* issuer =
        certificate_.empty() ? subject : X509_get_subject_name(certificate_.front().native());
    X509_set_issuer_name(made, issuer);
    X509_set_pubkey(made, key.native());
    extend(made, NID_basic_constraints, basic);
    extend(made, NID_ext_key_usage, usage);
    extend(made, NID_subject_alt_name, names);
    X509_sign(made, key_.native(), EVP_sha256());
    return Certificate(made);
  }
  static void extend(X509* to, int nid, const std::string& value) {
    if (value.empty()) return;
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    X509_add_ext(to, extension, -1);
    X509_EXTENSION_free(extension);
  }

  PrivateKey key_;
  std::vector<Certificate> certificate_;
  mutable long next_serial_ = 1;
};

}  // namespace headrace::testing
