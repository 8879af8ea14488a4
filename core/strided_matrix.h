#pragma once
#include "view.h"

// A batch of matrices by its strides: what the products of both devices are told. Not for public headers.
namespace tapir::inline v0 {

/// Element (i, j) of batch t lies at data + t batch + i row + j column, in elements.
struct StridedMatrix {
  void* data = nullptr;
  int64_t batch = 0, row = 0, column = 0;
};

/// The last two dimensions of x, and the one before them. Nothing where x is absent.
inline StridedMatrix strided_matrix(const TensorView& x) {
  if (!x.defined()) return {};
  const int64_t r = x.rank;
  return {x.data, r > 2 && x.sizes[r - 3] > 1 ? x.strides[r - 3] : 0, x.strides[r - 2], x.strides[r - 1]};
}
inline StridedMatrix transposed(const StridedMatrix& x) { return {x.data, x.batch, x.column, x.row}; }

/// A batch of products p that shares one operand is one taller or wider product. `added` has the extents of p.out, or no data.
template <class Product> void join_batch(Product& p, const StridedMatrix& added) {
  const auto joins = [](const StridedMatrix& x, int64_t stride, int64_t extent) {
    return !x.data || x.batch == stride * extent;
  };
  if (p.batch > 1 && p.b.batch == 0 && joins(p.a, p.a.row, p.m) && joins(p.out, p.out.row, p.m) &&
      joins(added, added.row, p.m))
    p.m *= p.batch, p.batch = 1;
  else if (p.batch > 1 && p.a.batch == 0 && joins(p.b, p.b.column, p.n) && joins(p.out, p.out.column, p.n) &&
           joins(added, added.column, p.n))
    p.n *= p.batch, p.batch = 1;
}

}  // namespace tapir::inline v0
