#include <algorithm>

#include "../../core/parallel.h"
#include "../kernels.h"
#include "reduction.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kLeaf = 4096;          // elements of a run that `leaf` takes at once
constexpr int64_t kLeavesPerChunk = 16;  // a chunk is what one thread does of one output
constexpr int64_t kColumns = 512;        // outputs side by side
constexpr int64_t kRowsPerChunk = 256;
constexpr int64_t kOutputs = 256;     // results that are converted and stored together
constexpr int64_t kFewElements = 16;  // fewer for each output: outputs side by side, whatever the strides

/// One reduction: the dimensions that stay (operands x, out) and those that go (x).
class Reduction {
 public:
  Reduction(Context& ctx, V out, V x, const Reducer& reducer, const ReduceParams& p);
  void run();

 private:
  struct Buffers {
    alignas(64) char tile[kLeaf * kMaxElementSize];
    alignas(64) char raw[kLeaf * kMaxElementSize];
  };
  void run_empty();
  void run_lines();
  void run_columns();
  int64_t cell_bytes(int64_t width) const { return reducer_.cells * width * 8; }
  Run chunk_of_line(const Tiles& leaves, int64_t chunk, Run* leaf_range) const;
  void reduce_line(const Tiles& leaves, int64_t output, int64_t chunk, char* state, int64_t width, Buffers& b) const;
  const void* load_leaf(const Tiles& leaves, const char* base, int64_t flat, int64_t n, Buffers& b) const;
  void reduce_columns(int64_t flat, int64_t columns, bool dense, Run run, char* state, int64_t width, Buffers& b) const;
  void store(int64_t flat, int64_t columns, const char* state, int64_t width) const;

  Context& ctx_;
  const Reducer& reducer_;
  const ReduceParams& p_;
  Space kept_{2}, gone_{1};
  int64_t times_ = 1;  // that the elements of gone_ repeat
  int64_t grain_;      // elements that are worth a thread
  const char* x_;
  char* out_;
  int64_t size_, out_size_;
  Converter load_ = nullptr, store_ = nullptr;
};

Reduction::Reduction(Context& ctx, V out, V x, const Reducer& reducer, const ReduceParams& p)
    : ctx_(ctx), reducer_(reducer), p_(p), grain_(kGrain / reducer.cost), x_(x.as<char>()), out_(out.as<char>()),
      size_(size_of(x.dtype)), out_size_(size_of(out.dtype)) {
  for (int64_t d = 0; d < x.rank; ++d) {
    const int64_t strides[] = {x.strides[d] * size_, out.strides[d] * out_size_};
    if (!(p.dims >> d & 1)) kept_.add(x.sizes[d], strides);
    else if (strides[0] == 0 && x.sizes[d] > 1 && reducer.repeats) times_ *= x.sizes[d];
    else gone_.add(x.sizes[d], strides);
  }
  kept_.simplify();
  gone_.simplify();
  if (x.dtype != reducer.input) load_ = converter(reducer.input, x.dtype);
  if (out.dtype != reducer.result) store_ = converter(out.dtype, reducer.result);
}

void Reduction::run() {
  if (kept_.numel == 0) return;
  if (gone_.numel == 0) return run_empty();
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v > 0 ? v : INT64_MAX; };  // what repeats is not near
  const bool few = gone_.numel < kFewElements && kept_.numel >= kFewElements;
  const bool line = kept_.rank == 0 || magnitude(gone_.inner_stride(0)) < magnitude(kept_.inner_stride(0));
  return line && !few ? run_lines() : run_columns();
}

/// Outputs [flat, flat + columns) from their states.
void Reduction::store(int64_t flat, int64_t columns, const char* state, int64_t width) const {
  alignas(64) char results[kColumns * kMaxElementSize], converted[kColumns * kMaxElementSize];
  reducer_.finish(results, state, width, columns, gone_.numel, times_, p_);
  if (store_) store_(columns, converted, results);
  scatter(kept_, 1, out_, flat, columns, out_size_, store_ ? converted : results);
}

void Reduction::run_empty() {
  alignas(64) char state[kMaxCells * kOutputs * 8];
  reducer_.init(state, kOutputs, p_);
  for (int64_t flat = 0; flat < kept_.numel; flat += kOutputs)
    store(flat, std::min(kOutputs, kept_.numel - flat), state, kOutputs);
}

// Lines: each output reduces elements that lie close together.

