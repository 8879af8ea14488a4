// For builds without gloo.
#include "../../core/error.h"
#include "../transport.h"

namespace tapir::inline v0::distributed {

std::unique_ptr<Transport> make_gloo(Store&, const TransportOptions&) {
  fail(ErrorKind::Runtime,
       "[init_process_group] expected a Tapir built with gloo, got one without: install libgloo-dev and configure "
       "again, "
       "or take backend \"tcp\"");
}

}  // namespace tapir::inline v0::distributed
