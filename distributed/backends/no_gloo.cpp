// For builds without gloo.
#include "../../core/error.h"
#include "../process_group.h"
#include "../transport.h"

namespace tapir::inline v0::distributed {

bool gloo_is_available() { return false; }
std::unique_ptr<Transport> make_gloo(Store&, const TransportOptions&) {
  fail(ErrorKind::Internal, "[init_process_group] expected a Tapir built with gloo, got one without");
}

}  // namespace tapir::inline v0::distributed