const void* Reduction::load_leaf(const Tiles& leaves, const char* base, int64_t flat, int64_t n, Buffers& b) const {
  const bool dense = gone_.rank == 0 || (leaves.by_row && gone_.inner_stride(0) == size_) || gone_.is_flat(0, size_);
  const void* raw = dense ? base + gone_.offset(0, flat) : load_ ? b.raw : b.tile;
  if (!dense) gather(gone_, 0, base, flat, n, size_, load_ ? b.raw : b.tile);
  if (!load_) return raw;
  load_(n, b.tile, raw);
  return b.tile;
}

/// The elements of a chunk, and its leaves.
Run Reduction::chunk_of_line(const Tiles& leaves, int64_t chunk, Run* leaf_range) const {
  const int64_t first = chunk * kLeavesPerChunk, last = std::min(first + kLeavesPerChunk, leaves.count);
  *leaf_range = {first, last - first};
  const int64_t begin = leaves.begin(first), end = last == leaves.count ? gone_.numel : leaves.begin(last);
  return {begin, end - begin};
}

void Reduction::reduce_line(const Tiles& leaves, int64_t output, int64_t chunk, char* state, int64_t width,
                            Buffers& b) const {
  const char* base = x_ + kept_.offset(0, output);
  Run range;
  const Run run = chunk_of_line(leaves, chunk, &range);
  int64_t at = run.first;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t next = i + 1 == range.count ? run.first + run.count : leaves.begin(range.first + i + 1);
    const Run leaf{at, next - at};
    const void* x = load_leaf(leaves, base, at, leaf.count, b);
    if (i == 0) {
      reducer_.leaf(state, width, x, leaf, p_);
    } else {
      alignas(8) char cells[kMaxCells * 8], into[kMaxCells * 8];
      reducer_.leaf(cells, 1, x, leaf, p_);
      for (int c = 0; c < reducer_.cells; ++c) std::copy_n(state + c * width * 8, 8, into + c * 8);
      reducer_.merge(into, cells, 1, 1, {run.first, at - run.first}, leaf, p_);
      for (int c = 0; c < reducer_.cells; ++c) std::copy_n(into + c * 8, 8, state + c * width * 8);
    }
    at = next;
  }
}

void Reduction::run_lines() {
  const Tiles leaves(gone_, kLeaf);
  const int64_t outputs = kept_.numel, chunks = (leaves.count + kLeavesPerChunk - 1) / kLeavesPerChunk;
  if (chunks == 1) {
    parallel_for(outputs, std::max<int64_t>(grain_ / gone_.numel, 1), [&](int64_t first, int64_t last) {
      Buffers b;
      alignas(64) char state[kMaxCells * kOutputs * 8];
      for (int64_t o = first; o < last; o += kOutputs) {
        const int64_t n = std::min(kOutputs, last - o);
        for (int64_t j = 0; j < n; ++j) reduce_line(leaves, o + j, 0, state + j * 8, kOutputs, b);
        store(o, n, state, kOutputs);
      }
    });
    return;
  }
  char* states = static_cast<char*>(ctx_.scratch(outputs * chunks * cell_bytes(1)));
  parallel_for(outputs * chunks, std::max<int64_t>(grain_ * chunks / gone_.numel, 1), [&](int64_t first, int64_t last) {
    Buffers b;
    for (int64_t i = first; i < last; ++i)
      reduce_line(leaves, i / chunks, i % chunks, states + i * cell_bytes(1), 1, b);
  });
  for (int64_t o = 0; o < outputs; ++o) {
    char* state = states + o * chunks * cell_bytes(1);
    Run range, done = chunk_of_line(leaves, 0, &range);
    for (int64_t c = 1; c < chunks; ++c) {
      const Run run = chunk_of_line(leaves, c, &range);
      reducer_.merge(state, state + c * cell_bytes(1), 1, 1, done, run, p_);
      done.count += run.count;
    }
    store(o, 1, state, 1);
  }
}

// Columns: neighbouring elements belong to different outputs, whose states stand side by side.

