#include "layout.h"

#include <atomic>

namespace tapir::inline v0 {

static std::atomic<int64_t> conversions{0};
int64_t layout_conversions() { return conversions.load(std::memory_order_relaxed); }
void count_layout_conversion() { conversions.fetch_add(1, std::memory_order_relaxed); }

}  // namespace tapir::inline v0
