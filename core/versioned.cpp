#include "versioned.h"

#include "recorder.h"

namespace tapir::inline v0::detail {

void Versioned::observe() const {
  Stamp* s = stamp_.load(std::memory_order_acquire);
  if (!s) {
    auto* made = new Stamp;
    made->place = this, made->flag = flag_;
    if (stamp_.compare_exchange_strong(s, made, std::memory_order_acq_rel)) s = made;
    else delete made;  // another thread was first
  }
  modes.recorder->object_asked(*s);
}

}  // namespace tapir::inline v0::detail
