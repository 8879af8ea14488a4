#include "../kernels.h"
#include "lanes.h"
#include "reduction.h"

namespace tapir::inline v0::cpu {
namespace {

using P = ReduceParams;

/// The value of the best element so far (a float as double: exact) and its position; -1: none yet.
union ValueOrIndex {
  double real;
  int64_t integer;
};

/// The position of the first largest (smallest) element; the first NaN wins over all.
template <class T, bool kLargest> struct ArgExtreme {
  using In = T;
  using Cell = ValueOrIndex;
  using Out = int64_t;
  static constexpr int kCells = 2;
  static constexpr int64_t kCost = 4;
  static void put(Cell& c, In v) {
    if constexpr (std::integral<In>) c.integer = v;
    else c.real = double(v);
  }
  static In get(Cell c) {
    if constexpr (std::integral<In>) return c.integer;
    else return In(c.real);
  }
  /// True when v, which comes later, takes the place of `best`.
  static bool beats(In v, In best) { return (kLargest ? v > best : v < best) || (v != v && best == best); }
  static void identity(Cell* s, const P&) { put(s[0], In(0)), s[1].integer = -1; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {
    const In best = extreme_of<kLargest>(x, run.count, [](In v) { return v; });
    const int64_t at = first_of(x, run.count, [best](In v) { return (v == best) | ((v != v) & (best != best)); });
    put(s[0], best), s[1].integer = run.first + at;
  }
  static void add(Cell* s, int64_t width, const In* x, int64_t columns, Run at, const P&) {
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
      const In best = get(s[j]);
      const bool take = beats(x[j], best) || at.count == 0;
      put(s[j], take ? x[j] : best);
      s[width + j].integer = take ? at.first : s[width + j].integer;
    }
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) {
    if (beats(get(b[0]), get(a[0]))) a[0] = b[0], a[1] = b[1];
  }
  static Out result(const Cell* s, int64_t, const P&) { return s[1].integer; }
};

template <class T> Reducer of(ArgReduceOp op) {
  return op == ArgReduceOp::ArgMax ? make_reducer<ArgExtreme<T, true>>() : make_reducer<ArgExtreme<T, false>>();
}

}  // namespace

Reducer arg_reducer(ArgReduceOp op, DType in) {
  if (!is_floating(in)) return of<int64_t>(op);
  return in == kFloat64 ? of<double>(op) : of<float>(op);
}

void arg_reduce(Context& ctx, const entry::ArgReduce& c) {
  ReduceParams params{ReduceOp::Max};
  if (c.x.rank > 0) params.dims = uint32_t(1) << c.params.dim;
  run_reducer(ctx, c.out, c.x, arg_reducer(c.params.op, c.x.dtype), params);
}

}  // namespace tapir::inline v0::cpu
