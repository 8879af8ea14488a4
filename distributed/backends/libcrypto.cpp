#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "../../core/error.h"
#include "../door.h"

namespace tapir::inline v0::distributed {

bool has_libcrypto() { return true; }

Proof hmac_sha256(const std::string& key, const std::string& text) {
  Proof out{};
  unsigned size = 0;
  const bool done = HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
                         text.size(), reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr;
  check_runtime(done && size == out.size(), "[Store] expected HMAC-SHA256 of libcrypto, got none");
  return out;
}

bool is_same(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace tapir::inline v0::distributed
