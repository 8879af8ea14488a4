#include <algorithm>
#include <cstring>

#include "../../core/parallel.h"
#include "../kernels.h"
#include "../stream_store.h"
#include "fused_rows.h"
#include "fused_tiles.h"

namespace tapir::inline v0::cpu {

FusedTiles::FusedTiles(const entry::Fused& c) : FusedCall(c) {
  join_dimensions(c);
  place_values();
  plan_registers(2);
}

/// Dimensions in the order of memory, those merged that are one in every operand. See Space.
void FusedTiles::join_dimensions(const entry::Fused& c) {
  const TensorView& first = c.outs[0];
  const int n = outputs_ + inputs_;
  for (int64_t d = 0; d < first.rank; ++d) {
    if (first.sizes[d] == 1) continue;
    for (int k = 0; k < n; ++k) {
      const TensorView& v = k < outputs_ ? c.outs[size_t(k)] : c.ins[size_t(k - outputs_)];
      const int64_t from = d - (first.rank - v.rank);
      const int64_t stride = from < 0 || v.sizes[from] == 1 ? 0 : v.strides[from] * size_of(v.dtype);
      operands_[k].space.add(first.sizes[d], &stride);
    }
  }
  Space& lead = operands_[0].space;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v > 0 ? v : INT64_MAX; };
  const auto before = [&](int64_t i, int64_t j) {  // dimension j belongs outside of i
    for (int k = 0; k < n; ++k) {
      const int64_t a = magnitude(operands_[k].space.strides[0][i]), b = magnitude(operands_[k].space.strides[0][j]);
      if (a != b) return a < b;
    }
    return false;
  };
  if (!ordered_)
    for (int64_t i = 1; i < lead.rank; ++i)
      for (int64_t j = i; j > 0 && before(j - 1, j); --j)
        for (int k = 0; k < n; ++k) {
          Space& s = operands_[k].space;
          std::swap(s.sizes[j - 1], s.sizes[j]), std::swap(s.strides[0][j - 1], s.strides[0][j]);
        }
  int64_t kept = 0;
  const int64_t rank = lead.rank;
  for (int64_t i = 1; i < rank; ++i) {
    bool one = true;
    for (int k = 0; k < n; ++k) {
      const Space& s = operands_[k].space;
      one &= s.strides[0][kept] == s.strides[0][i] * s.sizes[i];
    }
    kept += !one;
    for (int k = 0; k < n; ++k) {
      Space& s = operands_[k].space;
      s.sizes[kept] = one ? s.sizes[kept] * s.sizes[i] : s.sizes[i];
      s.strides[0][kept] = s.strides[0][i];
    }
  }
  for (int k = 0; k < n; ++k) {
    FusedOperand& o = operands_[k];
    if (rank) o.space.rank = kept + 1;
    o.flat = o.space.is_flat(0, o.size);
    for (int64_t d = 0; d < o.space.rank; ++d) o.constant &= o.space.strides[0][d] == 0;
  }
}

void FusedTiles::cut(int64_t width) {
  const Space& space = operands_[0].space;
  Tiles& tiles = tiles_.emplace(space, width);
  if (!tiles.by_row || space.rank <= 1 || tiles.row >= kShortRow) return;
  tiles.by_row = false, tiles.row = 0, tiles.per_row = 0;
  tiles.count = (space.numel + width - 1) / width;
}

/// Which values are computed in an output's memory, and the slots of the others.
void FusedTiles::place_values() {
  int64_t widest = 1;
  for (int i = 0; i < count_; ++i) widest = std::max(widest, values_[i].size);
  cut(kWidth);  // for by_row: the width follows below
  int64_t free[kFusedSteps], free_count = 0;
  int slots = 0;
  const auto take = [&] { return free_count ? int(free[--free_count]) : slots++; };
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    if (s.kind != FusedKind::Store) continue;
    FusedOperand& out = operands_[s.operand[1]];
    bool is_input = false;
    int read = -1;  // the last step that looks at an input that is this output
    for (int j = 0; j < count_; ++j) {
      if (steps_[j].kind != FusedKind::Load) continue;
      const bool same = input_of(j).data == out.data;
      is_input |= same;
      values_[j].copied |= same && values_[j].last == count_;
      if (same) read = std::max(read, values_[j].last);
    }
    out.stream = !is_input && out.flat && past_caches(operands_[0].space.numel * out.size);
    FusedValue& v = values_[s.operand[0]];
    const FusedKind made = steps_[s.operand[0]].kind;
    const bool computed = made != FusedKind::Load && made != FusedKind::Number && made != FusedKind::Keep;
    if (computed && v.output < 0 && in_memory(out) && !out.stream && read <= s.operand[0]) v.output = s.operand[1];
  }
  for (int i = 0; i < count_; ++i) {  // values that stay, first
    const FusedStep& s = steps_[i];
    values_[i].fixed =
        s.kind == FusedKind::Number || s.kind == FusedKind::Keep || (s.kind == FusedKind::Load && repeats(input_of(i)));
    if (values_[i].fixed) values_[i].slot = slots++;
  }
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    FusedValue& v = values_[i];
    const auto release = [&](bool same_size) {
      for (int k = 0; k < s.arity(); ++k) {
        FusedValue& x = values_[s.operand[k]];
        if (x.last != i || x.fixed || x.slot < 0 || x.released || (x.size == v.size) != same_size ||
            !frees(i, s.operand[k]))
          continue;
        x.released = true, free[free_count++] = x.slot;
      }
    };
    if (s.kind != FusedKind::Store) {
      release(true);  // a loop may write what it reads, where the elements are as large
      const bool loads = s.kind == FusedKind::Load;
      const bool stays = loads && !v.copied && in_memory(input_of(i));
      if (!v.fixed && v.output < 0 && !stays && v.last >= 0) v.slot = take();
    }
    release(false), release(true);
  }
  // Numbers as arrays, too, have to fit into the first-level cache.
  const int64_t most = widest > 4 ? kWidth / 4 : kWidth;
  const int64_t width = std::min(most, kBufferBytes / (std::max(slots, 1) * widest) / 64 * 64);
  cut(width);
  slot_bytes_ = width * widest + kSlotEnd;
  filled_ = std::min(width, tiles_->by_row ? tiles_->row : operands_[0].space.numel);
}

