#include "fused_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "../../core/parallel.h"
#include "../kernels.h"
#include "../stream_store.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kRowsWidth = 2048;  // elements of a tile, where a row is shorter
constexpr int64_t kRowsGrain = 16384;

/// A dimension more, merged with the one before it where both are one in memory.
void add_merged(Space& s, int64_t size, int64_t stride) {
  if (size != 1 && s.rank && s.strides[0][s.rank - 1] == stride * size) {
    s.numel *= size;
    s.sizes[s.rank - 1] *= size, s.strides[0][s.rank - 1] = stride;
  } else {
    s.add(size, &stride);
  }
}
bool repeats(const Space& s) {
  for (int64_t d = 0; d < s.rank; ++d)
    if (s.strides[0][d] != 0) return false;
  return true;
}

/// Of partial results side by side, so that the compiler has vectors to work on.
template <int64_t parts, class T, class F> T fold(const T* x, int64_t n, T start, F f) {
  T part[parts];
  std::fill_n(part, parts, start);
  int64_t i = 0;
  for (; i + parts <= n; i += parts)
#pragma omp simd
    for (int64_t j = 0; j < parts; ++j) part[j] = f(part[j], x[i + j]);
  for (int64_t j = 0; i + j < n; ++j) part[j] = f(part[j], x[i + j]);
  int64_t half = parts / 2;
  while (half >= n) half /= 2;
  for (; half; half /= 2)
    for (int64_t j = 0; j < half; ++j) part[j] = f(part[j], part[j + half]);
  return part[0];
}
template <class T> void reduce_rows(ReduceOp op, const T* x, int64_t rows, int64_t row, T* to) {
  using Limits = std::numeric_limits<T>;
  constexpr T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const auto run = [&](T start, auto f) {
    constexpr int64_t wide = 256 / sizeof(T), narrow = 64 / sizeof(T);
    for (int64_t i = 0; i < rows; ++i, x += row)
      to[i] = row < wide ? fold<narrow>(x, row, start, f) : fold<wide>(x, row, start, f);
  };
  if (op == ReduceOp::Sum) run(T(0), [](T a, T b) { return a + b; });
  else run(least, [](T a, T b) { return b > a || b != b ? b : a; });
}

}  // namespace

FusedRows::FusedRows(const entry::Fused& c) : FusedCall(c) {
  const TensorView& first = c.outs[0];
  const int64_t row_dims = c.params->row_dims;
  for (int64_t d = 0; d < first.rank; ++d) (d < first.rank - row_dims ? rows_ : row_) *= first.sizes[d];
  step_ = std::clamp<int64_t>(kRowsWidth / row_, 1, rows_);
  lies_.make(outputs_ + inputs_), places_.make(count_);
  for (int k = 0; k < outputs_ + inputs_; ++k)
    lay(k, k < outputs_ ? c.outs[size_t(k)] : c.ins[size_t(k - outputs_)], first, row_dims);
  for (int i = 0; i < count_; ++i) places_[i].extent = extent_of(i);
  place_outputs();
  place_values();
  if (row_ % kBlock == 0) plan_registers(1);
  for (int k = 0; k < planned_; ++k)
    if (plans_[k].output >= 0) streamed_[plans_[k].output] = true;
}

bool FusedRows::is_ready(int i) const {
  const FusedKind kind = steps_[i].kind;
  if (kind != FusedKind::Store && values_[i].last < 0) return true;  // nobody asks for it
  if (kind == FusedKind::Number || kind == FusedKind::Keep) return true;
  return kind == FusedKind::Load && (places_[i].kept || in_place(i));
}

bool FusedRows::streams(const FusedOperand& out) const {
  return out.stream && reinterpret_cast<uintptr_t>(out.data) % 64 == 0;
}

/// Will step i, if it computes elements, take a row's number as one?
bool FusedRows::in_registers(int i) const { return row_ % kBlock == 0 && has_block(i); }

void FusedRows::lay(int k, const TensorView& v, const TensorView& first, int64_t row_dims) {
  FusedOperand& o = operands_[k];
  Lie& lie = lies_[k];
  Space inner(1);
  for (int64_t d = 0; d < first.rank; ++d) {
    const int64_t from = d - (first.rank - v.rank);
    const int64_t stride = from < 0 || v.sizes[from] == 1 ? 0 : v.strides[from] * o.size;
    add_merged(o.space, first.sizes[d], stride);
    add_merged(d < first.rank - row_dims ? lie.rows : inner, first.sizes[d], stride);
  }
  o.flat = o.space.is_flat(0, o.size), o.constant = repeats(o.space);
  lie.dense = inner.is_flat(0, o.size), lie.of_rows = row_ > 1 && repeats(inner), lie.every_row = repeats(lie.rows);
}

