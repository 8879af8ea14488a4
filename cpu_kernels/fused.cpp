#include "../core/fused.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../core/parallel.h"
#include "elementwise.h"
#include "kernels.h"
#include "philox.h"
#include "stream_store.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace tapir::inline v0::cpu {
namespace {

// Note [Fused tiles]
// The steps run one after the other over a tile, each by the loop of the eager kernel, so that every result is bit by bit that of the
// calls they stand for. Values live in slots of a buffer that stays in the first-level cache, and a slot is taken again once its value
// was read for the last time; what lies in memory without gaps is read there, and written there by the step that makes it.

constexpr int64_t kBufferBytes = 160 * 1024;
constexpr int64_t kShortRow = 512;  // elements: to gather several rows costs less than to run all steps for each

/// A view along the joint dimensions.
struct Operand {
  char* data = nullptr;
  int64_t size = 0;  // of an element
  Space space{1};
  bool flat = false, constant = true;
  bool stream = false;  // an output that is written past the caches
};

/// A step as it will run, and its value.
struct Value {
  LoopKernel kernel = nullptr;
  Converter convert = nullptr;
  int64_t size = 0;
  int slot = -1;
  int last = -1;          // the step that reads it for the last time
  int output = -1;        // computed right in that output's memory, where it lies without gaps
  bool fixed = false;     // a slot of its own: it is filled once, or once a row
  bool released = false;  // its slot may hold another one
  bool copied = false;    // an input that is stored elsewhere and overwritten itself
};

union Numbers {
  UnaryParams unary;
  BinaryParams binary;
  TernaryParams ternary;
  Numbers() {}
};

/// Elements that are made when they are needed: a call of few steps should not pay for many.
template <class T, int kMost> struct Few {
  T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
  const T& operator[](int i) const { return reinterpret_cast<const T*>(bytes)[i]; }
  void make(int n) {
    for (int i = 0; i < n; ++i) new (bytes + size_t(i) * sizeof(T)) T;
  }
  alignas(T) unsigned char bytes[kMost * sizeof(T)];
};

/// float32 to a 16-bit float and back, in one loop.
template <DType kHalf> void round_values(int64_t n, void* to, const void* from) {
  const float* x = static_cast<const float*>(from);
  float* out = static_cast<float*>(to);
  if constexpr (kHalf == kBFloat16) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = float(BFloat16(x[i]));
  } else {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
      const __m128i narrow = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(narrow));
    }
#endif
    for (; i < n; ++i) out[i] = float(Half(x[i]));
  }
}
/// Does `s` take back what `x`, a cast of `source`, narrowed?
bool is_rounding(const FusedStep& s, const FusedStep& x, const FusedStep& source) {
  return s.kind == FusedKind::Cast && s.type == kFloat32 && x.kind == FusedKind::Cast && source.type == kFloat32 &&
         (x.type == kBFloat16 || x.type == kFloat16);
}

class Fused {
 public:
  Fused(std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams& params);
  void run() const;

 private:
  struct Thread {
    alignas(64) char buffer[kBufferBytes];
    alignas(64) uint32_t words[kTile + 8];  // of Keep
    char* at[kFusedSteps];                  // where a value is
    const char* repeated[kFusedSteps];      // the element that fills its slot
  };
  void join_dimensions(std::span<const TensorView> outs, std::span<const TensorView> ins);
  void place_values();
  void cut(int64_t width);
  void choose_kernels();
  bool in_memory(const Operand& o) const { return o.flat || (tiles_->by_row && o.space.inner_stride(0) == o.size); }
  char* place(const Operand& o, int64_t flat) const {
    return o.data + (o.flat ? flat * o.size : o.space.offset(0, flat));
  }
  bool repeats(const Operand& o) const { return o.constant || (tiles_->by_row && o.space.inner_stride(0) == 0); }
  char* slot(int i, Thread& t) const { return t.buffer + values_[i].slot * slot_bytes_; }
  void fill(int i, const char* element, Thread& t) const;
  void load(int i, int64_t flat, int64_t n, Thread& t) const;
  void keep(int i, int64_t flat, int64_t n, Thread& t) const;
  void store(const FusedStep& s, int64_t flat, int64_t n, Thread& t) const;
  void run_tile(int64_t flat, int64_t n, Thread& t) const;

  int count_, outputs_;
  bool ordered_ = false;  // positions are asked for
  Few<Operand, kFusedOutputs + kFusedInputs> operands_;
  Few<FusedStep, kFusedSteps> steps_;
  Few<Value, kFusedSteps> values_;
  Few<Numbers, kFusedSteps> numbers_;
  int64_t cost_ = 0, slot_bytes_ = 0, filled_ = 0;
  std::optional<Tiles> tiles_;
};

