#include <algorithm>
#include <cstdlib>

#include "../kernels.h"
#include "matmul.h"

// Note [Rows of 16 bits]
// The fast kernels of 16-bit products move 16 bytes at a time, so rows must begin at multiples of 16 bytes. Where those of one operand do not
// (logits of 50257 words), an H100 takes 3 to 5 times as long. Large operands of that kind go through scratch memory whose rows do, piece by
// piece: two passes more over them. Sums whose number of products is no multiple of 8 are as slow, whatever the rows. Where all rows are
// aligned, the last 1 to 7 products go first, and a second product adds the others to their sums; these have been rounded to 16 bits by
// then. That is for bfloat16 alone, since in float16 the first sums might be infinite. Else both operands get zeros behind k.
namespace tapir::inline v0::cuda_kernels {

using blas::Matrix;
using blas::Product;

namespace {

constexpr int64_t kUnit = 8;            // numbers of 16 bits in 16 bytes
constexpr int64_t kLeast = 256;         // of m, n and k, below which the copies are much of the work
constexpr int64_t kLeastPerPiece = 32;  // of m n k, by the numbers of a piece: below it the copies' launches cost more
constexpr int64_t kStep = 128;          // a piece has a multiple of it, as the library's tiles do

/// Numbers in scratch memory, about. TAPIR_CUDA_PIECE: fewer, for tests, of smaller products too.
int64_t numbers_of_piece() {
  static const char* const text = std::getenv("TAPIR_CUDA_PIECE");
  return text ? std::atoll(text) : int64_t(1) << 26;
}

bool is_fast(const Matrix& x) { return std::max(x.row, x.column) % kUnit == 0 && blas::is_aligned(x.data); }
int64_t rounded(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }

/// Room for a matrix in x's order of memory, whose rows begin at multiples of 16 bytes.
Matrix fast_room(Context& ctx, const Matrix& x, int64_t rows, int64_t columns) {
  const bool by_rows = x.column == 1;
  const int64_t step = rounded(by_rows ? columns : rows);
  void* const room = ctx.scratch(step * (by_rows ? rows : columns) * int64_t(sizeof(uint16_t)));
  return by_rows ? Matrix{room, 0, step, 1} : Matrix{room, 0, 1, step};
}
/// From row `row`, column `column` on.
Matrix from(const Matrix& x, int64_t row, int64_t column, int64_t bytes = sizeof(uint16_t)) {
  return {static_cast<char*>(x.data) + (row * x.row + column * x.column) * bytes, 0, x.row, x.column};
}

/// A product cut along m, whose pieces share b, or along n, whose pieces share a.
struct Pieces {
  Context& ctx;
  const Product& p;
  const bool along_m = p.k * p.n <= p.m * p.k;
  const Matrix &cut = along_m ? p.a : p.b, &shared = along_m ? p.b : p.a;
  const int64_t extent = along_m ? p.m : p.n, k = rounded(p.k);
  const bool copies_out = !p.widens && !is_fast(p.out);  // float32: as it lies
  int64_t size = extent;
  Matrix shared_room, cut_room, out_room;  // no data: as it lies

  Pieces(Context& c, const Product& whole) : ctx(c), p(whole) {
    const bool odd = k != p.k, copies_cut = odd || !is_fast(cut);
    const int64_t numbers = (copies_cut ? k : 0) + (!copies_out ? 0 : along_m ? p.n : p.m);
    if (numbers > 0) size = std::min(extent, std::max(numbers_of_piece() / numbers / kStep, int64_t(1)) * kStep);
    if (copies_cut) cut_room = operand_room(cut, along_m, size);
    if (copies_out) out_room = along_m ? fast_room(ctx, p.out, size, p.n) : fast_room(ctx, p.out, p.m, size);
    if (!odd && is_fast(shared)) return;
    const int64_t rows = along_m ? p.k : p.m, columns = along_m ? p.n : p.k;
    shared_room = operand_room(shared, !along_m, along_m ? p.n : p.m);
    copy(ctx, {view_of(p, shared_room, rows, columns), view_of(p, shared, rows, columns)});
  }

