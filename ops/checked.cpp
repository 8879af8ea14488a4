#include "checked.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tapir::inline v0 {

static bool asked() {
  const char* value = std::getenv("TAPIR_CHECK");
  return value && std::strcmp(value, "") != 0 && std::strcmp(value, "0") != 0;
}
const bool fused_checks = asked();
std::atomic<int64_t> fused_comparisons = 0;

static double rounding(DType t) { return t == kFloat64 ? 1e-9 : t == kFloat32 ? 1e-4 : t == kFloat16 ? 1e-2 : 4e-2; }

static double largest(const std::vector<double>& values) {
  double scale = 0;
  for (double v : values)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  return scale;
}

void compare_results(const char* op, const Tensor& fused, const Tensor& composite, const Tensor& terms) {
  check_internal(fused.shape() == composite.shape(), "[{}] the fused kernel gave {}, its composite form {}", op, fused,
                 composite);
  ++fused_comparisons;
  ScopedMode looking(modes.recorder, {});  // also while a program is recorded
  const auto a = fused.to_vector<double>(), b = composite.to_vector<double>();
  double scale = std::max(largest(b), 1e-3), worst = 0;
  if (terms.defined()) scale = std::max(scale, largest(terms.to_vector<double>()));
  size_t where = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    // What becomes of an infinity or a NaN depends on the order of the operations, and on whether operands of weight 0 are read.
    if (a[i] == b[i] || std::isnan(b[i]) || (std::isinf(b[i]) && !std::isinf(a[i]))) continue;
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference) || difference > worst) worst = std::isnan(difference) ? INFINITY : difference, where = i;
  }
  const double bound = rounding(fused.dtype()) * scale;
  check_internal(worst <= bound,
                 "[{}] the fused kernel and its composite form differ by {} at position {}: {} and {} (allowed {})", op,
                 worst, int64_t(where), a.empty() ? 0.0 : a[where], b.empty() ? 0.0 : b[where], bound);
}

}  // namespace tapir::inline v0
