// For builds without libcrypto. check_reach() and check_secret() keep them on this machine and without a secret.
#include "../door.h"

namespace tapir::inline v0::distributed {

bool has_libcrypto() { return false; }
Proof hmac_sha256(const std::string&, const std::string&) { return {}; }
bool is_same(const Proof& a, const Proof& b) { return a == b; }

}  // namespace tapir::inline v0::distributed