Fused::Fused(std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams& params)
    : count_(int(params.count)), outputs_(int(outs.size())) {
  check_internal(count_ <= kFusedSteps && outs.size() <= kFusedOutputs && ins.size() <= kFusedInputs,
                 "[fused] expected at most {} steps, got {}", kFusedSteps, count_);
  operands_.make(outputs_ + int(ins.size())), values_.make(count_), numbers_.make(count_);
  steps_.make(count_);
  for (int i = 0; i < count_; ++i) {
    FusedStep& s = steps_[i] = params.steps[i];
    values_[i].size = size_of(s.type);
    if (const FusedStep& x = steps_[s.operand[0]]; is_rounding(s, x, steps_[x.operand[0]])) {
      s.operand[0] = x.operand[0];
      values_[i].convert = x.type == kBFloat16 ? round_values<kBFloat16> : round_values<kFloat16>;
    }
    ordered_ |= s.kind == FusedKind::Keep;
    for (int k = 0; k < s.arity(); ++k) values_[s.operand[k]].last = std::max(values_[s.operand[k]].last, i);
    if (s.kind == FusedKind::Keep) values_[s.operand[0]].last = std::max(values_[s.operand[0]].last, i);
    if (s.kind == FusedKind::Store) values_[s.operand[0]].last = count_;  // stores stand at a tile's end
  }
  join_dimensions(outs, ins);
  choose_kernels();
  place_values();
}

/// Dimensions in the order of memory, those merged that are one in every operand. See Space.
void Fused::join_dimensions(std::span<const TensorView> outs, std::span<const TensorView> ins) {
  const TensorView& first = outs[0];
  const int n = outputs_ + int(ins.size());
  for (int64_t d = 0; d < first.rank; ++d) {
    if (first.sizes[d] == 1) continue;
    for (int k = 0; k < n; ++k) {
      const TensorView& v = k < outputs_ ? outs[size_t(k)] : ins[size_t(k - outputs_)];
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
    const TensorView& v = k < outputs_ ? outs[size_t(k)] : ins[size_t(k - outputs_)];
    Operand& o = operands_[k];
    if (rank) o.space.rank = kept + 1;
    o.data = v.as<char>(), o.size = size_of(v.dtype);
    o.flat = o.space.is_flat(0, o.size);
    for (int64_t d = 0; d < o.space.rank; ++d) o.constant &= o.space.strides[0][d] == 0;
  }
}

void Fused::choose_kernels() {
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    const DType from = steps_[s.operand[0]].type;
    Choice choice;
    switch (s.kind) {
      case FusedKind::Cast:
        if (!values_[i].convert) values_[i].convert = converter(s.type, from);
        break;
      case FusedKind::Unary: choice = choice_for(numbers_[i].unary = s.unary(), from); break;
      case FusedKind::Binary: choice = choice_for(numbers_[i].binary = s.binary(), from); break;
      case FusedKind::Ternary: choice = choice_for(numbers_[i].ternary = s.ternary(), steps_[s.operand[1]].type); break;
      default: break;
    }
    values_[i].kernel = choice.kernel;
    cost_ += choice.cost;
  }
}

void Fused::cut(int64_t width) {
  const Space& space = operands_[0].space;
  Tiles& tiles = tiles_.emplace(space, width);
  if (!tiles.by_row || space.rank <= 1 || tiles.row >= kShortRow) return;
  tiles.by_row = false, tiles.row = 0, tiles.per_row = 0;
  tiles.count = (space.numel + width - 1) / width;
}

/// Which values are computed in an output's memory, and the slots of the others.
void Fused::place_values() {
  int64_t widest = 1;
  for (int i = 0; i < count_; ++i) widest = std::max(widest, values_[i].size);
  cut(kTile);  // for by_row: the width follows below
  int64_t free[kFusedSteps], free_count = 0;
  int slots = 0;
  const auto take = [&] { return free_count ? int(free[--free_count]) : slots++; };
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    if (s.kind != FusedKind::Store) continue;
    Operand& out = operands_[s.operand[1]];
    bool is_input = false;
    int read = -1;  // the last step that looks at an input that is this output
    for (int j = 0; j < count_; ++j) {
      if (steps_[j].kind != FusedKind::Load) continue;
      const bool same = operands_[outputs_ + steps_[j].operand[0]].data == out.data;
      is_input |= same;
      values_[j].copied |= same && values_[j].last == count_;
      if (same) read = std::max(read, values_[j].last);
    }
    out.stream = !is_input && out.flat && operands_[0].space.numel * out.size >= kStreamBytes;
    Value& v = values_[s.operand[0]];
    const FusedKind made = steps_[s.operand[0]].kind;
    const bool computed = made != FusedKind::Load && made != FusedKind::Number;
    if (computed && v.output < 0 && in_memory(out) && !out.stream && read <= s.operand[0]) v.output = s.operand[1];
  }
  for (int i = 0; i < count_; ++i) {  // values that stay, first
    const FusedStep& s = steps_[i];
    values_[i].fixed =
        s.kind == FusedKind::Number || (s.kind == FusedKind::Load && repeats(operands_[outputs_ + s.operand[0]]));
    if (values_[i].fixed) values_[i].slot = slots++;
  }
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    Value& v = values_[i];
    const auto release = [&](bool same_size) {
      for (int k = 0; k < s.arity(); ++k) {
        Value& x = values_[s.operand[k]];
        if (x.last != i || x.fixed || x.slot < 0 || x.released || (x.size == v.size) != same_size) continue;
        x.released = true, free[free_count++] = x.slot;
      }
    };
    if (s.kind != FusedKind::Store) {
      release(true);  // a loop may write what it reads, where the elements are as large
      const bool loads = s.kind == FusedKind::Load;
      const bool stays = loads && !v.copied && in_memory(operands_[outputs_ + s.operand[0]]);
      if (!v.fixed && v.output < 0 && !stays && v.last >= 0) v.slot = take();
    }
    release(false), release(true);
  }
  const int64_t width = std::min(kTile, kBufferBytes / (std::max(slots, 1) * widest) / 64 * 64);
  cut(width);
  slot_bytes_ = width * widest;
  filled_ = std::min(width, tiles_->by_row ? tiles_->row : operands_[0].space.numel);
}

