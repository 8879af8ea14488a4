#include <cmath>
#include <limits>

#include "lanes.h"
#include "reduction.h"

namespace tapir::inline v0::cpu {
namespace {

using P = ReduceParams;

/// Max and Min of float, double or int64_t, and the p-norms of infinite p, which are those of magnitudes; a NaN wins.
template <class T, bool kLargest, bool kMagnitudes> struct Extreme {
  using In = T;
  using Cell = std::conditional_t<std::integral<T>, int64_t, double>;  // holds a float exactly
  using Out = Cell;
  static constexpr int kCells = 1;
  static constexpr In worst() {
    if (kMagnitudes && kLargest) return 0;
    if constexpr (std::floating_point<In>)
      return kLargest ? -std::numeric_limits<In>::infinity() : std::numeric_limits<In>::infinity();
    else return kLargest ? std::numeric_limits<In>::min() : std::numeric_limits<In>::max();
  }
  static constexpr auto value = [](In x) -> In {  // a type of its own, so that the loops take it in
    if constexpr (kMagnitudes) return std::abs(x);
    else return x;
  };
  static void identity(Cell* s, const P&) { *s = Cell(worst()); }
  static void leaf(Cell* s, const In* x, Run run, const P&) { *s = Cell(extreme_of<kLargest>(x, run.count, value)); }
  static void rows(Cell* s, int64_t, const char* x, int64_t stride, int64_t columns, Run run, int64_t, const P&) {
    const auto join = [](In a, In b) { return extreme<kLargest>(a, b); };
    fold_rows<16, In>(x, stride, columns, run.count, value, join, [s](int64_t first, int64_t width, const In* block) {
#pragma omp simd
      for (int64_t l = 0; l < width; ++l) s[first + l] = extreme<kLargest>(s[first + l], Cell(block[l]));
    });
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) { *a = extreme<kLargest>(*a, *b); }
  static void repeat(Cell*, int64_t) {}
  static Out result(const Cell* s, int64_t, const P&) { return *s; }
};

/// Any and All: whether one, or every, element is not 0.
template <bool kAny> struct Truth {
  using In = bool;
  using Cell = int64_t;
  using Out = bool;
  static constexpr int kCells = 1;
  static void identity(Cell* s, const P&) { *s = !kAny; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {
    uint8_t found = 0;  // a true for Any, a false for All
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < run.count; ++i) found |= uint8_t(x[i] == kAny);
    *s = (found != 0) == kAny;
  }
  static void add(Cell* s, int64_t, const In* x, int64_t columns, Run, const P&) {
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] = kAny ? s[j] | int64_t(x[j]) : s[j] & int64_t(x[j]);
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) { *a = kAny ? *a | *b : *a & *b; }
  static void repeat(Cell*, int64_t) {}
  static Out result(const Cell* s, int64_t, const P&) { return *s != 0; }
};

template <class T, bool kMagnitudes = false> Reducer extreme_for(bool largest) {
  return largest ? make_reducer<Extreme<T, true, kMagnitudes>>() : make_reducer<Extreme<T, false, kMagnitudes>>();
}

}  // namespace

Reducer extreme_reducer(const ReduceParams& p, DType in) {
  if (p.op == ReduceOp::Any) return make_reducer<Truth<true>>();
  if (p.op == ReduceOp::All) return make_reducer<Truth<false>>();
  if (p.op == ReduceOp::NormP)
    return in == kFloat32 ? extreme_for<float, true>(p.p > 0) : extreme_for<double, true>(p.p > 0);
  const bool largest = p.op == ReduceOp::Max;
  if (!is_floating(in)) return extreme_for<int64_t>(largest);
  return in == kFloat64 ? extreme_for<double>(largest) : extreme_for<float>(largest);
}

}  // namespace tapir::inline v0::cpu
