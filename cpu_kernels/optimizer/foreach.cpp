#include <cmath>
#include <cstring>
#include <limits>

#include "../../core/denormals.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../stage.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kChunk = 16384;  // elements
enum class NormKind { Zero, One, Two, Max, Min, General };

NormKind kind_of(double p) {
  if (std::isinf(p)) return p > 0 ? NormKind::Max : NormKind::Min;
  return p == 0 ? NormKind::Zero : p == 1 ? NormKind::One : p == 2 ? NormKind::Two : NormKind::General;
}

/// Sum of |x|^p of a row, or its largest (smallest) |x|; NaN stays. In double: squares of large floats do not overflow.
template <class T> double norm_of(const T* x, int64_t step, int64_t n, NormKind kind, double p) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  double sum = 0;
  if (kind == NormKind::Two) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += double(C(x[i * step])) * double(C(x[i * step]));
  } else if (kind == NormKind::Max || kind == NormKind::Min) {
    C best = kind == NormKind::Max ? C(0) : std::numeric_limits<C>::infinity();
    int nans = 0;
    const C sign = kind == NormKind::Max ? C(1) : C(-1);  // the smallest is the largest of the negatives
    best *= sign;
#pragma omp simd reduction(max : best) reduction(+ : nans)
    for (int64_t i = 0; i < n; ++i) {
      const C a = std::abs(C(x[i * step])) * sign;
      best = best > a ? best : a;
      nans += a != a;
    }
    return nans ? std::numeric_limits<double>::quiet_NaN() : double(best * sign);
  } else if (kind == NormKind::One) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += std::abs(double(C(x[i * step])));
  } else if (kind == NormKind::Zero) {
    for (int64_t i = 0; i < n; ++i) sum += C(x[i * step]) != 0;
  } else {
    for (int64_t i = 0; i < n; ++i) sum += std::pow(std::abs(double(C(x[i * step]))), p);
  }
  return sum;
}

double merge(double a, double b, NormKind kind) {
  if (kind == NormKind::Max) return a > b || a != a ? a : b;
  if (kind == NormKind::Min) return a < b || a != a ? a : b;
  return a + b;
}
double merge_all(const double* parts, int64_t n, NormKind kind) {  // pairwise: small errors, one order
  if (n == 1) return parts[0];
  return merge(merge_all(parts, n / 2, kind), merge_all(parts + n / 2, n - n / 2, kind), kind);
}

/// f(tensor, first, last) for chunks of the tensors' elements, counted through; chunk c is the same for any number of threads.
template <class F> void for_chunks(std::span<const TensorView> xs, int64_t chunks, F&& f) {
  int64_t total = 0;
  for (V x : xs) total += x.numel();
  parallel_for(chunks, total < 2 * kChunk ? chunks : 1, [&](int64_t begin, int64_t end) {
    int64_t start = 0;
    for (V x : xs) {
      const int64_t n = x.numel(), count = (n + kChunk - 1) / kChunk;
      for (int64_t c = std::max(begin, start); c < std::min(end, start + count); ++c)
        f(c, x, (c - start) * kChunk, std::min(n, (c - start + 1) * kChunk));
      if ((start += count) >= end) break;
    }
  });
}

void norm_p(Context& ctx, V out, std::span<const TensorView> xs, int64_t chunks, double p) {
  const NormKind kind = kind_of(p);
  double result = 0;
  if (chunks > 0) {
    double* const parts = ctx.scratch_of<double>(chunks);
    for_chunks(xs, chunks, [&](int64_t c, V x, int64_t first, int64_t last) {
      Walk<1> walk(x.shape(), {x.strides});
      walk.by_memory();
      double part = 0;
      bool some = false;
      for_any_float("foreach", x.dtype, [&]<class T>() {
        walk.run(first, last, [&](int64_t, int64_t n, const auto& at) {
          const T* const row = x.as<T>() + at[0];
          const double norm = walk.step(0) == 1 ? norm_of(row, 1, n, kind, p) : norm_of(row, walk.step(0), n, kind, p);
          part = some ? merge(part, norm, kind) : norm;
          some = true;
        });
      });
      parts[c] = part;
    });
    result = merge_all(parts, chunks, kind);
  }
  if (kind == NormKind::Two) result = std::sqrt(result);
  else if (kind == NormKind::General) result = std::pow(result, 1 / p);
  store_row(out, 0, 1, 1, &result);
}

/// x = f(x), computed in float or double.
template <class F> void map(std::span<const TensorView> xs, int64_t chunks, F&& f) {
  for_chunks(xs, chunks, [&](int64_t, V x, int64_t first, int64_t last) {
    Walk<1> walk(x.shape(), {x.strides});
    walk.by_memory();
    const int64_t step = walk.step(0);
    for_any_float("foreach", x.dtype, [&]<class T>() {
      using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
      walk.run(first, last, [&](int64_t, int64_t n, const auto& at) {
        T* const row = x.as<T>() + at[0];
        if (step == 1)
          for (int64_t i = 0; i < n; ++i) row[i] = T(f(C(row[i])));
        else
          for (int64_t i = 0; i < n; ++i) row[i * step] = T(f(C(row[i * step])));
      });
    });
  });
}

void zero(std::span<const TensorView> xs, int64_t chunks) {
  for_chunks(xs, chunks, [&](int64_t, V x, int64_t first, int64_t last) {
    Walk<1> walk(x.shape(), {x.strides});
    walk.by_memory();
    for_size(x.dtype, [&]<class T>() {
      walk.run(first, last, [&](int64_t, int64_t n, const auto& at) {
        T* const row = x.as<T>() + at[0];
        if (walk.step(0) == 1) std::memset(row, 0, size_t(n) * sizeof(T));
        else
          for (int64_t i = 0; i < n; ++i) row[i * walk.step(0)] = 0;
      });
    });
  });
}

}  // namespace

void foreach (Context& ctx, const entry::Foreach& c) {
  int64_t chunks = 0;
  for (V x : c.xs) chunks += (x.numel() + kChunk - 1) / kChunk;
  // Whoever calls it has tensors of one type of computing.
  const detail::FlushDenormals flush(c.xs.empty() ? kFloat64 : c.xs[0].dtype);
  if (c.params.op == ForeachOp::NormP) return norm_p(ctx, c.out, c.xs, chunks, c.params.p);
  if (c.params.op == ForeachOp::Zero) return zero(c.xs, chunks);
  const double number = number_of(c.factor);
  if (c.params.op == ForeachOp::Scale) {
    if (number == 1) return;  // the usual case of clipping: x * 1 is x
    map(c.xs, chunks, [number]<class C>(C x) { return x * C(number); });
  } else {
    map(c.xs, chunks, [number]<class C>(C x) {
      const C bound = C(number), low = x < -bound ? -bound : x;
      return low > bound ? bound : low;
    });
  }
}

}  // namespace tapir::inline v0::cpu
