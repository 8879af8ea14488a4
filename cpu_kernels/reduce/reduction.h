#pragma once
#include "../kernels.h"
#include "../loops.h"

namespace tapir::inline v0::cpu {

// Note [Reductions by leaves]
// A reduction is a state of one or two cells of 8 bytes for each output, kept as planes: cell c of output j stands at
// state[c * width + j]. `leaf` reduces a contiguous run to one state, `rows` adds whole rows to a plane of states,
// `merge` joins the states of two neighbouring runs. Runs are cut by shape alone, and joined in order: sums are the same for any
// number of threads, and their error grows as that of a pairwise sum (float32 is summed in float64 besides, but for a few terms).

inline constexpr int kMaxCells = 2;

/// Elements [first, first + count) of those that one output reduces, in row-major order.
struct Run {
  int64_t first, count;
};
struct Reducer {
  int cells;
  DType input;                                                    // what leaf and rows read
  DType result;                                                   // what finish writes, one for each output
  void (*init)(void* state, int64_t width, const ReduceParams&);  // of an empty run
  void (*leaf)(void* state, int64_t width, const void* x, Run run, const ReduceParams&);  // overwrites
  // Adds `run.count` rows, `stride` bytes apart, to states that hold `done` rows.
  void (*rows)(void* state, int64_t width, const void* x, int64_t stride, int64_t columns, Run run, int64_t done,
               const ReduceParams&);
  void (*merge)(void* into, const void* from, int64_t width, int64_t columns, Run into_run, Run from_run,
                const ReduceParams&);
  // `count` elements were reduced `times` times each.
  void (*finish)(void* results, const void* state, int64_t width, int64_t columns, int64_t count, int64_t times,
                 const ReduceParams&);
  bool repeats;  // takes a `times` other than 1
  int64_t cost;  // of an element, in additions
};

/// Runs a reduction; out has extent 1 along the dimensions of p.dims.
void run_reducer(Context&, V out, V x, const Reducer& reducer, const ReduceParams& p);

// By operation; ValueError where there is none for the dtype.
Reducer sum_reducer(const ReduceParams&, DType in, DType out);  // reduce_sum.cpp: Sum, Mean, Prod, Var, Std
Reducer norm_reducer(const ReduceParams&, DType in);            // reduce_norm.cpp: NormP, LogSumExp
Reducer extreme_reducer(const ReduceParams&, DType in);  // reduce_minmax.cpp: Max, Min, NormP of infinite p, Any, All
Reducer arg_reducer(ArgReduceOp op, DType in);           // arg_reduce.cpp

/// A reducer from a struct with
///   using In, Cell, Out; static constexpr int kCells;
///   static void identity(Cell* s, p)                                    one state: kCells cells
///   static void leaf(Cell* s, const In* x, Run, p)
///   static void add(Cell* s, int64_t width, const In* x, int64_t columns, Run at, p)  row at.first; at.count were added before
///   static void join(Cell* a, const Cell* b, Run, Run, p)
///   static Out result(const Cell* s, int64_t count, p)
/// and, where whole rows are added otherwise than by one after the other, `rows` with the arguments of add_rows; and, where elements that
/// repeat (stride 0) need be read once only,
///   static void repeat(Cell* s, int64_t times)                              joins as many equal states
/// and, where an element costs more than an addition, static constexpr int64_t kCost.
template <class R> void add_rows(typename R::Cell* s, int64_t width, const char* x, int64_t stride, int64_t columns,
                                 Run run, int64_t done, const ReduceParams& p) {
  for (int64_t i = 0; i < run.count; ++i) {
    const auto* row = reinterpret_cast<const typename R::In*>(x + i * stride);
    R::add(s, width, row, columns, Run{run.first + i, done + i}, p);
  }
}
template <class R> Reducer make_reducer() {
  using In = typename R::In;
  using Cell = typename R::Cell;
  using Out = typename R::Out;
  static constexpr int n = R::kCells;
  Reducer r;
  r.cells = n, r.input = dtype_of<In>, r.result = dtype_of<Out>;
  r.init = [](void* state, int64_t width, const ReduceParams& p) {
    Cell cells[n];
    R::identity(cells, p);
    for (int c = 0; c < n; ++c)
      for (int64_t j = 0; j < width; ++j) static_cast<Cell*>(state)[c * width + j] = cells[c];
  };
  r.leaf = [](void* state, int64_t width, const void* x, Run run, const ReduceParams& p) {
    Cell cells[n];
    R::leaf(cells, static_cast<const In*>(x), run, p);
    for (int c = 0; c < n; ++c) static_cast<Cell*>(state)[c * width] = cells[c];
  };
  r.rows = [](void* state, int64_t width, const void* x, int64_t stride, int64_t columns, Run run, int64_t done,
              const ReduceParams& p) {
    auto* cells = static_cast<Cell*>(state);
    const auto* from = static_cast<const char*>(x);
    if constexpr (requires { R::rows; }) R::rows(cells, width, from, stride, columns, run, done, p);
    else add_rows<R>(cells, width, from, stride, columns, run, done, p);
  };
  r.merge = [](void* into, const void* from, int64_t width, int64_t columns, Run a, Run b, const ReduceParams& p) {
    Cell* s = static_cast<Cell*>(into);
    const Cell* t = static_cast<const Cell*>(from);
    for (int64_t j = 0; j < columns; ++j) {
      Cell x[n], y[n];
      for (int c = 0; c < n; ++c) x[c] = s[c * width + j], y[c] = t[c * width + j];
      R::join(x, y, a, b, p);
      for (int c = 0; c < n; ++c) s[c * width + j] = x[c];
    }
  };
  constexpr bool repeats = requires(Cell * s) { R::repeat(s, 1); };
  r.repeats = repeats, r.cost = 1;
  if constexpr (requires { R::kCost; }) r.cost = R::kCost;
  r.finish = [](void* results, const void* state, int64_t width, int64_t columns, int64_t count, int64_t times,
                const ReduceParams& p) {
    const Cell* s = static_cast<const Cell*>(state);
    for (int64_t j = 0; j < columns; ++j) {
      Cell cells[n];
      for (int c = 0; c < n; ++c) cells[c] = s[c * width + j];
      if constexpr (repeats)
        if (times != 1) R::repeat(cells, times);
      static_cast<Out*>(results)[j] = R::result(cells, count * times, p);
    }
  };
  return r;
}

}  // namespace tapir::inline v0::cpu
