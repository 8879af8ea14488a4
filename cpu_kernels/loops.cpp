#include "loops.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../core/parallel.h"
#include "stream_store.h"
#include "transpose.h"

namespace tapir::inline v0::cpu {

void Space::add(int64_t size, const int64_t* byte_strides) {
  numel *= size;
  if (size == 1) return;
  sizes[rank] = size;
  for (int k = 0; k < operands; ++k) strides[k][rank] = byte_strides[k];
  ++rank;
}

void Space::simplify() {
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v > 0 ? v : INT64_MAX; };  // what repeats goes outside
  const auto before = [&](int64_t i, int64_t j) {  // dimension j belongs outside of i
    for (int k = 0; k < operands; ++k)
      if (magnitude(strides[k][i]) != magnitude(strides[k][j]))
        return magnitude(strides[k][i]) < magnitude(strides[k][j]);
    return false;
  };
  const auto swap = [&](int64_t i, int64_t j) {
    std::swap(sizes[i], sizes[j]);
    for (int k = 0; k < operands; ++k) std::swap(strides[k][i], strides[k][j]);
  };
  for (int64_t i = 1; i < rank; ++i)
    for (int64_t j = i; j > 0 && before(j - 1, j); --j) swap(j - 1, j);

  int64_t kept = 0;
  for (int64_t i = 1; i < rank; ++i) {
    bool one = true;
    for (int k = 0; k < operands; ++k) one &= strides[k][kept] == strides[k][i] * sizes[i];
    if (one) sizes[kept] *= sizes[i];
    else sizes[++kept] = sizes[i];
    for (int k = 0; k < operands; ++k) strides[k][kept] = strides[k][i];
  }
  if (rank) rank = kept + 1;
}

int64_t Space::row_offset(int k, int64_t row) const {
  int64_t bytes = 0;
  for (int64_t d = rank - 2; d >= 0; --d) {
    const int64_t index = d ? row % sizes[d] : row;
    if (d) row /= sizes[d];
    bytes += index * strides[k][d];
  }
  return bytes;
}
int64_t Space::offset(int k, int64_t flat) const {
  if (rank <= 1) return flat * inner_stride(k);
  return row_offset(k, flat / inner()) + flat % inner() * inner_stride(k);
}

bool Space::is_flat(int k, int64_t size) const {
  for (int64_t d = rank; d-- > 0;) {
    if (strides[k][d] != size) return false;
    size *= sizes[d];
  }
  return true;
}

namespace {

/// Calls f(bytes from the start, elements, position) for the pieces of [flat, flat + n) that lie in one row each.
template <class F> void for_rows(const Space& s, int k, int64_t flat, int64_t n, F&& f) {
  const int64_t inner = s.inner(), step = s.inner_stride(k);
  int64_t row = flat / inner, column = flat % inner;
  for (int64_t done = 0; done < n; ++row, column = 0) {
    const int64_t m = std::min(inner - column, n - done);
    f(s.row_offset(k, row) + column * step, m, done);
    done += m;
  }
}

template <class W> void gather_words(const Space& s, int k, const char* from, int64_t flat, int64_t n, W* tile) {
  const int64_t step = s.inner_stride(k);
  for_rows(s, k, flat, n, [&](int64_t bytes, int64_t m, int64_t at) {
    const char* p = from + bytes;
    W* to = tile + at;
    if (step == 0) std::fill_n(to, m, *reinterpret_cast<const W*>(p));
    else if (step == sizeof(W) && m >= 16) std::memcpy(to, p, size_t(m) * sizeof(W));
    else if (step == -int64_t(sizeof(W)))  // reversed: in vectors
      for (int64_t i = 0; i < m; ++i) to[i] = reinterpret_cast<const W*>(p)[-i];
    else
      for (int64_t i = 0; i < m; ++i) to[i] = *reinterpret_cast<const W*>(p + i * step);
  });
}
template <class W> void scatter_words(const Space& s, int k, char* to, int64_t flat, int64_t n, const W* tile) {
  const int64_t step = s.inner_stride(k);
  for_rows(s, k, flat, n, [&](int64_t bytes, int64_t m, int64_t at) {
    char* p = to + bytes;
    const W* from = tile + at;
    if (step == sizeof(W) && m >= 16) std::memcpy(p, from, size_t(m) * sizeof(W));
    else
      for (int64_t i = 0; i < m; ++i) *reinterpret_cast<W*>(p + i * step) = from[i];
  });
}

}  // namespace

