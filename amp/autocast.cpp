#include "autocast.h"

namespace tapir::inline v0::amp {

Autocast::Autocast(Device device, const AutocastOptions& o) : before_(modes.autocast) {
  if (before_) region_ = *before_;
  const int at = int(device.type);
  if (o.dtype) {
    check(*o.dtype == kFloat16 || *o.dtype == kBFloat16, "[Autocast] expected float16 or bfloat16, got {}", *o.dtype);
    region_.dtype[at] = *o.dtype;
  }
  region_.on[at] = o.enabled;
  if (!o.cache_enabled) region_.cache = nullptr;
  else if (!region_.cache) region_.cache = own_ = new_cast_cache();
  modes.autocast = &region_;
}

Autocast::~Autocast() {
  modes.autocast = before_;
  delete_cast_cache(own_);
}

bool is_autocast_enabled(Device device) { return modes.autocast && modes.autocast->on[int(device.type)]; }
DType autocast_dtype(Device device) {
  return (modes.autocast ? *modes.autocast : AutocastRegion()).dtype[int(device.type)];
}

}  // namespace tapir::inline v0::amp
