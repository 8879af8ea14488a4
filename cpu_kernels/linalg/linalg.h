#pragma once
// What the files linalg*.cpp share, and nobody else includes: Eigen is slow to compile. Its decompositions keep their workspaces
// themselves; each is small beside the matrix it works on.
#include "../../core/error.h"  // before Eigen, which calls it
#ifndef NDEBUG
#define eigen_assert(x) ((x) ? void() : ::tapir::fail(::tapir::ErrorKind::Internal, "[linalg] Eigen expected {}", #x))
#endif
#include <Eigen/Core>

#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu {

using Views = std::span<const TensorView>;

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T> using RowMatrix =
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;  // as tensors mostly lie
template <class T> using Strided = Eigen::Map<Matrix<T>, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

/// The first element of batch element `index`: all dimensions but the last `tail` are batches.
template <class T> T* element(V v, int64_t index, int64_t tail) {
  T* p = v.as<T>();
  for (int64_t d = v.rank - tail; d-- > 0; index /= v.sizes[d]) p += index % v.sizes[d] * v.strides[d];
  return p;
}
/// Matrix `index` of a batch, as it lies.
template <class T> Strided<T> matrix_at(V v, int64_t index) {
  const int64_t r = v.rank;
  return {element<T>(v, index, 2), v.sizes[r - 2], v.sizes[r - 1], {v.strides[r - 1], v.strides[r - 2]}};
}
/// Vector `index` of a batch, as a column.
template <class T> Strided<T> vector_at(V v, int64_t index) {
  return {element<T>(v, index, 1), v.sizes[v.rank - 1], 1, {0, v.strides[v.rank - 1]}};
}
/// v, absent where the list is shorter.
inline TensorView view_or_absent(Views list, size_t i) { return i < list.size() ? list[i] : TensorView(); }

/// f<T>(index) for each matrix of the batch that v belongs to; `tail` of its dimensions are no batches.
template <class F> void for_each_matrix(V v, int64_t tail, F&& f) {
  int64_t batch = 1, work = 1;
  for (int64_t d = 0; d < v.rank - tail; ++d) batch *= v.sizes[d];
  for (int64_t d = v.rank - tail; d < v.rank; ++d) work *= v.sizes[d] + 4;
  for_floats("linalg", v.dtype, [&]<class T>() {
    parallel_for(batch, std::max<int64_t>(1, (1 << 12) / work), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) f.template operator()<T>(i);
    });
  });
}

void qr(Views outs, V a);
void eigh(Context&, Views outs, V a, bool upper);
void svd(Context&, Views outs, V a);
void matrix_exp(V y, V a);

}  // namespace tapir::inline v0::cpu
