#include <limits>

#include "../../core/denormals.h"
#include "../../core/math.h"
#include "../kernels.h"
#include "../reduce/softmax_lanes.h"
#include "../stage.h"

namespace tapir::inline v0::cpu {
namespace {

// loss = (1 - s) w_t (lse - x_t) + s / C sum_c w_c (lse - x_c), s = label_smoothing, lse = log sum_c e^x_c. See Note [Lanes], Note [Long sums].

/// The samples: all dimensions of logits but the classes. Operands: logits, target, losses (or their gradient), lse[0], dlogits.
struct Samples {
  Strides logits_strides, dlogits_strides;
  Walk<5> walk;
  int64_t classes, class_step, dclass_step;
  bool tiled;

  static Strides without_class(V v) {
    Strides s = v.stride_list();
    s.erase(1);
    return s;
  }
  Samples(V logits, V target, V losses, V lse, V dlogits)
      : logits_strides(without_class(logits)), dlogits_strides(without_class(dlogits)),
        walk(target.shape(),
             {logits_strides.data(), target.strides, losses.strides, lse.strides + 1, dlogits_strides.data()}),
        classes(logits.sizes[1]), class_step(logits.strides[1]), dclass_step(dlogits.strides[1]) {
    const bool side_by_side = walk.step(0) == 1 && walk.step(4) == 1 && (class_step != 1 || dclass_step != 1);
    tiled = walk.inner() >= 4 && (side_by_side || classes <= kShortLane);
  }
};

template <class C> struct Weights {
  const C* each;            // null: all 1
  C sum, smoothing, share;  // share = smoothing / classes

  Weights(Context& ctx, V weight, const NllParams& params, int64_t classes)
      : each(staged<C>(ctx, weight, true)), sum(C(classes)), smoothing(C(params.label_smoothing)),
        share(classes ? C(params.label_smoothing / double(classes)) : C(0)) {
    if (!each) return;
    double total = 0;
    for (int64_t c = 0; c < classes; ++c) total += double(each[c]);
    sum = C(total);
  }
  C of(int64_t c) const { return each ? each[c] : C(1); }
};

template <class C> C log_sum_exp(const C* x, int64_t n, C& top) {
  top = top_of(x, n);
  return math::log(C(sum_exponentials(x, n, top, [](int64_t, int64_t, const C*) {})));
}
/// sum_c w_c (top - x_c + rest)
template <class C> C smooth_loss(const C* x, int64_t n, C top, C rest, const C* weight) {
  constexpr int64_t kStep = 16;  // side by side
  const auto term = [=](int64_t i) { return (weight ? weight[i] : C(1)) * (top - x[i] + rest); };
  return C(sum_of_parts(n, 32 * kStep, [=](int64_t i, int64_t last) {
    C sum[kStep] = {};
    for (; i + kStep <= last; i += kStep) {
#pragma omp simd
      for (int64_t j = 0; j < kStep; ++j) sum[j] += term(i + j);
    }
    for (; i < last; ++i) sum[i % kStep] += term(i);
    return join_lanes(sum, kStep, [](C a, C b) { return a + b; });
  }));
}

/// lse of `width` samples, as its parts top + rest, for (top - x) + rest is exact where it is small, and
/// sum_c w_c (lse - x_c) where that is asked for. buffer: a lane, or a tile (classes, width).
template <class T, class C> void reduce_tile(const T* x, const Samples& samples, int64_t width,
                                             const Weights<C>& weights, C* buffer, C* top, C* rest, C* smooth) {
  ColumnSums<C, kTileWidth> exponentials(width, samples.classes), smoothed(width, samples.classes);
  C *const sum = exponentials.sum, *const smooth_sum = smoothed.sum;
  const int64_t step = samples.walk.step(0);
  std::fill_n(top, width, -std::numeric_limits<C>::infinity());
  std::fill_n(smooth, width, C(0));
  for (int64_t k = 0; k < samples.classes; ++k) {
    C* const row = buffer + k * width;
    const C* const from = read_row(x + k * samples.class_step, step, width, row);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) row[j] = from[j], top[j] = from[j] > top[j] ? from[j] : top[j];
  }
  for (int64_t k = 0; k < samples.classes; ++k) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) sum[j] += math::exp(buffer[k * width + j] - top[j]);
    exponentials.end_row(k);
  }
  for (int64_t j = 0; j < width; ++j) rest[j] = math::log(sum[j]);
  if (weights.smoothing == 0) return;
  for (int64_t k = 0; k < samples.classes; ++k) {
    const C w = weights.of(k);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) smooth_sum[j] += w * (top[j] - buffer[k * width + j] + rest[j]);
    smoothed.end_row(k);
  }
  std::copy_n(smooth_sum, width, smooth);
}
template <class T, class C> void reduce_rows(const T* x, const Samples& samples, int64_t width,
                                             const Weights<C>& weights, C* buffer, C* top, C* rest, C* smooth) {
  for (int64_t j = 0; j < width; ++j) {
    const C* const row = read_row(x + j * samples.walk.step(0), samples.class_step, samples.classes, buffer);
    rest[j] = log_sum_exp(row, samples.classes, top[j]);
    smooth[j] = weights.smoothing == 0 ? C(0) : smooth_loss(row, samples.classes, top[j], rest[j], weights.each);
  }
}

/// What a sample contributes: its label, or -1 where it is ignored or (recorded) out of range.
int64_t label_at(Context& ctx, const int64_t* target, int64_t position, int64_t classes, const NllParams& params) {
  const int64_t t = *target;
  if (t == params.ignore_index) return -1;
  if (uint64_t(t) < uint64_t(classes)) [[likely]]
    return t;
  ctx.bad_value(position, t, classes);
  return -1;
}

}  // namespace

void cross_entropy(Context& ctx, const entry::CrossEntropy& c) {
  V losses = c.losses, lse = c.lse, logits = c.logits, target = c.target;
  const Samples samples(logits, target, losses, lse, logits);
  const Walk<5>& walk = samples.walk;
  const detail::FlushDenormals flush(logits.dtype);  // as in softmax
  for_any_float("cross_entropy", logits.dtype, [&]<class T>() {
    using C = Compute<T>;
    const Weights<C> weights(ctx, c.weight, c.params, samples.classes);
    const bool direct = std::is_same_v<C, T> && samples.class_step == 1 && !samples.tiled;
    const int64_t wanted = tile_width(samples.classes, sizeof(C));
    const int64_t elements = direct ? 0 : samples.classes * (samples.tiled ? wanted : 1);
    for_lanes<C>(ctx, walk, samples.classes, elements,
                 [&](C* buffer, int64_t position, int64_t count, const std::array<int64_t, 5>& at) {
                   alignas(64) C top[kTileWidth], rest[kTileWidth], smooth[kTileWidth], loss[kTileWidth];
                   for (int64_t done = 0; done < count; done += wanted) {
                     const int64_t width = std::min(wanted, count - done);
                     const T* const x = logits.as<T>() + at[0] + done * walk.step(0);
                     if (samples.tiled) reduce_tile(x, samples, width, weights, buffer, top, rest, smooth);
                     else reduce_rows(x, samples, width, weights, buffer, top, rest, smooth);
                     const int64_t* const labels = target.as<int64_t>() + at[1] + done * walk.step(1);
                     for (int64_t j = 0; j < width; ++j) {
                       const int64_t t =
                           label_at(ctx, labels + j * walk.step(1), position + done + j, samples.classes, c.params);
                       if (t < 0) {
                         loss[j] = 0;
                         continue;
                       }
                       const C picked = top[j] - C(x[j * walk.step(0) + t * samples.class_step]) + rest[j];
                       loss[j] = (1 - weights.smoothing) * weights.of(t) * picked + weights.share * smooth[j];
                     }
                     store_row(losses, at[2] + done * walk.step(2), walk.step(2), width, loss);
                     store_row(lse, at[3] + done * walk.step(3), walk.step(3), width, top);
                     store_row(lse, lse.strides[0] + at[3] + done * walk.step(3), walk.step(3), width, rest);
                   }
                 });
  });
}

namespace {

/// dlogits_c = p e^(x_c - top - rest) - w_c uniform - (picked at c = label), by sample.
template <class C> struct Slopes {
  alignas(64) C top[kTileWidth], rest[kTileWidth], p[kTileWidth], uniform[kTileWidth], picked[kTileWidth];
  alignas(64) int32_t label[kTileWidth];
};

template <class T, class C> void grad_tile(const T* x, T* dx, const Samples& samples, int64_t width,
                                           const Weights<C>& weights, const Slopes<C>& s) {
  alignas(64) C buffer[kTileWidth], to_buffer[kTileWidth];
  for (int64_t k = 0; k < samples.classes; ++k) {
    const C* const row = read_row(x + k * samples.class_step, samples.walk.step(0), width, buffer);
    C* const to = row_target(dx + k * samples.dclass_step, samples.walk.step(4), to_buffer);
    const C w = weights.of(k);
    const int32_t label = int32_t(k);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j)
      to[j] = s.p[j] * math::exp(row[j] - s.top[j] - s.rest[j]) - w * s.uniform[j] -
              (s.label[j] == label ? s.picked[j] : C(0));
    write_row(dx + k * samples.dclass_step, samples.walk.step(4), width, to);
  }
}
template <class T, class C> void grad_rows(const T* x, T* dx, const Samples& samples, int64_t width,
                                           const Weights<C>& weights, const Slopes<C>& s, C* buffer) {
  const int64_t n = samples.classes;
  for (int64_t j = 0; j < width; ++j) {
    const C* const row = read_row(x + j * samples.walk.step(0), samples.class_step, n, buffer);
    T* const place = dx + j * samples.walk.step(4);
    C* const to = row_target(place, samples.dclass_step, buffer);
    const C top = s.top[j], rest = s.rest[j], p = s.p[j], uniform = s.uniform[j];
    if (uniform == 0 || !weights.each)
      for (int64_t i = 0; i < n; ++i) to[i] = p * math::exp(row[i] - top - rest) - uniform;
    else
      for (int64_t i = 0; i < n; ++i) to[i] = p * math::exp(row[i] - top - rest) - uniform * weights.each[i];
    if (s.label[j] >= 0) to[s.label[j]] -= s.picked[j];
    write_row(place, samples.dclass_step, n, to);
  }
}

}  // namespace

void cross_entropy_backward(Context& ctx, const entry::CrossEntropyBackward& c) {
  V dlogits = c.dlogits, dlosses = c.dlosses, lse = c.lse, logits = c.logits, target = c.target;
  const Samples samples(logits, target, dlosses, lse, dlogits);
  const Walk<5>& walk = samples.walk;
  const detail::FlushDenormals flush(logits.dtype);
  for_any_float("cross_entropy_backward", logits.dtype, [&]<class T>() {
    using C = Compute<T>;
    const Weights<C> weights(ctx, c.weight, c.params, samples.classes);
    const bool direct = std::is_same_v<C, T> && samples.class_step == 1 && samples.dclass_step == 1;
    const int64_t elements = direct || samples.tiled ? 0 : samples.classes;
    for_lanes<C>(ctx, walk, samples.classes, elements,
                 [&](C* buffer, int64_t position, int64_t count, const std::array<int64_t, 5>& at) {
                   Slopes<C> s;
                   alignas(64) C grads[kTileWidth];
                   for (int64_t done = 0; done < count; done += kTileWidth) {
                     const int64_t width = std::min(kTileWidth, count - done);
                     load_row(dlosses, at[2] + done * walk.step(2), walk.step(2), width, grads);
                     load_row(lse, at[3] + done * walk.step(3), walk.step(3), width, s.top);
                     load_row(lse, lse.strides[0] + at[3] + done * walk.step(3), walk.step(3), width, s.rest);
                     const int64_t* const labels = target.as<int64_t>() + at[1] + done * walk.step(1);
                     for (int64_t j = 0; j < width; ++j) {
                       const int64_t t =
                           label_at(ctx, labels + j * walk.step(1), position + done + j, samples.classes, c.params);
                       const C g = t < 0 ? C(0) : grads[j];
                       s.label[j] = int32_t(t);
                       s.picked[j] = g * (1 - weights.smoothing) * (t < 0 ? C(0) : weights.of(t));
                       s.uniform[j] = g * weights.share;
                       s.p[j] = s.picked[j] + s.uniform[j] * weights.sum;
                       if (t < 0)  // an ignored row of -inf has no NaN gradient
                         s.top[j] = std::numeric_limits<C>::infinity(), s.rest[j] = 0;
                     }
                     const T* const x = logits.as<T>() + at[0] + done * walk.step(0);
                     T* const dx = dlogits.as<T>() + at[4] + done * walk.step(4);
                     if (samples.tiled) grad_tile(x, dx, samples, width, weights, s);
                     else grad_rows(x, dx, samples, width, weights, s, buffer);
                   }
                 });
  });
}

}  // namespace tapir::inline v0::cpu