/// What repeats one element, as an array: steps in registers need none.
void FusedTiles::fill_array(int i, Thread& t) const {
  if (t.at[i] || !values_[i].fixed || steps_[i].kind == FusedKind::Keep) return;
  alignas(8) char element[kMaxElementSize];
  if (steps_[i].kind == FusedKind::Number) store_scalar(element, steps_[i].type, steps_[i].numbers[0]);
  else std::memcpy(element, t.repeated[i], size_t(values_[i].size));
  Space one(1);
  const int64_t zero = 0;
  one.add(filled_, &zero);
  gather(one, 0, element, 0, filled_, values_[i].size, t.at[i] = slot(i, t));
}
void FusedTiles::fill_arrays(const FusedStep& s, Thread& t) const {
  for (int k = 0; k < s.arity(); ++k) fill_array(s.operand[k], t);
}

void FusedTiles::load(int i, int64_t flat, int64_t n, Thread& t) const {
  const FusedOperand& o = input_of(i);
  if (values_[i].fixed) {
    const char* element = o.constant ? o.data : place(o, flat);
    if (t.repeated[i] != element) t.repeated[i] = element, t.at[i] = nullptr;
    if (values_[i].copied) fill_array(i, t);
  } else if (in_memory(o) && !values_[i].copied) {
    t.at[i] = place(o, flat);
  } else {
    t.at[i] = slot(i, t);
    gather(o.space, 0, o.data, flat, n, o.size, t.at[i]);
  }
}

void FusedTiles::store(const FusedStep& s, int64_t flat, int64_t n, Thread& t) const {
  const FusedOperand& out = operands_[s.operand[1]];
  const char* from = t.at[s.operand[0]];
  const int64_t done = t.streamed[s.operand[1]];
  if (out.stream) stream_copy(place(out, flat + done), from + done * out.size, (n - done) * out.size);
  else if (!in_memory(out)) scatter(out.space, 0, out.data, flat, n, out.size, from);
  else if (char* to = place(out, flat); to != from) std::memcpy(to, from, size_t(n * out.size));
}

/// The inputs of a tile that lie in one piece.
void FusedTiles::fetch(int64_t flat, int64_t n, Fetcher& fetcher) const {
  fetcher.clear();
  for (int i = 0; i < count_; ++i) {
    if (steps_[i].kind != FusedKind::Load || values_[i].last < 0) continue;
    const FusedOperand& o = input_of(i);
    if (o.flat) fetcher.add(o.data + flat * o.size, n, o.size);
  }
}

void FusedTiles::run_tile(int64_t flat, int64_t n, Thread& t) const {
  for (int k = 0; k < outputs_; ++k) t.streamed[k] = 0;
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    if (values_[i].last < 0) continue;  // nobody reads it, or it is a store
    if (s.kind == FusedKind::Load) {
      load(i, flat, n, t);
    } else if (values_[i].block_first >= 0) {
      run_in_registers(i, flat, n, t);
      i = values_[i].block_last;
    } else if (s.kind != FusedKind::Number) {
      t.at[i] = values_[i].output >= 0 ? place(operands_[values_[i].output], flat) : slot(i, t);
      if (s.kind == FusedKind::Keep) fill_array(s.operand[0], t), keep(i, flat, n, t.at);
      else fill_arrays(s, t), run_step(i, 0, n, t.at);
      t.fetcher.move(n / computing_);
    }
  }
  for (int i = 0; i < count_; ++i)
    if (steps_[i].kind == FusedKind::Store) fill_arrays(steps_[i], t), store(steps_[i], flat, n, t);
}

void FusedTiles::run() const {
  const Tiles& tiles = *tiles_;
  parallel_for(tiles.count, tiles.grain(kGrain / std::max<int64_t>(cost_, 1)), [&](int64_t first, int64_t last) {
    Thread t;
    for (int i = 0; i < count_; ++i) t.at[i] = nullptr, t.repeated[i] = nullptr;
    const auto size = [&](int64_t flat) {
      const int64_t end = tiles.by_row ? flat - flat % tiles.row + tiles.row : operands_[0].space.numel;
      return std::min(tiles.width, end - flat);
    };
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t flat = tiles.begin(tile), next = tiles.begin(tile + 1);
      if (tile + 1 < last && is_large()) fetch(next, size(next), t.fetcher);
      run_tile(flat, size(flat), t);
    }
    end_stream();
  });
}

void fused(Context& ctx, const entry::Fused& c) {
  if (c.outs.empty() || c.outs[0].numel() == 0) return;
  if (c.params->row_dims) FusedRows(c).run(ctx);
  else FusedTiles(c).run();
}

}  // namespace tapir::inline v0::cpu