FusedRows::Extent FusedRows::extent_of(int i) const {
  const FusedStep& s = steps_[i];
  switch (s.kind) {
    case FusedKind::Number: return Extent::One;
    case FusedKind::Keep: return Extent::Full;
    case FusedKind::Reduce: return Extent::Row;
    case FusedKind::Load: {
      const int k = outputs_ + s.operand[0];
      return operands_[k].constant ? Extent::One : lies_[k].of_rows ? Extent::Row : Extent::Full;
    }
    default: break;
  }
  Extent widest = Extent::One;
  for (int k = 0; k < s.arity(); ++k) widest = std::max(widest, places_[s.operand[k]].extent);
  return widest;
}

/// Values that are computed in an output's memory, and inputs that are overwritten and stored elsewhere.
void FusedRows::place_outputs() {
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    if (s.kind != FusedKind::Store) continue;
    FusedOperand& out = operands_[s.operand[1]];
    FusedValue& v = values_[s.operand[0]];
    bool is_input = false;
    for (int j = 0; j < count_; ++j) {
      if (steps_[j].kind != FusedKind::Load || input_of(j).data != out.data) continue;
      is_input = true;
      values_[j].copied |= values_[j].last == count_;
    }
    out.stream = !is_input && out.flat && past_caches(operands_[0].space.numel * out.size);
    const bool direct = out.flat && !is_input && !out.stream && v.output < 0 && computes(s.operand[0]) &&
                        steps_[s.operand[0]].kind != FusedKind::Keep && places_[s.operand[0]].extent == Extent::Full;
    if (direct) v.output = s.operand[1];
  }
}

/// Is a tile of that input read where it lies?
bool FusedRows::in_place(int i) const {
  const Lie& lie = lies_[outputs_ + steps_[i].operand[0]];
  return places_[i].extent == Extent::Full && !values_[i].copied && (input_of(i).flat || (step_ == 1 && lie.dense));
}

void FusedRows::place_values() {
  int64_t widest = 1;
  int free[2 * kFusedSteps], free_count = 0;
  const auto take = [&] { return free_count ? free[--free_count] : slots_++; };
  for (int i = 0; i < count_; ++i) {
    widest = std::max(widest, values_[i].size);
    const bool of_input = steps_[i].kind == FusedKind::Load && places_[i].extent == Extent::Full;
    if (steps_[i].kind == FusedKind::Store || values_[i].last < 0) continue;
    places_[i].kept = places_[i].extent == Extent::One || steps_[i].kind == FusedKind::Keep ||
                      (of_input && !in_place(i) && lies_[outputs_ + steps_[i].operand[0]].every_row);
    if (places_[i].kept) places_[i].slot = slots_++;
  }
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    Place& p = places_[i];
    const bool full = (p.extent == Extent::Full && !in_registers(i)) || s.kind == FusedKind::Reduce;
    for (int k = 0; full && k < s.arity() && computes(i); ++k)
      if (Place& x = places_[s.operand[k]]; x.extent == Extent::Row && x.wide < 0) x.wide = -2;  // wanted
    if (s.kind == FusedKind::Store && row_ > 1 && places_[s.operand[0]].extent == Extent::Row &&
        !lies_[s.operand[1]].of_rows && places_[s.operand[0]].wide < 0)
      places_[s.operand[0]].wide = -2;
  }
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    Place& p = places_[i];
    if (s.kind == FusedKind::Store || values_[i].last < 0) continue;
    const bool there = p.kept || values_[i].output >= 0 || (s.kind == FusedKind::Load && in_place(i));
    if (!there) p.slot = p.extent == Extent::Row ? of_rows_++ : take();
    if (p.wide == -2) p.wide = take();
    for (int k = 0; k < s.arity(); ++k) {
      Place& x = places_[s.operand[k]];
      FusedValue& v = values_[s.operand[k]];
      if (v.last != i || v.released || x.kept || !frees(i, s.operand[k])) continue;
      v.released = true;
      if (x.slot >= 0 && x.extent == Extent::Full) free[free_count++] = x.slot;
      if (x.wide >= 0) free[free_count++] = x.wide;
    }
  }
  slot_bytes_ = (step_ * row_ * widest + 63) / 64 * 64 + kSlotEnd;
}

/// Where value i goes.
char* FusedRows::target(int i, int64_t row, const Thread& t) const {
  if (const int out = values_[i].output; out >= 0) return operands_[out].data + row * row_ * values_[i].size;
  const Place& p = places_[i];
  return p.extent == Extent::Row ? slot(slots_, t) + p.slot * row_bytes() : slot(p.slot, t);
}

