#include <algorithm>
#include <cstdlib>

#include "../core/parallel.h"
#include "elementwise.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kColumns = 256;

/// Runs along one dimension: everything is converted to double or int64_t, scanned there, and rounded once on its way out.
template <class T, bool kProduct> class Scan {
 public:
  Scan(V out, V x, int64_t dim)
      : x_(x.as<char>()), out_(out.as<char>()), size_(size_of(x.dtype)), out_size_(size_of(out.dtype)) {
    for (int64_t d = 0; d < x.rank; ++d) {
      const int64_t strides[] = {x.strides[d] * size_, out.strides[d] * out_size_};
      (d == dim ? line_ : kept_).add(x.sizes[d], strides);
    }
    kept_.simplify();
    load_ = converter(dtype_of<T>, x.dtype), store_ = converter(out.dtype, dtype_of<T>);
  }
  void run() const {
    if (kept_.numel == 0 || line_.numel == 0) return;
    const bool columns =
        kept_.rank > 0 && kept_.numel >= 16 && std::abs(kept_.inner_stride(0)) < std::abs(line_.inner_stride(0));
    if (columns) return run_columns();
    parallel_for(kept_.numel, std::max<int64_t>(kGrain / line_.numel, 1), [&](int64_t first, int64_t last) {
      for (int64_t o = first; o < last; ++o) scan_line(o);
    });
  }

 private:
  static T join(T a, T b) { return kProduct ? wrap_mul(a, b) : wrap_add(a, b); }
  static constexpr T start() { return kProduct ? T(1) : T(0); }
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
  void scan_line(int64_t output) const {
    T tile[kTile], sum = start();
    for (int64_t flat = 0; flat < line_.numel; flat += kTile) {
      const int64_t n = std::min(kTile, line_.numel - flat);
      load(line_, x_ + kept_.offset(0, output), flat, n, tile);
      for (int64_t i = 0; i < n; ++i) tile[i] = sum = join(sum, tile[i]);
      store(line_, out_ + kept_.offset(1, output), flat, n, tile);
    }
  }
  void run_columns() const {
    const Tiles tiles(kept_, kColumns);
    parallel_for(
        tiles.count, tiles.grain(std::max<int64_t>(kGrain / line_.numel, 1)), [&](int64_t first, int64_t last) {
          T tile[kColumns], sums[kColumns];
          for (int64_t t = first; t < last; ++t) {
            const int64_t flat = tiles.begin(t), end = tiles.by_row ? flat - flat % tiles.row + tiles.row : kept_.numel;
            const int64_t n = std::min(kColumns, end - flat);
            std::fill_n(sums, n, start());
            for (int64_t i = 0; i < line_.numel; ++i) {
              load(kept_, x_ + line_.offset(0, i), flat, n, tile);
#pragma omp simd
              for (int64_t j = 0; j < n; ++j) sums[j] = join(sums[j], tile[j]);
              store(kept_, out_ + line_.offset(1, i), flat, n, sums);
            }
          }
        });
  }

  Space kept_{2}, line_{2};  // operands: x, out
  const char* x_;
  char* out_;
  int64_t size_, out_size_;
  Converter load_, store_;
};

template <class T> void scan_as(V out, V x, const ScanParams& p) {
  if (p.op == ScanOp::CumSum) Scan<T, false>(out, x, p.dim).run();
  else Scan<T, true>(out, x, p.dim).run();
}

}  // namespace

void scan(Context&, V out, V x, const ScanParams& p) {
  if (is_floating(x.dtype) || is_floating(out.dtype)) scan_as<double>(out, x, p);
  else scan_as<int64_t>(out, x, p);
}

}  // namespace tapir::inline v0::cpu
