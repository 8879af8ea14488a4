#include "../search.h"

#include "../bitwise.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../shape.h"
#include "../sort.h"

namespace tapir::inline v0 {

/// A number as a 0-dim tensor on `device`.
static Tensor tensor_of(const Operand& x, Device device) {
  return x.is_tensor() ? x.tensor().detach() : full({}, x.scalar(), {.device = device});
}

static Tensor search(const Tensor& sorted, const Tensor& values, bool right, bool out_int32) {
  const DType dtype = promote_types(sorted.dtype(), values.dtype());
  const Tensor from = to(sorted, dtype), wanted = to(values, dtype);
  Shape rows = values.shape();
  if (rows.empty()) rows.push_back(1);  // the kernel takes lines: one, of one value
  const bool shared = sorted.dim() == 1;
  Shape wide = rows;
  wide[wide.size() - 1] = sorted.shape().back();
  const Tensor y = empty(values.shape(), {.dtype = kInt64, .device = values.device()});
  const TensorView lines = shared ? TensorView(from).expand(wide) : TensorView(from);
  backend(y).search(context(y), {view_as(y, rows, kInt64), lines, view_as(wanted, rows, dtype), {right}});
  profiler::note_operation("searchsorted");
  if (!out_int32) return y;
  check(sorted.shape().back() <= INT32_MAX, "[searchsorted] the size of input tensor {} does not fit into int32",
        sorted);
  return to(y, kInt32);
}

Tensor searchsorted(const Tensor& given, const Operand& operand, const SearchsortedOptions& o) {
  check_defined("searchsorted", "given", given, "operand", operand);
  const Tensor values = tensor_of(operand, given.device());
  Tensor sorted = given.detach();
  common_device("searchsorted", {&sorted, &values});
  check(sorted.dim() > 0,
        "[searchsorted] input value can be a scalar only when boundaries tensor dimension is 1: got "
        "boundaries {}",
        sorted);
  bool fits = sorted.dim() == 1 || sorted.dim() == values.dim();
  for (int64_t d = 0; sorted.dim() > 1 && fits && d + 1 < sorted.dim(); ++d)
    fits = sorted.shape()[d] == values.shape()[d];
  check(fits,
        "[searchsorted] boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
        "input value tensor must match, got {} and {}",
        sorted, values);
  if (o.sorter.defined()) {
    check(o.sorter.shape() == sorted.shape() && o.sorter.dtype() == kInt64,
          "[searchsorted] expected an int64 sorter of shape {}, got {}", sorted.shape(), o.sorter);
    sorted = gather(sorted, -1, o.sorter);
  }
  return search(sorted, values, o.right, o.out_int32);
}

Tensor bucketize(const Operand& operand, const Tensor& boundaries, const BucketizeOptions& o) {
  check_defined("bucketize", "operand", operand, "boundaries", boundaries);
  check(boundaries.dim() == 1, "[bucketize] boundaries tensor must be 1 dimension, got {}", boundaries);
  const Tensor values = tensor_of(operand, boundaries.device());
  common_device("bucketize", {&values, &boundaries});
  return search(boundaries.detach(), values, o.right, o.out_int32);
}

Tensor isin(const Operand& a, const Operand& b, const IsinOptions& o) {
  check_defined("isin", "a", a, "b", b);
  check(a.is_tensor() || b.is_tensor(), "[isin] expected at least one tensor, got two numbers");
  const Device device = (a.is_tensor() ? a : b).tensor().device();
  const Tensor elements = tensor_of(a, device), tests = tensor_of(b, device);
  common_device("isin", {&elements, &tests});
  const DType dtype = promote_types(elements.dtype(), tests.dtype());
  const Tensor wanted = to(elements, dtype), sorted = sort(reshape(to(tests, dtype), -1)).first;
  Tensor found = lt(search(sorted, wanted, false, false), search(sorted, wanted, true, false));
  if (is_floating(dtype)) found = logical_and(found, eq(wanted, wanted));
  return o.invert ? logical_not(found) : found;
}

}  // namespace tapir::inline v0
