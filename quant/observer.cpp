#include "observer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/histogram.h"
#include "../ops/pointwise.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::quant {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Interval {
  double low, high;
};

/// The sum of density x^2 over [begin, end].
double square_error(double begin, double end, double density) {
  return density * (end * end * end - begin * begin * begin) / 3;
}
/// The squared error of quantizing what the bins hold by the range of the bins first to last in `steps` steps.
double quantization_error(const std::vector<double>& bins, double width, int64_t first, int64_t last, int64_t steps) {
  const double step = width * double(last - first + 1) / double(steps);
  if (step == 0) return 0;
  const auto place = [&](double x) { return std::clamp(std::floor(x / step), 0.0, double(steps - 1)); };
  double error = 0;
  for (int64_t i = 0; i < int64_t(bins.size()); ++i) {
    const double begin = double(i - first) * width, end = begin + width, from = place(begin), to = place(end);
    const double density = bins[size_t(i)] / width;
    error += square_error(begin - (from + 0.5) * step, step / 2, density) +
             (to - from - 1) * square_error(-step / 2, step / 2, density) +
             square_error(-step / 2, end - (to * step + step / 2), density);
  }
  return error;
}

/// Quantiles are cut off at either end, the emptier one first, while that makes the error smaller.
Interval best_range(const std::vector<double>& bins, Interval range, int64_t steps) {
  const int64_t n = int64_t(bins.size());
  const double width = (range.high - range.low) / double(n);
  std::vector<double> sums(bins);
  for (size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
  constexpr double kStep = 1e-5;
  double alpha = 0, beta = 1, least = kInf;
  int64_t first = 0, last = n - 1;
  while (alpha < beta) {
    int64_t left = first, right = last;
    while (left < last && sums[size_t(left)] < (alpha + kStep) * sums.back()) ++left;
    while (right > first && sums[size_t(right)] > (beta - kStep) * sums.back()) --right;
    int64_t next_first = first, next_last = last;
    if (left - first > last - right) next_first = left, alpha += kStep;
    else next_last = right, beta -= kStep;
    if (next_first == first && next_last == last) continue;
    const double error = quantization_error(bins, width, next_first, next_last, steps);
    if (error > least) break;
    least = error, first = next_first, last = next_last;
  }
  return {range.low + width * double(first), range.low + width * double(last + 1)};
}

/// A histogram over a wider range: each bin in 16 parts, each given to the new bin of its middle.
std::vector<double> widened(const std::vector<double>& bins, Interval from, Interval to) {
  const int64_t n = int64_t(bins.size()), parts = 16;
  std::vector<double> out(bins.size(), 0);
  const double part = (from.high - from.low) / double(n * parts), width = (to.high - to.low) / double(n);
  for (int64_t i = 0; i < n * parts; ++i) {
    const double middle = from.low + (double(i) + 0.5) * part;
    const auto at = std::clamp<int64_t>(int64_t(std::floor((middle - to.low) / width)), 0, n - 1);
    out[size_t(at)] += bins[size_t(i / parts)] / double(parts);
  }
  return out;
}

std::vector<double> numbers(const Tensor& x) { return to(x.cpu(), kFloat64).to_vector<double>(); }
Tensor number(double v, Device device) { return full({}, v, {.dtype = kFloat32, .device = device}); }

}  // namespace

Observer::Observer(const ObserverOptions& o) : options(o), min_val(full({}, kInf)), max_val(full({}, -kInf)) {
  check(o.dtype == kUInt8 || o.dtype == kInt8, "[Observer] expected dtype uint8 or int8, got {}", o.dtype);
  check(o.averaging_constant > 0 && o.averaging_constant <= 1,
        "[Observer] expected averaging_constant in (0, 1], got {}", o.averaging_constant);
  check(o.bins > 0 && o.bins <= 1 << 20, "[Observer] expected bins in [1, 2^20], got {}", o.bins);
  check(o.eps > 0, "[Observer] expected eps above 0, got {}", o.eps);
  if (o.range == Range::Histogram) histogram = Buffer(zeros(o.bins));
}

bool Observer::has_seen() { return min_val.dim() == 1 || min_val.item() <= max_val.item(); }

Tensor Observer::forward(const Tensor& given) {
  check(given.defined() && is_floating(given.dtype()), "[Observer] expected a tensor of floats, got {}", given);
  if (given.numel() == 0) return given;
  NoGrad guard;
  const Tensor x = tapir::to(given.detach(), kFloat32);
  const bool per_channel = options.range == Range::PerChannel;
  check(!per_channel || x.dim() > 0, "[Observer] expected at least 1 dimension, got {}", given);
  const Tensor rows = reshape(x, {per_channel ? x.size(0) : 1, -1});
  auto [low, high] = aminmax(rows, 1);
  check(!any(ne(low, low)).item<bool>(), "[Observer] expected values that are no NaN, got {} with NaN", given);
  if (!per_channel) low = view(low, {}), high = view(high, {});
  if (!has_seen() || (per_channel && min_val.dim() == 0)) {
    if (options.range == Range::Histogram) return add_to_histogram(x, low, high), given;
    min_val = Buffer(low), max_val = Buffer(high);
  } else if (options.range == Range::Histogram) {
    add_to_histogram(x, minimum(min_val, low), maximum(max_val, high));
  } else if (options.range == Range::MovingAverage) {
    min_val = Buffer(add(min_val, mul(sub(low, min_val), options.averaging_constant)));
    max_val = Buffer(add(max_val, mul(sub(high, max_val), options.averaging_constant)));
  } else {
    check(low.shape() == min_val.shape(), "[Observer] expected {} channels as before, got {}", min_val.numel(), given);
    min_val = Buffer(minimum(min_val, low)), max_val = Buffer(maximum(max_val, high));
  }
  return given;
}

void Observer::add_to_histogram(const Tensor& x, const Tensor& low, const Tensor& high) {
  const Interval now{low.item(), high.item()}, before{min_val.item(), max_val.item()};
  check(std::isfinite(now.low) && std::isfinite(now.high), "[Observer] expected finite values, got [{}, {}]", now.low,
        now.high);
  check(std::isfinite(float((now.high - now.low) * double(options.bins))),
        "[Observer] expected a range whose width, times the {} bins, float32 can hold, got [{}, {}]", options.bins,
        now.low, now.high);
  std::vector<double> bins = numbers(histc(x, options.bins, {.min = now.low, .max = now.high}));
  if (before.low <= before.high) {
    const std::vector<double> old = numbers(histogram);
    const bool same = before.low == now.low && before.high == now.high, point = before.low == before.high;
    const std::vector<double> wide = same ? old : widened(old, before, now);
    double total = 0;
    for (double v : old) total += v;
    if (point && !same) {  // all old values are one number
      const double width = (now.high - now.low) / double(options.bins);
      const auto at = int64_t((before.low - now.low) / width);
      bins[size_t(std::clamp<int64_t>(at, 0, options.bins - 1))] += total;
    } else {
      for (size_t i = 0; i < bins.size(); ++i) bins[i] += wide[i];
    }
  }
  const Device device = x.device();
  histogram = Buffer(tensor(bins, {.dtype = kFloat32, .device = device}));
  min_val = Buffer(number(now.low, device)), max_val = Buffer(number(now.high, device));
}

QuantizationParams Observer::calculate_qparams() {
  check(has_seen(), "[Observer] must run observer before calling calculate_qparams: it has seen no values");
  NoGrad guard;
  Tensor low = tapir::to(min_val, kFloat32), high = tapir::to(max_val, kFloat32);
  const bool bytes = options.dtype == kUInt8;
  const double least = bytes ? 0 : -128, most = bytes ? 255 : 127;
  if (options.range == Range::Histogram) {
    const Interval best = best_range(numbers(histogram), {low.item(), high.item()}, 256);
    low = number(best.low, low.device()), high = number(best.high, high.device());
  }
  low = clamp(low, {}, Scalar(0.0)), high = clamp(high, Scalar(0.0));
  check(all(logical_and(isfinite(low), isfinite(high))).item<bool>(),
        "[Observer] expected finite values, got an infinity");
  const Tensor width = options.symmetric ? maximum(neg(low), high) : sub(high, low);
  check(all(isfinite(width)).item<bool>(), "[Observer] expected a range whose width float32 can hold, got [{}, {}]",
        amin(low).item(), amax(high).item());
  QuantizationParams q;
  if (options.symmetric) {
    q.scale = clamp(div(width, (most - least) / 2), Scalar(options.eps));
    q.zero_point = tapir::to(zeros_like(q.scale), kInt32);
    if (bytes) q.zero_point = add(q.zero_point, 128);
  } else {
    q.scale = clamp(div(width, most - least), Scalar(options.eps));
    q.zero_point = tapir::to(clamp(sub(least, round(div(low, q.scale))), Scalar(least), Scalar(most)), kInt32);
  }
  return q;
}

std::string Observer::extra_repr() {
  const char* const names[] = {"MinMax", "MovingAverage", "Histogram", "PerChannel"};
  return tapir::format("{}, {}{}", names[int(options.range)], options.dtype, options.symmetric ? ", symmetric" : "");
}

TAPIR_DEFINE_FIELDS(Observer)

}  // namespace tapir::inline v0::quant
