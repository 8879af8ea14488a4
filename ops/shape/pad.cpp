#include "../pad.h"

#include <algorithm>

#include "../cast.h"
#include "../front.h"
#include "../indexing.h"
#include "../slicing.h"
#include "../spatial.h"

namespace tapir::inline v0 {
namespace {

/// What each dimension gets before and after its elements.
struct Pads {
  Dims before, after;
};

/// The part of a tensor that `cut` (counts to leave out before and after, where positive) leaves.
Tensor inner_part(const Tensor& x, const Dims& before, const Dims& after) {
  Shape shape = x.shape();
  int64_t offset = x.storage_offset();
  for (int64_t d = 0; d < shape.size(); ++d) {
    const int64_t first = std::max<int64_t>(0, before[d]);
    shape[d] = std::max<int64_t>(0, shape[d] - first - std::max<int64_t>(0, after[d]));
    if (shape[d]) offset += first * x.strides()[d];
  }
  return alias(x, shape, x.strides(), numel_of(shape) ? offset : x.storage_offset());
}
Dims negated(Dims d) {
  for (int64_t& v : d) v = -v;
  return d;
}

/// Adding elements and cutting them are adjoint to each other, so the gradient pads by the negative numbers.
Tensor pad_constant(const Tensor& x, const Pads& p, Scalar value) {
  Shape shape = x.shape();
  for (int64_t d = 0; d < shape.size(); ++d) shape[d] += p.before[d] + p.after[d];
  Tensor y = empty_image(shape, x, prefers_channels_last(x));
  if (y.numel()) {
    const Tensor to = inner_part(y, p.before, p.after), from = inner_part(x, negated(p.before), negated(p.after));
    if (to.numel() < y.numel()) backend(x).fill(context(x), {y, value});
    if (to.numel()) backend(x).copy(context(x), {to, from});
  }
  return record("pad", y, {x}, [p](const Tensor& g) {
    return Grads{pad_constant(g, {negated(p.before), negated(p.after)}, 0)};
  });
}

enum class Border : uint8_t { Reflect, Replicate, Circular };

/// The position in [0, n) that stands for i, outside or inside.
int64_t source_of(int64_t i, int64_t n, Border border) {
  if (border == Border::Replicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (border == Border::Circular) return (i % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

Tensor pad_border(const Tensor& x, const Pads& p, Border border, std::string_view mode) {
  Tensor y = x;
  for (int64_t d = 0; d < x.dim(); ++d) {
    int64_t before = p.before[d], after = p.after[d], n = x.shape()[d];
    if (before == 0 && after == 0) continue;
    if (border == Border::Circular) {  // what is cut off does not come round
      const int64_t first = std::max<int64_t>(0, -before), last = std::max(first, n - std::max<int64_t>(0, -after));
      y = narrow(y, d, first, last - first), n = last - first;
      before = std::max<int64_t>(0, before), after = std::max<int64_t>(0, after);
    }
    const int64_t most = n == 0                       ? 0
                         : border == Border::Reflect  ? n - 1
                         : border == Border::Circular ? x.shape()[d]
                                                      : INT64_MAX;
    check(before <= most && after <= most,
          "[pad] expected {} padding of at most {} along dimension {} of {}, got {} before and {} after", mode, most, d,
          x, before, after);
    const auto part = [&](int64_t first, int64_t last) {  // positions in the result
      auto from = host_vector<int64_t>("pad", last - first);
      for (int64_t i = first; i < last; ++i) from[size_t(i - first)] = source_of(i - before, n, border);
      return index_select(y, d, to(tensor(from), x.device()));
    };
    const int64_t size = n + before + after, first = std::clamp<int64_t>(before, 0, size),
                  last = std::clamp<int64_t>(before + n, first, size);
    const Tensor middle = narrow(y, d, std::clamp<int64_t>(first - before, 0, n), last - first);
    y = cat({part(0, first), middle, part(last, size)}, d);
  }
  return y.is_same(x) ? clone(x) : y;
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, const PadOptions& o) {
  check_defined("pad", "x", x);
  const int64_t rank = x.dim(), axes = int64_t(pad.size()) / 2;
  check(pad.size() % 2 == 0, "[pad] expected a list of even length, got {} numbers", int64_t(pad.size()));
  check(axes <= rank, "[pad] expected at most {} numbers for {}, got {}", 2 * rank, x, int64_t(pad.size()));
  Pads p{Dims::filled(rank, 0), Dims::filled(rank, 0)};
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t d = rank - 1 - i, before = pad[size_t(2 * i)], after = pad[size_t(2 * i + 1)];
    const int64_t size = checked_add("pad", checked_add("pad", x.shape()[d], before), after);
    check(size >= 0, "[pad] expected a result of at least 0 along dimension {} of {}, got {} ({} before, {} after)", d,
          x, size, before, after);
    p.before[d] = before, p.after[d] = after;
  }
  if (o.mode == "constant") {
    check_held("pad", o.value.value_or(0), x.dtype());
    return pad_constant(x, p, o.value.value_or(0));
  }
  check(o.mode == "reflect" || o.mode == "replicate" || o.mode == "circular",
        "[pad] expected mode \"constant\", \"reflect\", \"replicate\" or \"circular\", got \"{}\"", o.mode);
  check(!o.value, "[pad] padding mode \"{}\" doesn't take in value argument", o.mode);
  check(axes >= 1 && axes <= 3 && (rank == axes + 1 || rank == axes + 2),
        "[pad] expected 2 numbers for a 2D or 3D input, 4 for 3D or 4D, 6 for 4D or 5D in mode \"{}\", got {} for {}",
        o.mode, int64_t(pad.size()), x);
  const Border border = o.mode == "reflect"     ? Border::Reflect
                        : o.mode == "replicate" ? Border::Replicate
                                                : Border::Circular;
  return pad_border(x, p, border, o.mode);
}

}  // namespace tapir::inline v0