void gather(const Space& s, int k, const char* from, int64_t flat, int64_t n, int64_t size, void* tile) {
  switch (size) {
    case 1: return gather_words(s, k, from, flat, n, static_cast<uint8_t*>(tile));
    case 2: return gather_words(s, k, from, flat, n, static_cast<uint16_t*>(tile));
    case 4: return gather_words(s, k, from, flat, n, static_cast<uint32_t*>(tile));
    default: return gather_words(s, k, from, flat, n, static_cast<uint64_t*>(tile));
  }
}
void scatter(const Space& s, int k, char* to, int64_t flat, int64_t n, int64_t size, const void* tile) {
  switch (size) {
    case 1: return scatter_words(s, k, to, flat, n, static_cast<const uint8_t*>(tile));
    case 2: return scatter_words(s, k, to, flat, n, static_cast<const uint16_t*>(tile));
    case 4: return scatter_words(s, k, to, flat, n, static_cast<const uint32_t*>(tile));
    default: return scatter_words(s, k, to, flat, n, static_cast<const uint64_t*>(tile));
  }
}

Tiles::Tiles(const Space& space, int64_t width) : width(width), by_row(space.inner() >= kSmallRow || space.rank <= 1) {
  if (by_row && space.numel) {
    row = space.inner(), per_row = (row + width - 1) / width;
    count = space.numel / row * per_row;
  } else {
    count = (space.numel + width - 1) / width;
  }
}

namespace {

constexpr int64_t kBlockRows = 16, kBlockColumns = kTile / kBlockRows;

struct Operand {
  char* data = nullptr;
  DType dtype, as;
  int64_t size;  // of one element in memory
  bool constant = false, flat = false;
  Converter convert = nullptr;  // null: the kernel takes it as it lies in memory
};

/// True when the result is written past the caches; not when its lines are read anyway.
bool streams(std::span<const TensorView* const> views) {
  const TensorView& out = *views[0];
  const auto in_place = [&](const TensorView* v) { return !v->is_scalar && v->data == out.data; };
  return past_caches(out.numel() * size_of(out.dtype)) && std::none_of(views.begin() + 1, views.end(), in_place);
}
constexpr int64_t kStreamedRow = 2048;  // bytes: both ends of a shorter one, which fill no line, cost more than is won

/// One pointwise call on views that need tiles. See Note [Loops by tiles].
class Pointwise {
 public:
  Pointwise(std::span<const TensorView* const> views, const DType* types, LoopKernel kernel, const void* params);
  void run(int64_t cost) const {
    const int64_t across = transposed_dimension();
    if (across >= 0) return run_blocks(across, cost);
    const Tiles tiles(space_);
    parallel_for(tiles.count, tiles.grain(kGrain / cost),
                 [&](int64_t first, int64_t last) { run_tiles(tiles, first, last); });
  }

 private:
  struct Buffers {
    alignas(64) char tile[kMaxOperands][kTile * kMaxElementSize];
    alignas(64) char raw[kTile * kMaxElementSize];
    const char* repeated[kMaxOperands] = {};  // the element that fills tile[k] ...
    int64_t filled[kMaxOperands];             // ... up to here
  };
  /// Rows along dimension `across`, columns along the innermost: a tile for operands that are dense along the former.
  struct Block {
    int64_t across, rows, columns;
    int64_t offset[kMaxOperands];  // bytes from an operand's start to the block's
  };
  void run_tiles(const Tiles& tiles, int64_t first, int64_t last) const;
  int64_t transposed_dimension() const;
  void run_blocks(int64_t across, int64_t cost) const;
  void run_block(const Block& block, Buffers& buffers) const;
  char* load_block(int k, const Block& block, Buffers& buffers) const;
  void* load(int k, const Tiles& tiles, int64_t flat, int64_t n, Buffers& buffers) const;
  void* repeat(int k, const char* element, int64_t n, Buffers& buffers) const;
  char* in_place(int k, const Tiles& tiles, int64_t flat) const;