  /// Room for `n` rows of a, or columns of b, with zeros behind k.
  Matrix operand_room(const Matrix& x, bool is_a, int64_t n) {
    const Matrix room = is_a ? fast_room(ctx, x, n, k) : fast_room(ctx, x, k, n);
    const int64_t zeros = k - p.k;
    const Matrix behind = is_a ? from(room, 0, p.k) : from(room, p.k, 0);
    if (zeros > 0) fill(ctx, {view_of(p, behind, is_a ? n : zeros, is_a ? zeros : n), 0.0});
    return room;
  }

  Matrix part(const Matrix& x, int64_t at, int64_t bytes = sizeof(uint16_t)) const {
    return along_m ? from(x, at, 0, bytes) : from(x, 0, at, bytes);
  }

  /// The piece from `at` on. False where the library has no kernel for it; nothing was added to out then.
  bool run(int64_t at) {
    Product q = p;
    const int64_t n = std::min(size, extent - at);
    (along_m ? q.m : q.n) = n, q.k = k;
    Matrix &cut_part = along_m ? q.a : q.b, &shared_part = along_m ? q.b : q.a;
    if (shared_room.data) shared_part = shared_room;
    cut_part = part(cut, at);
    const int64_t rows = along_m ? n : p.k, columns = along_m ? p.k : n;
    if (cut_room.data) {
      copy(ctx, {view_of(p, cut_room, rows, columns), view_of(p, cut_part, rows, columns)});
      cut_part = cut_room;
    }
    const Matrix out = part(p.out, at, size_of(p.out_dtype()));
    q.out = out_room.data ? out_room : out;
    if (p.c.data) q.c = part(p.c, at);
    if (p.bias && !along_m) q.bias = static_cast<const uint16_t*>(p.bias) + at;
    Context step;  // of its own, for a context holds only so many blocks of scratch memory
    step.device = ctx.device, step.deterministic = ctx.deterministic, step.autotune = ctx.autotune;
    step.stream = ctx.stream, step.table = ctx.table;
    if (!blas::product(step, q)) {
      if (at == 0 || p.c.data != p.out.data) return false;
      strided_product(step, q);  // earlier pieces have been added already
    }
    if (out_room.data) copy(ctx, {view_of(q, out, q.m, q.n), view_of(q, out_room, q.m, q.n)});
    return true;
  }
};

/// Is it slow for the number of its products alone?
bool goes_by_sums(const Product& p) {
  return p.dtype == kBFloat16 && !p.widens && p.beta == 0 && p.k % kUnit != 0 && is_fast(p.a) && is_fast(p.b) &&
         is_fast(p.out);
}
bool product_by_sums(Context& ctx, const Product& p) {
  Product head = p, tail = p;
  head.k = p.k / kUnit * kUnit, tail.k = p.k - head.k;
  tail.a = from(p.a, 0, head.k), tail.b = from(p.b, head.k, 0), tail.bias = nullptr;
  head.c = p.out, head.beta = 1;
  return blas::product(ctx, tail) && blas::product(ctx, head);
}

}  // namespace

bool goes_by_pieces(const Product& p) {
  const bool fast = p.k % kUnit == 0 && is_fast(p.a) && is_fast(p.b) && (p.widens || is_fast(p.out));
  return !fast && size_of(p.dtype) == 2 && p.batch == 1 && std::min({p.m, p.n, p.k}) >= kLeast &&
         double(p.m) * double(p.n) * double(p.k) >= double(kLeastPerPiece * numbers_of_piece()) &&
         (p.beta == 0 || is_fast(p.out));
}

bool product_by_pieces(Context& ctx, const Product& p) {
  if (goes_by_sums(p)) return product_by_sums(ctx, p);
  Pieces pieces(ctx, p);
  for (int64_t at = 0; at < pieces.extent; at += pieces.size)
    if (!pieces.run(at)) return false;
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels
