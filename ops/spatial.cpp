#include "spatial.h"

namespace tapir::inline v0 {

void spread(const char* op, const char* option, const Dims& values, int64_t spatial, int64_t least, int64_t* to) {
  check(values.size() == 1 || values.size() == spatial, "[{}] expected {} to be one number or {}, got {}", op, option,
        spatial, values);
  for (int64_t i = 0; i < spatial; ++i) {
    to[i] = values[values.size() == 1 ? 0 : i];
    check(to[i] >= least, "[{}] {} {} is not supported: expected at least {}, got {}", op,
          least ? "non-positive" : "negative", option, least, values);
  }
}

Tensor empty_image(const Shape& shape, const Tensor& like, bool channels_last) {
  const TensorOptions options{.dtype = like.dtype(), .device = like.device()};
  return channels_last ? empty_strided(shape, channels_last_strides(shape), options) : empty(shape, options);
}

static int64_t in_range(const char* op, bool overflow, int64_t value) {
  check(!overflow && value < int64_t(1) << 62 && value > -(int64_t(1) << 62),
        "[{}] the output size overflows: a term of {}", op, value);
  return value;
}
int64_t checked_add(const char* op, int64_t a, int64_t b) {
  int64_t sum;
  const bool overflow = __builtin_add_overflow(a, b, &sum);
  return in_range(op, overflow, overflow ? INT64_MAX : sum);
}
int64_t checked_mul(const char* op, int64_t a, int64_t b) {
  int64_t product;
  const bool overflow = __builtin_mul_overflow(a, b, &product);
  return in_range(op, overflow, overflow ? INT64_MAX : product);
}

}  // namespace tapir::inline v0