  int count_;
  LoopKernel kernel_;
  const void* params_;
  Space space_;
  bool stream_;  // results are written past the caches
  Operand operands_[kMaxOperands];
  alignas(8) char immediates_[kMaxOperands][kMaxElementSize];
};

Pointwise::Pointwise(std::span<const TensorView* const> views, const DType* types, LoopKernel kernel,
                     const void* params)
    : count_(int(views.size())), kernel_(kernel), params_(params), space_(count_) {
  for (int k = 0; k < count_; ++k) {
    const TensorView& v = *views[k];
    Operand& o = operands_[k];
    o.dtype = v.is_scalar ? types[k] : v.dtype, o.as = types[k], o.size = size_of(o.dtype);
    o.data = v.as<char>();
    if (v.is_scalar) store_scalar(o.data = immediates_[k], types[k], v.scalar);
    if (o.dtype != o.as) o.convert = k ? converter(o.as, o.dtype) : converter(o.dtype, o.as);
  }
  const TensorView& out = *views[0];
  for (int64_t d = 0; d < out.rank; ++d) {
    int64_t strides[kMaxOperands];
    for (int k = 0; k < count_; ++k) {
      const TensorView& v = *views[k];
      const int64_t from = v.is_scalar ? -1 : d - (out.rank - v.rank);
      strides[k] = from < 0 || v.sizes[from] == 1 ? 0 : v.strides[from] * operands_[k].size;
    }
    space_.add(out.sizes[d], strides);
  }
  space_.simplify();
  for (int k = 0; k < count_; ++k) {
    Operand& o = operands_[k];
    o.flat = space_.is_flat(k, o.size);
    o.constant = k > 0;
    for (int64_t d = 0; d < space_.rank; ++d) o.constant &= space_.strides[k][d] == 0;
  }
  stream_ =
      operands_[0].flat && streams(views) && (space_.rank <= 1 || space_.inner() * operands_[0].size >= kStreamedRow);
}

/// Where the kernel can work in memory itself, or null.
char* Pointwise::in_place(int k, const Tiles& tiles, int64_t flat) const {
  const Operand& o = operands_[k];
  if (o.convert) return nullptr;
  if (o.flat) return o.data + flat * o.size;
  if (tiles.by_row && space_.inner_stride(k) == o.size) return o.data + space_.offset(k, flat);
  return nullptr;
}

void* Pointwise::repeat(int k, const char* element, int64_t n, Buffers& b) const {
  if (b.repeated[k] == element && b.filled[k] >= n) return b.tile[k];
  const Operand& o = operands_[k];
  b.repeated[k] = element, b.filled[k] = n;
  Space one(1);
  const int64_t zero = 0;
  one.add(n, &zero);
  if (!o.convert) {
    gather(one, 0, element, 0, n, o.size, b.tile[k]);
  } else {
    o.convert(1, b.raw, element);
    gather(one, 0, b.raw, 0, n, size_of(o.as), b.tile[k]);
  }
  return b.tile[k];
}

void* Pointwise::load(int k, const Tiles& tiles, int64_t flat, int64_t n, Buffers& b) const {
  const Operand& o = operands_[k];
  if (k == 0 && stream_) return b.tile[0];
  if (char* p = in_place(k, tiles, flat)) return p;
  if (k == 0) return b.tile[0];
  if (o.constant) return repeat(k, o.data, n, b);
  if (tiles.by_row && space_.inner_stride(k) == 0) return repeat(k, o.data + space_.offset(k, flat), n, b);
  const char* raw = o.flat ? o.data + flat * o.size : nullptr;
  if (!raw) {
    gather(space_, k, o.data, flat, n, o.size, o.convert ? b.raw : b.tile[k]);
    raw = b.raw;
  }
  if (o.convert) o.convert(n, b.tile[k], raw);
  return b.tile[k];
}

void Pointwise::run_tiles(const Tiles& tiles, int64_t first, int64_t last) const {
  Buffers b;
  const Operand& out = operands_[0];
  for (int64_t t = first; t < last; ++t) {
    const int64_t flat = tiles.begin(t);
    const int64_t end = tiles.by_row ? flat - flat % tiles.row + tiles.row : space_.numel;
    const int64_t n = std::min(tiles.width, end - flat);
    void* data[kMaxOperands];
    for (int k = 0; k < count_; ++k) data[k] = load(k, tiles, flat, n, b);
    kernel_(n, data, params_);
    if (data[0] != b.tile[0]) continue;
    if (out.flat && !stream_) {
      out.convert(n, out.data + flat * out.size, data[0]);
      continue;
    }
    if (out.convert) out.convert(n, b.raw, data[0]);
    const char* results = out.convert ? b.raw : b.tile[0];
    if (stream_) stream_copy(out.data + flat * out.size, results, n * out.size);
    else scatter(space_, 0, out.data, flat, n, out.size, results);
  }
  if (stream_) end_stream();
}

/// The dimension along which an operand is dense that strides along the innermost one: row by row, each element of it would
/// bring its own cache line. -1: there is none.
int64_t Pointwise::transposed_dimension() const {
  for (int k = 1; k < count_ && space_.inner() >= kBlockRows; ++k)
    for (int64_t d = 0; d + 1 < space_.rank; ++d)
      if (space_.strides[k][d] == operands_[k].size && space_.sizes[d] >= kBlockRows && space_.inner_stride(k) != 0)
        return d;
  return -1;
}

template <class W>
void gather_block(W* to, const char* from, int64_t rows, int64_t columns, int64_t row_step, int64_t column_step) {
  constexpr int64_t size = sizeof(W), side = block_side(size);
  if (row_step != size) {
    for (int64_t i = 0; i < rows; ++i, to += columns, from += row_step)
      if (column_step == size) std::memcpy(to, from, size_t(columns * size));
      else load_part<W>(to, 0, from, column_step, 1, columns);
    return;
  }
  for (int64_t i = 0; i < rows; i += side)
    for (int64_t j = 0; j < columns; j += side) {
      const char* corner = from + i * size + j * column_step;
      W* const place = to + i * columns + j;
      if (i + side <= rows && j + side <= columns) load_block(place, columns, corner, column_step);
      else load_part<W>(place, columns, corner, column_step, std::min(side, rows - i), std::min(side, columns - j));
    }
}
void gather_block(void* to, const char* from, int64_t size, int64_t rows, int64_t columns, int64_t row_step,
                  int64_t column_step) {
  switch (size) {
    case 1: return gather_block(static_cast<uint8_t*>(to), from, rows, columns, row_step, column_step);
    case 2: return gather_block(static_cast<uint16_t*>(to), from, rows, columns, row_step, column_step);
    case 4: return gather_block(static_cast<uint32_t*>(to), from, rows, columns, row_step, column_step);
    default: return gather_block(static_cast<uint64_t*>(to), from, rows, columns, row_step, column_step);
  }
}

/// Operand k of a block as the kernel takes it: the tile, or null where each row of it lies in memory as it is.
char* Pointwise::load_block(int k, const Block& block, Buffers& b) const {
  const Operand& o = operands_[k];
  const int64_t n = block.rows * block.columns, inner = space_.rank - 1;
  if (o.constant) return static_cast<char*>(repeat(k, o.data, n, b));
  if (!o.convert && space_.strides[k][inner] == o.size) return nullptr;
  if (k == 0) return b.tile[0];
  gather_block(o.convert ? b.raw : b.tile[k], o.data + block.offset[k], o.size, block.rows, block.columns,
               space_.strides[k][block.across], space_.strides[k][inner]);
  if (o.convert) o.convert(n, b.tile[k], b.raw);
  return b.tile[k];
}

void Pointwise::run_block(const Block& block, Buffers& b) const {
  const Operand& out = operands_[0];
  const int64_t inner = space_.rank - 1;
  void* tile[kMaxOperands];
  for (int k = 0; k < count_; ++k) tile[k] = load_block(k, block, b);
  const int64_t n = block.rows * block.columns;
  const bool lies = std::find(tile, tile + count_, nullptr) != tile + count_;
  for (int64_t i = 0; lies && i < block.rows; ++i) {
    void* data[kMaxOperands];
    for (int k = 0; k < count_; ++k) {
      const Operand& o = operands_[k];
      data[k] = tile[k] ? static_cast<char*>(tile[k]) + i * block.columns * size_of(o.as)
                        : o.data + block.offset[k] + i * space_.strides[k][block.across];
    }
    kernel_(block.columns, data, params_);
  }
  if (!lies) kernel_(n, tile, params_);
  if (!tile[0]) return;
  if (out.convert) out.convert(n, b.raw, tile[0]);
  Space rows(1);
  rows.add(block.rows, &space_.strides[0][block.across]);
  rows.add(block.columns, &space_.strides[0][inner]);
  scatter(rows, 0, out.data + block.offset[0], 0, n, out.size, out.convert ? b.raw : b.tile[0]);
}

void Pointwise::run_blocks(int64_t across, int64_t cost) const {
  const int64_t inner = space_.rank - 1;
  Space outer(count_);
  for (int64_t d = 0; d < inner; ++d) {
    int64_t strides[kMaxOperands];
    for (int k = 0; k < count_; ++k) strides[k] = space_.strides[k][d];
    if (d != across) outer.add(space_.sizes[d], strides);
  }
  const int64_t down = (space_.sizes[across] + kBlockRows - 1) / kBlockRows,
                right = (space_.inner() + kBlockColumns - 1) / kBlockColumns;
  const int64_t grain = std::max<int64_t>(kGrain / cost / kTile, 1);
  parallel_for(outer.numel * down * right, grain, [&](int64_t first, int64_t last) {
    Buffers buffers;
    for (int64_t t = first; t < last; ++t) {
      const int64_t flat = t / (down * right), i = t / right % down * kBlockRows, j = t % right * kBlockColumns;
      Block block{
          across, std::min(kBlockRows, space_.sizes[across] - i), std::min(kBlockColumns, space_.inner() - j), {}};
      for (int k = 0; k < count_; ++k)
        block.offset[k] = outer.offset(k, flat) + i * space_.strides[k][across] + j * space_.strides[k][inner];
      run_block(block, buffers);
    }
  });
}

/// True when the views of n elements lie in one order, without gaps.
bool one_order(std::span<const TensorView* const> views, int64_t n) {
  const TensorView& out = *views[0];
  for (const TensorView* v : views)
    for (int64_t d = 0; d < out.rank; ++d)
      if (v->rank != out.rank || (out.sizes[d] != 1 && v->strides[d] != out.strides[d])) return false;
  int64_t step = 1;
  for (int64_t before = 0; step != before;) {
    before = step;
    for (int64_t d = 0; d < out.rank; ++d)
      if (out.sizes[d] > 1 && out.strides[d] == step) step *= out.sizes[d];
  }
  return step == n;
}
/// True when every operand is of the output's size and of the kernel's type, and all lie in one order, without gaps.
bool all_direct(std::span<const TensorView* const> views, const DType* types, int64_t n) {
  bool contiguous = true;
  for (size_t k = 0; k < views.size(); ++k) {
    const TensorView& v = *views[k];
    if (v.is_scalar || v.dtype != types[k] || v.numel() != n) return false;
    contiguous = contiguous && v.is_contiguous();
  }
  return contiguous || one_order(views, n);
}

constexpr int64_t kWorthCopies = 1024;  // elements: below, the calls that copying takes cost more than it saves

/// The first dimension along which the result repeats, as all operands do; of a dense row only where it is long, for it would be written
/// with gaps. -1: there is none.
int64_t repeated_dimension(std::span<const TensorView* const> views) {
  const TensorView& out = *views[0];
  for (int64_t d = 0; d < out.rank; ++d) {
    const auto repeats = [&](const TensorView* v) {
      const int64_t from = d - (out.rank - v->rank);
      return v->is_scalar || from < 0 || v->sizes[from] == 1 || v->strides[from] == 0;
    };
    const bool gaps = std::abs(out.strides[d]) == 1 && out.sizes[d] < kSmallRow;
    if (out.sizes[d] > 1 && !gaps && std::all_of(views.begin() + 1, views.end(), repeats)) return d;
  }
  return -1;
}

/// What repeats along dimension d is computed once, and copied.
void compute_once(std::span<const TensorView* const> views, const DType* types, LoopKernel kernel, const void* params,
                  int64_t cost, int64_t d) {
  const TensorView& out = *views[0];
  TensorView first = out, rest = out;
  first.sizes[d] = 1;
  const TensorView* once[kMaxOperands] = {&first};
  TensorView operands[kMaxOperands];
  for (size_t k = 1; k < views.size(); ++k) {
    operands[k] = *views[k], once[k] = &operands[k];
    const int64_t from = d - (out.rank - operands[k].rank);
    if (!operands[k].is_scalar && from >= 0) operands[k].sizes[from] = 1;
  }
  pointwise({once, views.size()}, types, kernel, params, cost);
  --rest.sizes[d], rest.data = rest.as<char>() + rest.strides[d] * size_of(rest.dtype);
  const LoopKernel copy = [](int64_t n, void* const* data, const void* size) {
    std::memcpy(data[0], data[1], size_t(n * *static_cast<const int64_t*>(size)));
  };
  const TensorView* const both[] = {&rest, &first};
  const DType same[] = {out.dtype, out.dtype};
  const int64_t size = size_of(out.dtype);
  pointwise(both, same, copy, &size);
}

}  // namespace

void pointwise(std::span<const TensorView* const> views, const DType* types, LoopKernel kernel, const void* params,
               int64_t cost) {
  const int64_t n = views[0]->numel();
  if (n == 0) return;
  if (cost > 1 && n >= kWorthCopies)
    if (const int64_t d = repeated_dimension(views); d >= 0) return compute_once(views, types, kernel, params, cost, d);
  if (!all_direct(views, types, n) || streams(views)) return Pointwise(views, types, kernel, params).run(cost);
  auto run = [&](int64_t first, int64_t last) {
    void* data[kMaxOperands];
    const int64_t begin = first * kTile;
    for (size_t k = 0; k < views.size(); ++k) data[k] = views[k]->as<char>() + begin * size_of(types[k]);
    kernel(std::min(last * kTile, n) - begin, data, params);
  };
  const int64_t grain = std::max<int64_t>(kGrain / cost / kTile, 1);
  parallel_for((n + kTile - 1) / kTile, grain, run);
}

}  // namespace tapir::inline v0::cpu
