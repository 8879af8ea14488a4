// Recurrent networks.
#include "modules.h"

namespace conformance {

void bind_module_rnn() {}

}  // namespace conformance
