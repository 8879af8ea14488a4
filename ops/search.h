#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

struct SearchsortedOptions {
  bool right = false;      // behind equal elements, not before them
  bool out_int32 = false;  // int32 instead of int64
  Tensor sorter = {};      // the order in which `sorted` is sorted along its last dimension, as argsort gives it
};
/// Where each of values (..., m) would be inserted to keep sorted (..., n), or one sorted vector, in order: (..., m).
Tensor searchsorted(const Tensor& sorted, const Operand& values, const SearchsortedOptions& options = {});
struct BucketizeOptions {
  bool right = false;
  bool out_int32 = false;
};
/// The number of the bucket between ascending boundaries (n) that each of values lies in: 0 to n.
Tensor bucketize(const Operand& values, const Tensor& boundaries, const BucketizeOptions& options = {});
struct IsinOptions {
  bool assume_unique = false;  // of no use here
  bool invert = false;
};
/// Is each of elements among test_elements? bool, of the shape of elements. A NaN never is.
Tensor isin(const Operand& elements, const Operand& test_elements, const IsinOptions& options = {});

}  // namespace tapir::inline v0