/// The steps from `first` on that are done in registers.
void FusedRows::run_in_registers(int first, int64_t row, int64_t rows, Thread& t) const {
  const int last = values_[first].block_last, begin = values_[first].block_first;
  int64_t steps = 0;
  for (int i = first; i <= last; ++i) {
    if (values_[i].last < 0) continue;
    if (steps_[i].kind == FusedKind::Load) load(i, row, rows, t);
    else if (computes(i)) t.at[i] = target(i, row, t), ++steps;
    if (steps_[i].kind == FusedKind::Keep) keep(i, row * row_, rows * row_, t.at);
  }
  int end = begin;
  for (; plans_[end].run != block_end(); ++end) {
    const BlockPlan& plan = plans_[end];
    t.blocks[end] = {plan.run, nullptr, plan.number, plan.limit, nullptr};
    if (plan.value >= 0) t.blocks[end].memory = reinterpret_cast<float*>(t.at[plan.value]);
    if (plan.output >= 0) t.blocks[end].memory = reinterpret_cast<float*>(operands_[plan.output].data) + row * row_;
    if (plan.sums >= 0) t.blocks[end].memory = t.partial + plan.sums * kLanes<float>;
    if (plan.mask >= 0) t.blocks[end].mask = t.at[plan.mask];
  }
  t.blocks[end].run = block_end();
  for (int64_t r = 0; r < rows; ++r) {
    for (int at = begin; at < end; ++at) {
      const BlockPlan& plan = plans_[at];
      if (plan.row >= 0) t.blocks[at].number = reinterpret_cast<const float*>(t.at[plan.row])[r];
      if (plan.sums >= 0) std::fill_n(t.blocks[at].memory, kLanes<float>, block_start(ReduceOp(steps_[plan.sums].op)));
    }
    run_blocks(t.blocks + begin, row_, t.fetcher, kBlock * steps / computing_ + 1);
    for (int at = begin; at < end; ++at) {
      const BlockPlan& plan = plans_[at];
      if (plan.mask >= 0) t.blocks[at].mask += row_ * values_[plan.mask].size;
      if (plan.sums < 0) t.blocks[at].memory += row_;
      else
        reduce_rows(ReduceOp(steps_[plan.sums].op), t.blocks[at].memory, 1, kLanes<float>,
                    reinterpret_cast<float*>(t.at[plan.sums]) + r);
    }
  }
  for (int i = first; i <= last; ++i)
    if (computes(i)) widen(i, rows, t);
}

/// What is the same for all tiles.
void FusedRows::fill(int i, Thread& t) const {
  char* const to = t.at[i] = slot(places_[i].slot, t);
  alignas(8) char element[kMaxElementSize];
  const FusedStep& s = steps_[i];
  if (s.kind == FusedKind::Load && places_[i].extent == Extent::Full) {
    gather(input_of(i).space, 0, input_of(i).data, 0, step_ * row_, values_[i].size, to);
    return;
  }
  if (computes(i)) return;
  if (s.kind == FusedKind::Number) store_scalar(element, s.type, s.numbers[0]);
  else std::memcpy(element, input_of(i).data, size_t(values_[i].size));
  Space one(1);
  const int64_t none = 0;
  one.add(step_ * row_, &none);
  gather(one, 0, element, 0, step_ * row_, values_[i].size, to);
}

void FusedRows::load(int i, int64_t row, int64_t rows, Thread& t) const {
  const FusedOperand& o = input_of(i);
  const Lie& lie = lies_[outputs_ + steps_[i].operand[0]];
  if (places_[i].kept) return;
  if (places_[i].extent == Extent::Row) {
    t.at[i] = target(i, row, t);
    gather(lie.rows, 0, o.data, row, rows, o.size, t.at[i]);
    widen(i, rows, t);
  } else if (in_place(i)) {
    t.at[i] = o.data + (o.flat ? row * row_ * o.size : lie.rows.offset(0, row));
  } else {
    t.at[i] = slot(places_[i].slot, t);
    gather(o.space, 0, o.data, row * row_, rows * row_, o.size, t.at[i]);
  }
}

void FusedRows::widen(int i, int64_t rows, Thread& t) const {
  if (places_[i].wide < 0) return;
  const int64_t size = values_[i].size, strides[] = {size, 0};
  Space space(1);
  space.sizes[0] = rows, space.sizes[1] = row_, space.strides[0][0] = strides[0], space.strides[0][1] = strides[1];
  space.rank = 2, space.numel = rows * row_;
  gather(space, 0, t.at[i], 0, rows * row_, size, slot(places_[i].wide, t));
}

