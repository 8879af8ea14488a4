#pragma once
// Note [Resampling]
// interpolate() works along one axis after another: y[i] = sum over k of weight(i, k) x[place(i, k)], with 1 (nearest), 2 (linear), 4
// (cubic) or, with antialias, as many taps as the filter is wide. Here stands what the taps of one output are; every device, and the
// composite form, ask it. The places of one output lie within `taps` neighbours, and never move back from one output to the next.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend.h"
#include "math.h"

namespace tapir::inline v0 {

/// One axis of a resampling.
struct ResampleAxis {
  ResampleOp op;
  bool align;
  int64_t in, out, taps;
  double step;              // the input's extent of one step of the output
  double stretch, support;  // of the filters: their widening, and how far they reach

  TAPIR_HD ResampleAxis(const ResampleParams& p, int64_t axis, int64_t in, int64_t out)
      : op(p.op), align(p.align_corners), in(in), out(out) {
    if (align) step = out > 1 ? double(in - 1) / double(out - 1) : 0;
    else step = p.scale[axis] > 0 ? 1 / p.scale[axis] : double(in) / double(out);
    stretch = step > 1 ? step : 1;
    support = (op == ResampleOp::FilteredLinear ? 1 : 2) * stretch;
    taps = is_nearest() ? 1 : op == ResampleOp::Linear ? 2 : op == ResampleOp::Cubic ? 4 : int64_t(2 * support) + 2;
    if (is_filtered()) taps = std::min(taps, in);
  }
  TAPIR_HD bool is_nearest() const { return op == ResampleOp::Nearest || op == ResampleOp::NearestExact; }
  TAPIR_HD bool is_filtered() const { return op == ResampleOp::FilteredLinear || op == ResampleOp::FilteredCubic; }

  /// f(k, place, weight) for the `taps` taps of output i.
  template <class F> TAPIR_HD void each_tap(int64_t i, F&& f) const {
    if (is_nearest()) f(0, nearest(i), 1.0);
    else if (is_filtered()) filtered(i, f);
    else smooth(i, f);
  }

 private:
  TAPIR_HD static int64_t within(int64_t low, int64_t place, int64_t high) {
    return place < low ? low : place > high ? high : place;
  }
  /// Keys' cubic convolution with parameter a, at distance d.
  TAPIR_HD static double cubic(double d, double a) {
    d = std::abs(d);
    if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
  }
  TAPIR_HD int64_t nearest(int64_t i) const {
    const bool exact = op == ResampleOp::NearestExact;
    if (!exact && out == in) return i;
    if (!exact && out == 2 * in) return i / 2;
    const float at = (exact ? float(i) + 0.5f : float(i)) * float(step);  // PyTorch's rounding decides ties
    return within(0, int64_t(std::floor(at)), in - 1);
  }
  template <class F> TAPIR_HD void smooth(int64_t i, F& f) const {
    const bool linear = op == ResampleOp::Linear;
    double at = align ? step * double(i) : step * (double(i) + 0.5) - 0.5;
    if (linear) at = out == in ? double(i) : at < 0 ? 0 : at > double(in - 1) ? double(in - 1) : at;
    const double first = std::floor(at), t = at - first;
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t offset = linear ? k : k - 1;
      f(k, within(0, int64_t(first) + offset, in - 1), linear ? (k ? t : 1 - t) : cubic(t - double(offset), -0.75));
    }
  }
  /// A filter that is as wide as the step where that is above 1, normalised to what lies inside.
  template <class F> TAPIR_HD void filtered(int64_t i, F& f) const {
    const double centre = step * (double(i) + 0.5);
    const int64_t first = within(0, int64_t(centre - support + 0.5), in - 1),
                  last = within(first, int64_t(centre + support + 0.5), in);
    const auto weight = [&](int64_t j) {
      const double d = (double(j) - centre + 0.5) / stretch;
      if (op == ResampleOp::FilteredCubic) return cubic(d, -0.5);
      return std::abs(d) < 1 ? 1 - std::abs(d) : 0;
    };
    double total = 0;
    for (int64_t j = first; j < last; ++j) total += weight(j);
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t j = first + k;
      const double w = j < last ? weight(j) : 0;
      f(k, within(0, j, in - 1), total != 0 ? w / total : w);
    }
  }
};

}  // namespace tapir::inline v0
