// Attention and transformers.
#include "modules.h"

namespace conformance {

void bind_module_transformer() {}

}  // namespace conformance