void Reduction::reduce_columns(int64_t flat, int64_t columns, bool dense, Run run, char* state, int64_t width,
                               Buffers& b) const {
  reducer_.init(state, width, p_);
  const int64_t inner = gone_.inner();
  for (int64_t done = 0; done < run.count;) {
    const int64_t row = run.first + done;
    const char* base = x_ + gone_.offset(0, row);
    const int64_t step = gone_.inner_stride(0), bytes = columns * size_of(reducer_.input),
                  in_tile = std::min(std::max<int64_t>(kLeaf / columns, 1), run.count - done);
    if (dense && !load_) {
      const int64_t n = std::min(inner - row % inner, run.count - done);
      reducer_.rows(state, width, base + kept_.offset(0, flat), step, columns, {row, n}, done, p_);
      done += n;
    } else if (dense) {  // converted where they lie, rows without gaps all at once
      const int64_t n = std::min(inner - row % inner, in_tile);
      const char* from = base + kept_.offset(0, flat);
      if (step == columns * size_) load_(n * columns, b.tile, from);
      else
        for (int64_t r = 0; r < n; ++r) load_(columns, b.tile + r * bytes, from + r * step);
      reducer_.rows(state, width, b.tile, bytes, columns, {row, n}, done, p_);
      done += n;
    } else {
      const int64_t n = in_tile;
      for (int64_t r = 0; r < n; ++r) {
        gather(kept_, 0, x_ + gone_.offset(0, row + r), flat, columns, size_, load_ ? b.raw : b.tile + r * bytes);
        if (load_) load_(columns, b.tile + r * bytes, b.raw);
      }
      reducer_.rows(state, width, b.tile, bytes, columns, {row, n}, done, p_);
      done += n;
    }
  }
}

void Reduction::run_columns() {
  const Tiles tiles(kept_, kColumns);
  const bool dense = kept_.is_flat(0, size_) || (tiles.by_row && kept_.inner_stride(0) == size_);
  const int64_t count = gone_.numel, chunks = (count + kRowsPerChunk - 1) / kRowsPerChunk;
  const int64_t width = std::min(kColumns, tiles.by_row ? tiles.row : kept_.numel);
  const auto columns_of = [&](int64_t flat) {
    return std::min(kColumns, tiles.by_row ? tiles.row - flat % tiles.row : kept_.numel - flat);
  };
  char* states = chunks > 1 ? static_cast<char*>(ctx_.scratch(tiles.count * chunks * cell_bytes(width))) : nullptr;
  const int64_t grain = std::max<int64_t>(grain_ / (width * std::min(count, kRowsPerChunk)), 1);
  parallel_for(tiles.count * chunks, grain, [&](int64_t first, int64_t last) {
    Buffers b;
    alignas(64) char own[kMaxCells * kColumns * 8];
    for (int64_t i = first; i < last; ++i) {
      const int64_t flat = tiles.begin(i / chunks), row = i % chunks * kRowsPerChunk;
      char* state = states ? states + i * cell_bytes(width) : own;
      reduce_columns(flat, columns_of(flat), dense, {row, std::min(kRowsPerChunk, count - row)}, state, width, b);
      if (!states) store(flat, columns_of(flat), state, width);
    }
  });
  if (!states) return;
  parallel_for(tiles.count, std::max<int64_t>(grain_ / (width * chunks), 1), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t flat = tiles.begin(t), columns = columns_of(flat);
      char* state = states + t * chunks * cell_bytes(width);
      for (int64_t c = 1; c < chunks; ++c) {
        const int64_t row = c * kRowsPerChunk;
        reducer_.merge(state, state + c * cell_bytes(width), width, columns, {0, row},
                       {row, std::min(kRowsPerChunk, count - row)}, p_);
      }
      store(flat, columns, state, width);
    }
  });
}

}  // namespace

/// Outputs that repeat, since x does, are computed once and copied.
void run_reducer(Context& ctx, V out, V x, const Reducer& reducer, const ReduceParams& p) {
  TensorView from = x, to = out;
  for (int64_t d = 0; d < x.rank; ++d)
    if (!(p.dims >> d & 1) && x.strides[d] == 0 && x.sizes[d] > 1) from.sizes[d] = to.sizes[d] = 1;
  Reduction(ctx, to, from, reducer, p).run();
  for (int64_t d = 0; d < x.rank; ++d) {
    if (to.sizes[d] == out.sizes[d]) continue;
    TensorView others = to;
    others.data = to.as<char>() + to.strides[d] * size_of(to.dtype), others.sizes[d] = out.sizes[d] - 1;
    copy(ctx, {others, to.expand(others.shape())});
    to.sizes[d] = out.sizes[d];
  }
}

void reduce(Context& ctx, const entry::Reduce& c) {
  V out = c.out, x = c.x;
  const ReduceParams& p = c.params;
  switch (p.op) {
    case ReduceOp::NormP:
    case ReduceOp::LogSumExp: return run_reducer(ctx, out, x, norm_reducer(p, x.dtype), p);
    case ReduceOp::Max:
    case ReduceOp::Min:
    case ReduceOp::Any:
    case ReduceOp::All: return run_reducer(ctx, out, x, extreme_reducer(p, x.dtype), p);
    default: return run_reducer(ctx, out, x, sum_reducer(p, x.dtype, out.dtype), p);
  }
}

}  // namespace tapir::inline v0::cpu
