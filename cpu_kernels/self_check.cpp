#include "self_check.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace tapir::inline v0::cpu::dnn {
namespace {

/// One problem: extents, and strides as (batch, row, column).
struct Problem {
  const char* what;
  int64_t batch, m, n, k;
  int64_t a[3], b[3], out[3];
  bool bias;
  float beta;
};
constexpr Problem kProblems[] = {
    {"one row whose elements lie apart", 1, 1, 16, 70, {0, 1, 2}, {0, 16, 1}, {0, 16, 1}, false, 0},
    {"one row by rows with gaps", 1, 1, 16, 70, {0, 70, 1}, {0, 20, 1}, {0, 16, 1}, false, 0},
    {"one row by columns with gaps", 1, 1, 16, 70, {0, 70, 1}, {0, 1, 72}, {0, 16, 1}, true, 0},
    {"rows with gaps by one column", 1, 16, 1, 70, {0, 72, 1}, {0, 1, 1}, {0, 1, 1}, false, 1},
    {"sums added into rows with gaps", 1, 5, 16, 9, {0, 1, 6}, {0, 16, 1}, {0, 20, 1}, false, 1},
    {"sums of one product", 1, 5, 16, 1, {0, 3, 1}, {0, 1, 2}, {0, 16, 1}, true, 0},
    {"interleaved matrices, transposed", 2, 3, 17, 9, {9, 18, 1}, {9, 1, 18}, {17, 34, 1}, false, 0},
};
constexpr int64_t kMost = 1 << 11;  // elements of an operand

double value(DType t, const char* memory, int64_t i) {
  return t == kBFloat16 ? float(reinterpret_cast<const BFloat16*>(memory)[i])
                        : reinterpret_cast<const float*>(memory)[i];
}
/// Small integers, which any order of summing adds exactly.
void fill(DType t, char* memory, uint32_t seed) {
  for (int64_t i = 0; i < kMost; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float v = float(int((seed >> 16) % 5) - 2);
    if (t == kBFloat16) reinterpret_cast<BFloat16*>(memory)[i] = BFloat16(v);
    else reinterpret_cast<float*>(memory)[i] = v;
  }
}
Matrix matrix(char* memory, const int64_t* strides) { return {memory, strides[0], strides[1], strides[2]}; }

/// Whether each element of out is right, and what lies between them untouched. A problem that is refused counts as right.
bool is_right(const Context& caller, const Problem& p, DType dtype, CheckedProduct::Product product) {
  alignas(64) char a[kMost * 4], b[kMost * 4], out[kMost * 4], before[kMost * 4], bias[kMost * 4];
  fill(dtype, a, 1), fill(dtype, b, 2), fill(dtype, out, 3), fill(dtype, before, 3), fill(kFloat32, bias, 4);
  Gemm g;
  g.dtype = dtype, g.batch = p.batch, g.m = p.m, g.n = p.n, g.k = p.k;
  g.a = matrix(a, p.a), g.b = matrix(b, p.b), g.out = matrix(out, p.out);
  g.beta = dtype == kFloat32 ? p.beta : 0;
  if (p.bias) g.bias = reinterpret_cast<const float*>(bias);
  Context ctx;  // of its own: the caller may have used most of its blocks of scratch memory
  ctx.device = caller.device, ctx.table = caller.table;
  if (!product(ctx, g)) return true;
  for (int64_t at = 0; at < p.batch; ++at)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const int64_t to = at * p.out[0] + i * p.out[1] + j * p.out[2];
        double sum = p.bias ? value(kFloat32, bias, j) : 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += value(dtype, a, at * p.a[0] + i * p.a[1] + k * p.a[2]) *
                 value(dtype, b, at * p.b[0] + k * p.b[1] + j * p.b[2]);
        if (g.beta != 0) sum += g.beta * value(dtype, before, to);
        if (!(std::abs(value(dtype, out, to) - sum) <= (dtype == kBFloat16 ? std::abs(sum) / 128 : 0))) return false;
        std::memcpy(out + to * size_of(dtype), before + to * size_of(dtype), size_t(size_of(dtype)));
      }
  return std::memcmp(out, before, size_t(kMost * size_of(dtype))) == 0;
}

}  // namespace

bool CheckedProduct::check(const Context& ctx) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::Unknown) return state_ == State::Right;
  const char* wrong = nullptr;
  for (const Problem& p : kProblems)
    if (!wrong && !is_right(ctx, p, dtype_, product_)) wrong = p.what;
  if (wrong)
    std::fprintf(stderr,
                 "tapir: warning: %s multiplies %s matrices wrongly on this CPU (%s): our own kernels take its place\n",
                 library_.c_str(), std::string(name_of(dtype_)).c_str(), wrong);
  state_ = wrong ? State::Wrong : State::Right;
  return !wrong;
}

}  // namespace tapir::inline v0::cpu::dnn
