#include <algorithm>

#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kChunk = 1 << 16;      // elements that one thread counts into bins of its own
constexpr int64_t kMaxCounts = 1 << 20;  // of all chunks together

/// Elements of x (and weights) in memory order. Bins are computed in T: float or double.
template <class T> class Histogram {
 public:
  Histogram(V x, V weights, int64_t bins, const HistogramParams& p)
      : x_(x.as<char>()), weights_(weights.as<char>()), size_(size_of(x.dtype)),
        weight_size_(weights.defined() ? size_of(weights.dtype) : 0), bins_(bins), low_(T(p.low)), high_(T(p.high)),
        units_(high_ - low_ == T(bins)) {
    for (int64_t d = 0; d < x.rank; ++d) {
      const int64_t strides[] = {x.strides[d] * size_, weights.defined() ? weights.strides[d] * weight_size_ : 0};
      space_.add(x.sizes[d], strides);
    }
    if (!weights.defined()) space_.simplify();
    load_ = converter(dtype_of<T>, x.dtype);
    if (weights.defined()) load_weight_ = converter(kFloat64, weights.dtype);
  }
  int64_t numel() const { return space_.numel; }

  /// Adds the elements [first, last) to totals[0 .. bins).
  template <class Total> void count(int64_t first, int64_t last, Total* totals) const {
    alignas(64) char raw[kTile * kMaxElementSize];
    T tile[kTile];
    double weights[kTile];
    for (int64_t flat = first; flat < last; flat += kTile) {
      const int64_t n = std::min(kTile, last - flat);
      gather(space_, 0, x_, flat, n, size_, raw);
      load_(n, tile, raw);
      if (weights_) gather(space_, 1, weights_, flat, n, weight_size_, raw), load_weight_(n, weights, raw);
      for (int64_t i = 0; i < n; ++i) {
        if (!(tile[i] >= low_ && tile[i] <= high_)) continue;
        const T at = tile[i] - low_;
        const int64_t bin = std::min(int64_t(units_ ? at : at * T(bins_) / (high_ - low_)), bins_ - 1);
        totals[bin] += weights_ ? Total(weights[i]) : Total(1);
      }
    }
  }

 private:
  Space space_{2};
  const char *x_, *weights_;
  int64_t size_, weight_size_, bins_;
  T low_, high_;
  bool units_;  // bins of width 1: exact for integers of any size
  Converter load_ = nullptr, load_weight_ = nullptr;
};

template <class T> void histogram_as(Context& ctx, const entry::Histogram& call) {
  V out = call.out;
  const int64_t bins = out.numel();
  const Histogram<T> h(call.x, call.weights, bins, call.params);
  const auto store = [&](DType from, const void* totals) {
    const Converter convert = converter(out.dtype, from);
    for (int64_t i = 0; i < bins; ++i)
      convert(1, out.as<char>() + i * out.strides[0] * size_of(out.dtype), static_cast<const char*>(totals) + i * 8);
  };
  if (call.weights.defined()) {  // in one order, so that the sums do not depend on the threads
    double* totals = ctx.scratch_of<double>(bins);
    std::fill_n(totals, bins, 0);
    h.count(0, h.numel(), totals);
    return store(kFloat64, totals);
  }
  const int64_t chunks =
      std::clamp<int64_t>(kMaxCounts / std::max<int64_t>(bins, 1), 1, (h.numel() + kChunk - 1) / kChunk + 1);
  int64_t* totals = ctx.scratch_of<int64_t>(bins * chunks);
  std::fill_n(totals, bins * chunks, 0);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c)
      h.count(h.numel() * c / chunks, h.numel() * (c + 1) / chunks, totals + c * bins);
  });
  for (int64_t c = 1; c < chunks; ++c)
    for (int64_t i = 0; i < bins; ++i) totals[i] += totals[c * bins + i];
  store(kInt64, totals);
}

}  // namespace

void histogram(Context& ctx, const entry::Histogram& c) {
  if (c.x.dtype == kFloat64 || !is_floating(c.x.dtype)) histogram_as<double>(ctx, c);
  else histogram_as<float>(ctx, c);
}

}  // namespace tapir::inline v0::cpu