void FusedRows::reduce(int i, int64_t rows, Thread& t) const {
  const FusedStep& s = steps_[i];
  const auto op = ReduceOp(s.op);
  check_internal(op == ReduceOp::Sum || op == ReduceOp::Max, "[fused] expected a sum or a maximum of rows, got {}",
                 int64_t(op));
  const auto run = [&]<class T>(T) {
    reduce_rows<T>(op, reinterpret_cast<const T*>(elements(s.operand[0], t)), rows, row_,
                   reinterpret_cast<T*>(t.at[i]));
  };
  switch (s.type) {
    case kFloat32: return run(float());
    case kFloat64: return run(double());
    case kInt64: return run(int64_t());
    case kInt32: return run(int32_t());
    default: check_internal(false, "[fused] expected rows of numbers, got {}", name_of(s.type));
  }
}

void FusedRows::compute(int i, int64_t row, int64_t rows, Thread& t) const {
  const FusedStep& s = steps_[i];
  const bool full = places_[i].extent == Extent::Full;
  t.at[i] = target(i, row, t);
  if (s.kind == FusedKind::Reduce) {
    reduce(i, rows, t);
  } else if (s.kind == FusedKind::Keep) {
    keep(i, row * row_, rows * row_, t.at);
  } else {
    char* at[kFusedSteps];
    at[i] = t.at[i];
    for (int k = 0; k < s.arity(); ++k) at[s.operand[k]] = full ? elements(s.operand[k], t) : t.at[s.operand[k]];
    run_step(i, 0, places_[i].extent == Extent::Row ? rows : rows * row_, at);
  }
  if (!full) widen(i, rows, t);
}

void FusedRows::store(const FusedStep& s, int64_t row, int64_t rows, const Thread& t) const {
  const FusedOperand& out = operands_[s.operand[1]];
  const Lie& lie = lies_[s.operand[1]];
  if (lie.of_rows) return scatter(lie.rows, 0, out.data, row, rows, out.size, t.at[s.operand[0]]);
  const char* from = elements(s.operand[0], t);
  const int64_t n = rows * row_;
  char* const to = out.data + row * row_ * out.size;
  if (!out.flat) scatter(out.space, 0, out.data, row * row_, n, out.size, from);
  else if (out.stream) stream_copy(to, from, n * out.size);
  else if (to != from) std::memcpy(to, from, size_t(n * out.size));
}

/// The inputs of the tile that begins there, where they lie in one piece.
void FusedRows::fetch(int64_t row, Fetcher& fetcher) const {
  fetcher.clear();
  const int64_t n = is_large() ? std::min(step_, rows_ - row) * row_ : 0;
  for (int i = 0; i < count_ && n > 0; ++i)
    if (steps_[i].kind == FusedKind::Load && values_[i].last >= 0 && input_of(i).flat)
      fetcher.add(input_of(i).data + row * row_ * values_[i].size, n, values_[i].size);
}

void FusedRows::run_tile(int64_t row, int64_t rows, Thread& t) const {
  for (int i = 0; i < count_; ++i) {
    if (values_[i].last < 0 || steps_[i].kind == FusedKind::Number) continue;  // nobody reads it, or it is a store
    if (steps_[i].kind == FusedKind::Load) load(i, row, rows, t);
    else if (values_[i].block_first < 0) compute(i, row, rows, t), t.fetcher.move(rows * row_ / computing_ + 1);
    else run_in_registers(i, row, rows, t), i = values_[i].block_last;
  }
  for (int i = 0; i < count_; ++i)
    if (steps_[i].kind == FusedKind::Store && !streamed_[steps_[i].operand[1]]) store(steps_[i], row, rows, t);
}

void FusedRows::run(Context& context) const {
  const int64_t tiles = (rows_ + step_ - 1) / step_;
  const int64_t grain = std::max<int64_t>(1, kRowsGrain / std::max<int64_t>(cost_, 1) / (step_ * row_));
  const int64_t pieces = std::min<int64_t>((tiles + grain - 1) / grain, threads_here());
  const int64_t values = slots_ * slot_bytes_ + of_rows_ * row_bytes(), partial = planned_ ? count_ * kVectorBytes : 0;
  const int64_t bytes = values + partial;
  char* const buffers = context.scratch_of<char>(std::max<int64_t>(bytes, 1) * pieces);
  parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      Thread t;
      std::fill_n(t.at, count_, nullptr);
      t.buffer = buffers + bytes * piece, t.partial = reinterpret_cast<float*>(t.buffer + values);
      for (int i = 0; i < count_; ++i)
        if (places_[i].kept) fill(i, t);
      for (int64_t tile = tiles * piece / pieces; tile < tiles * (piece + 1) / pieces; ++tile)
        fetch((tile + 1) * step_, t.fetcher), run_tile(tile * step_, std::min(step_, rows_ - tile * step_), t);
    }
    end_stream();
  });
}

}  // namespace tapir::inline v0::cpu
