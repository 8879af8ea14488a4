// The table that binds names of recorded calls to ours.
#pragma once
#include <functional>

#include "value.h"

namespace conformance {

/// What a call gives: tensors, or plain numbers.
struct Result {
  Tensor tensor;
  std::optional<Scalar> number;
  Result(Tensor t) : tensor(std::move(t)) {}
  Result(Scalar s) : number(s) {}
};
using Results = std::vector<Result>;
using Call = std::function<Results(Args&)>;
/// Writes its first argument in place.
using InplaceCall = std::function<void(Tensor&, Args&)>;

struct Binding {
  Call call;
  InplaceCall inplace;
};
std::map<std::string, Binding>& bindings();

/// One table a family, each in its own file.
void bind_pointwise();
void bind_reduction();
void bind_shape();
void bind_index();
void bind_matmul();
void bind_linalg();
void bind_nn();
void bind_loss();

inline Results list_results(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

}  // namespace conformance