void Fused::fill(int i, const char* element, Thread& t) const {
  Space one(1);
  const int64_t zero = 0;
  one.add(filled_, &zero);
  gather(one, 0, element, 0, filled_, values_[i].size, slot(i, t));
  t.at[i] = slot(i, t), t.repeated[i] = element;
}

void Fused::load(int i, int64_t flat, int64_t n, Thread& t) const {
  const Operand& o = operands_[outputs_ + steps_[i].operand[0]];
  if (values_[i].fixed) {
    const char* element = o.constant ? o.data : place(o, flat);
    if (t.repeated[i] != element) fill(i, element, t);
  } else if (in_memory(o) && !values_[i].copied) {
    t.at[i] = place(o, flat);
  } else {
    t.at[i] = slot(i, t);
    gather(o.space, 0, o.data, flat, n, o.size, t.at[i]);
  }
}

/// The mask of dropout, as dropout.cpp draws it.
void Fused::keep(int i, int64_t flat, int64_t n, Thread& t) const {
  const FusedStep& s = steps_[i];
  uint64_t offset = uint64_t(s.numbers[2].to_int());
  if (s.operand[0] != i) offset += uint64_t(*reinterpret_cast<const int64_t*>(t.at[s.operand[0]]));
  const auto limit = uint32_t(std::ceil(s.numbers[0].to_double() * 0x1p24));
  const int64_t skip = flat % 4;
  words_of(uint64_t(s.numbers[1].to_int()), offset, flat - skip, n + skip, 0, t.words);
  bool* to = reinterpret_cast<bool*>(t.at[i]);
  for (int64_t k = 0; k < n; ++k) to[k] = t.words[k + skip] >> 8 >= limit;
}

void Fused::store(const FusedStep& s, int64_t flat, int64_t n, Thread& t) const {
  const Operand& out = operands_[s.operand[1]];
  const char* from = t.at[s.operand[0]];
  if (out.stream) stream_copy(place(out, flat), from, n * out.size);
  else if (!in_memory(out)) scatter(out.space, 0, out.data, flat, n, out.size, from);
  else if (char* to = place(out, flat); to != from) std::memcpy(to, from, size_t(n * out.size));
}

void Fused::run_tile(int64_t flat, int64_t n, Thread& t) const {
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    if (values_[i].last < 0) continue;  // nobody reads it, or it is a store
    if (s.kind == FusedKind::Load) {
      load(i, flat, n, t);
      continue;
    }
    if (s.kind == FusedKind::Number) continue;
    t.at[i] = values_[i].output >= 0 ? place(operands_[values_[i].output], flat) : slot(i, t);
    void* data[] = {t.at[i], t.at[s.operand[0]], t.at[s.operand[1]], t.at[s.operand[2]]};
    if (values_[i].kernel) values_[i].kernel(n, data, &numbers_[i]);
    else if (values_[i].convert) values_[i].convert(n, data[0], data[1]);
    else keep(i, flat, n, t);
  }
  for (int i = 0; i < count_; ++i)
    if (steps_[i].kind == FusedKind::Store) store(steps_[i], flat, n, t);
}

void Fused::run() const {
  const Tiles& tiles = *tiles_;
  parallel_for(tiles.count, tiles.grain(kGrain / std::max<int64_t>(cost_, 1)), [&](int64_t first, int64_t last) {
    Thread t;
    for (int i = 0; i < count_; ++i) {
      t.at[i] = nullptr, t.repeated[i] = nullptr;
      alignas(8) char element[kMaxElementSize];
      const FusedStep& s = steps_[i];
      if (s.kind != FusedKind::Number) continue;
      store_scalar(element, s.type, s.numbers[0]);
      fill(i, element, t);
    }
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t flat = tiles.begin(tile);
      const int64_t end = tiles.by_row ? flat - flat % tiles.row + tiles.row : operands_[0].space.numel;
      run_tile(flat, std::min(tiles.width, end - flat), t);
    }
    end_stream();
  });
}

}  // namespace

void fused(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams& params) {
  check_internal(params.row_dims == 0, "[fused] expected no rows, got {} dimensions of one", params.row_dims);
  if (outs.empty() || outs[0].numel() == 0) return;
  Fused(outs, ins, params).run();
}

}  // namespace tapir::inline v0::cpu
