// The arithmetic of reductions. The order is that of the ranks wherever an element is reduced, so all ranks get the same bits.
#include <algorithm>
#include <type_traits>

#include "../core/convert.h"
#include "process_group.h"
#include "transport.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr int64_t kBlock = 2048;

template <class A> A combine(A a, A b, ReduceOp op) {
  switch (op) {
    case ReduceOp::Max: return a > b || a != a ? a : b;  // NaN wins, wherever it comes from
    case ReduceOp::Min: return a < b || a != a ? a : b;
    case ReduceOp::Product:
      if constexpr (std::is_integral_v<A>) return A(uint64_t(a) * uint64_t(b));
      else return a * b;
    default:
      if constexpr (std::is_integral_v<A>) return A(uint64_t(a) + uint64_t(b));
      else return a + b;
  }
}

template <class T> void reduce_as(T* out, std::span<const void* const> pieces, int64_t n, ReduceOp op) {
  using A = std::conditional_t<is_half<T>, float, std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;
  if constexpr (std::is_same_v<T, bool>)  // any and all
    op = op == ReduceOp::Product || op == ReduceOp::Min ? ReduceOp::Min : ReduceOp::Max;
  A sums[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = std::min(kBlock, n - begin);
    for (size_t p = 0; p < pieces.size(); ++p) {
      const T* in = static_cast<const T*>(pieces[p]) + begin;
      if (p == 0)
        for (int64_t i = 0; i < m; ++i) sums[i] = A(in[i]);
      else if (op == ReduceOp::Sum || op == ReduceOp::Mean)
        for (int64_t i = 0; i < m; ++i) sums[i] = combine(sums[i], A(in[i]), ReduceOp::Sum);
      else
        for (int64_t i = 0; i < m; ++i) sums[i] = combine(sums[i], A(in[i]), op);
    }
    const A count = A(pieces.size());
    for (int64_t i = 0; i < m; ++i) out[begin + i] = T(op == ReduceOp::Mean ? A(sums[i] / count) : sums[i]);
  }
}

}  // namespace

void reduce_pieces(void* out, std::span<const void* const> pieces, int64_t n, DType dtype, int reduce) {
  const auto op = ReduceOp(reduce);
  switch (dtype) {
    case kFloat32: return reduce_as(static_cast<float*>(out), pieces, n, op);
    case kFloat64: return reduce_as(static_cast<double*>(out), pieces, n, op);
    case kFloat16: return reduce_as(static_cast<Half*>(out), pieces, n, op);
    case kBFloat16: return reduce_as(static_cast<BFloat16*>(out), pieces, n, op);
    case kInt64: return reduce_as(static_cast<int64_t*>(out), pieces, n, op);
    case kInt32: return reduce_as(static_cast<int32_t*>(out), pieces, n, op);
    case kInt16: return reduce_as(static_cast<int16_t*>(out), pieces, n, op);
    case kInt8: return reduce_as(static_cast<int8_t*>(out), pieces, n, op);
    case kUInt8: return reduce_as(static_cast<uint8_t*>(out), pieces, n, op);
    case kBool: return reduce_as(static_cast<bool*>(out), pieces, n, op);
  }
}

}  // namespace tapir::inline v0::distributed
