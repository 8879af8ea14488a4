#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "../../core/arithmetic.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kColumns = 256;
constexpr int kAtOnce = 4;  // lines

template <class T> struct RunningSum {
  static constexpr T start() { return T(0); }
  static T join(T a, T b) { return wrap_add(a, b); }
};
template <class T> struct RunningProduct {
  static constexpr T start() { return T(1); }
  static T join(T a, T b) { return wrap_mul(a, b); }
};
struct RunningLogSum {
  static constexpr double start() { return -std::numeric_limits<double>::infinity(); }
  static double join(double a, double b) { return math::logaddexp(a, b); }
};
/// The extreme so far and where it stands: the last of equal ones, the last NaN.
template <class T, bool kLargest> struct RunningExtreme {
  static bool wins(T v, T best) { return (kLargest ? v >= best : v <= best) || v != v; }
};

/// Runs along one dimension: everything is converted to double or int64_t, scanned there, and rounded once on its way out.
template <class T> class Scan {
 public:
  Scan(V out, V indices, V x, int64_t dim)
      : x_(x.as<char>()), out_(out.as<char>()), indices_(indices.as<char>()), size_(size_of(x.dtype)),
        out_size_(size_of(out.dtype)) {
    for (int64_t d = 0; d < x.rank; ++d) {
      const int64_t strides[] = {x.strides[d] * size_, out.strides[d] * out_size_,
                                 indices_ ? indices.strides[d] * int64_t(sizeof(int64_t)) : 0};
      (d == dim ? line_ : kept_).add(x.sizes[d], strides);
    }
    kept_.simplify();
    load_ = converter(dtype_of<T>, x.dtype), store_ = converter(out.dtype, dtype_of<T>);
  }

  /// y[i] = join(y[i - 1], x[i])
  template <class Op> void run() const {
    if (kept_.numel == 0 || line_.numel == 0) return;
    const bool columns =
        kept_.rank > 0 && kept_.numel >= 16 && std::abs(kept_.inner_stride(0)) < std::abs(line_.inner_stride(0));
    if (columns) return run_columns<Op>();
    for_lines([&](int64_t first, int64_t last) {
      int64_t line = first;
      for (; line + kAtOnce <= last; line += kAtOnce) run_lines<Op, kAtOnce>(line);
      for (; line < last; ++line) run_lines<Op, 1>(line);
    });
  }
  template <class Op> void run_extreme() const {
    if (kept_.numel == 0 || line_.numel == 0) return;
    for_lines([&](int64_t first, int64_t last) {
      for (int64_t line = first; line < last; ++line) run_extreme_line<Op>(line);
    });
  }

 private:
  /// Each element waits for the one before, and costs some 8 additions.
  template <class F> void for_lines(F&& f) const {
    parallel_for(kept_.numel, std::max<int64_t>(kGrain / 8 / line_.numel, 1), f);
  }
  /// Lines beside each other: while one waits for its sum, the others add.
  template <class Op, int kLines> void run_lines(int64_t first) const {
    T tile[kLines][kTile], sum[kLines];
    std::fill_n(sum, kLines, Op::start());
    for (int64_t flat = 0; flat < line_.numel; flat += kTile) {
      const int64_t n = std::min(kTile, line_.numel - flat);
      for (int l = 0; l < kLines; ++l) load(line_, x_ + kept_.offset(0, first + l), flat, n, tile[l]);
      for (int64_t i = 0; i < n; ++i)
#pragma GCC unroll 4
        for (int l = 0; l < kLines; ++l) tile[l][i] = sum[l] = Op::join(sum[l], tile[l][i]);
      for (int l = 0; l < kLines; ++l) store(line_, out_ + kept_.offset(1, first + l), flat, n, tile[l]);
    }
  }
  template <class Op> void run_extreme_line(int64_t line) const {
    T tile[kTile], best{};
    int64_t places[kTile], place = -1;
    for (int64_t flat = 0; flat < line_.numel; flat += kTile) {
      const int64_t n = std::min(kTile, line_.numel - flat);
      load(line_, x_ + kept_.offset(0, line), flat, n, tile);
      for (int64_t i = 0; i < n; ++i) {
        if (place < 0 || (best == best && Op::wins(tile[i], best)) || tile[i] != tile[i])
          best = tile[i], place = flat + i;
        tile[i] = best, places[i] = place;
      }
      store(line_, out_ + kept_.offset(1, line), flat, n, tile);
      scatter(line_, 2, indices_ + kept_.offset(2, line), flat, n, sizeof(int64_t), places);
    }
  }
  void load(const Space& s, const char* from, int64_t flat, int64_t n, T* tile) const {
    alignas(64) char raw[kTile * kMaxElementSize];
    gather(s, 0, from, flat, n, size_, raw);
    load_(n, tile, raw);
  }
  void store(const Space& s, char* to, int64_t flat, int64_t n, const T* tile) const {
    alignas(64) char raw[kTile * kMaxElementSize];
    store_(n, raw, tile);
    scatter(s, 1, to, flat, n, out_size_, raw);
  }
  template <class Op> void run_columns() const {
    const Tiles tiles(kept_, kColumns);
    parallel_for(
        tiles.count, tiles.grain(std::max<int64_t>(kGrain / line_.numel, 1)), [&](int64_t first, int64_t last) {
          T tile[kColumns], sums[kColumns];
          for (int64_t t = first; t < last; ++t) {
            const int64_t flat = tiles.begin(t), end = tiles.by_row ? flat - flat % tiles.row + tiles.row : kept_.numel;
            const int64_t n = std::min(kColumns, end - flat);
            std::fill_n(sums, n, Op::start());
            for (int64_t i = 0; i < line_.numel; ++i) {
              load(kept_, x_ + line_.offset(0, i), flat, n, tile);
#pragma omp simd
              for (int64_t j = 0; j < n; ++j) sums[j] = Op::join(sums[j], tile[j]);
              store(kept_, out_ + line_.offset(1, i), flat, n, sums);
            }
          }
        });
  }

  Space kept_{3}, line_{3};  // operands: x, out, indices
  const char* x_;
  char* out_;
  char* indices_;
  int64_t size_, out_size_;
  Converter load_, store_;
};

template <class T> void scan_as(const entry::Scan& c) {
  const Scan<T> scan(c.out, c.indices, c.x, c.params.dim);
  switch (c.params.op) {
    case ScanOp::CumSum: return scan.template run<RunningSum<T>>();
    case ScanOp::CumProd: return scan.template run<RunningProduct<T>>();
    case ScanOp::CumMax: return scan.template run_extreme<RunningExtreme<T, true>>();
    case ScanOp::CumMin: return scan.template run_extreme<RunningExtreme<T, false>>();
    case ScanOp::LogCumSumExp:
      if constexpr (std::floating_point<T>) return scan.template run<RunningLogSum>();
  }
}

}  // namespace

void scan(Context&, const entry::Scan& c) {
  if (is_floating(c.x.dtype) || is_floating(c.out.dtype)) scan_as<double>(c);
  else scan_as<int64_t>(c);
}

}  // namespace tapir::inline v0::cpu
