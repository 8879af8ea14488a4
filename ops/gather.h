#pragma once
#include <optional>
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// `index` names a position along dim for each of its elements; its other extents may be smaller than those of the tensors.

/// out[i][j][k] = x[i][index[i][j][k]][k] for dim = 1; out has index's shape.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// gather of x and indices broadcast to each other apart from dim; no dim: of both flattened. Negative indices count from the end.
Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim = {});
/// x with source (or a number) at the places that gather(x, dim, index) would read; reduce "add" or "multiply" combines them.
/// Of several elements for one place one wins.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce = "");
Tensor& scatter_(Tensor& self, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce = "");
/// The same with source added.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor& scatter_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source);

struct IncludeSelfOptions {
  bool include_self = true;  // x's element counts among those that meet at its place
};
/// Elements of source that meet at one place of x become their "sum", "prod", "mean", "amax" or "amin".
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      const IncludeSelfOptions& options = {});
Tensor& scatter_reduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                        const IncludeSelfOptions& options = {});
/// The same for whole slices: slice i of source along dim goes to position index[i]; reduce: all but "sum".
Tensor index_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    const IncludeSelfOptions& options = {});
Tensor& index_reduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      const IncludeSelfOptions& options = {});

}  // namespace tapir::inline v0
