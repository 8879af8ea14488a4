#pragma once
#include "../autograd/arith.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Sums over `dims` (all when empty). Integers and bool give int64 unless a dtype is asked for.
Tensor sum(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
/// Means over `dims` (all when empty) of a floating-point tensor; of nothing: NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});

struct KeepdimOptions {
  bool keepdim = false;
};
/// Products over `dims` (all when empty); integers and bool give int64.
Tensor prod(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
/// The same with every NaN left out: a sum of nothing is 0, a mean of nothing NaN.
Tensor nansum(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
Tensor nanmean(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
/// How many elements over `dims` (all when empty) are not 0; int64.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});
/// Is one element (are all elements) not 0? bool; uint8 for uint8. Of nothing: false (true).
Tensor any(const Tensor& x, const Dims& dims = {}, const KeepdimOptions& options = {});
Tensor all(const Tensor& x, const Dims& dims = {}, const KeepdimOptions& options = {});
/// ln of the sum of e^x, without overflow; integers give float32. Of nothing: -inf.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, const KeepdimOptions& options = {});

}  // namespace tapir::inline v0
