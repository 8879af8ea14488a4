// Gradients: beside finite differences, and whether backward ends well on anything.
#include <tapir/core/generator.h>
#include <tapir/functional/gradcheck.h>

#include <cmath>

#include "../../op_cases/place.h"
#include "check.h"

namespace ops_fuzz {

/// What finite differences vary: every element, each with two calls.
static constexpr int64_t kMostVaried = 200;

static bool is_small(const Arguments& arguments) {
  const auto found = arguments.find(0);
  if (found == arguments.end()) return true;
  const auto* i = std::get_if<int64_t>(&found->second);
  const auto* d = std::get_if<double>(&found->second);
  return i ? *i >= -20 && *i <= 20 : !d || std::abs(*d) <= 20;
}

/// The line's function has a derivative at these numbers, as far as the table knows.
static bool has_differences(const Call& call) {
  const Case& line = *call.line;
  if (!line.differentiable || call.form == Form::Twin || line.mutates || !all_own(call)) return false;
  if (call.form == Form::Op && !call.arguments.empty()) return false;
  if (call.form == Form::Pair && !is_small(call.arguments)) return false;  // fmod of a large one has a kink everywhere
  bool any = false;
  int64_t varied = 0;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Input& in = call.inputs[k];
    if ((varied += extent_of(in)) > kMostVaried) return false;
    const op_cases::Values& values = line.values_of(k);
    // An index may come twice: the order of two writes.
    if (is_integral(in.dtype) && (!is_contiguous(in) || double(numel_of(in.shape)) > values.high - values.low))
      return false;
    if (numel_of(in.shape) == 0 || in.fill != Fill::Case || overlaps(in)) return false;
    if (in.dtype != values.dtype.value_or(kFloat64)) return false;
    any |= in.dtype == kFloat64 && !values.constant;
  }
  return any;
}
static bool all_small(const List& y) {
  for (const Tensor& t : y) {
    if (!t.defined()) return false;
    for (const double v : op_cases::read(t).v)
      if (!(std::abs(v) < 1e4)) return false;
  }
  return true;
}

std::string beside_differences(const Call& call, bool& compared) {
  if (!has_differences(call)) return "";
  List leaves;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const std::vector<char> bytes = storage_of(call, k);
    const DType dtype = call.inputs[k].dtype;
    leaves.push_back(tensor_from_host(bytes.data(), dtype, int64_t(bytes.size()) / size_of(dtype), {.dtype = dtype}));
    if (dtype == kFloat64 && !call.line->values_of(k).constant) leaves.back().requires_grad_();
  }
  const auto f = [&](const List& from) {
    List x;
    for (size_t k = 0; k < from.size(); ++k)
      x.push_back(as_strided(from[k], call.inputs[k].shape, call.inputs[k].strides, call.inputs[k].offset));
    manual_seed(7);
    return invoke(call, x);
  };
  const Outcome y = outcome_of([&] { return f(leaves); });
  if (y.end != End::Result) return "with gradients it throws: " + y.message;
  bool any = false;
  for (const Tensor& t : y.y) any |= t.defined() && t.requires_grad();
  if (!any || !all_small(y.y)) return "";
  compared = true;
  const Outcome end = outcome_of([&] { return gradcheck(f, leaves), List(); });
  // A gradient may be refused, as that of a complete QR decomposition.
  const bool refused = end.end == End::ValueError && !end.message.starts_with("[gradcheck]");
  return refused || end.end == End::RuntimeError ? "" : end.message;
}

std::string after_backward(const Built& built, const Outcome& eager, bool& ran) {
  for (const Tensor& y : eager.y) {
    if (!y.defined() || !y.requires_grad()) continue;
    if (!is_floating(y.dtype())) return "a result of integers requires a gradient";
    ran = true;
    const Outcome end = outcome_of([&] { return y.backward(ones_like(y), true), List(); });
    if (end.end == End::Strange || end.end == End::InternalError) return end.message;
  }
  for (size_t k = 0; k < built.leaves.size(); ++k) {
    const Tensor& leaf = built.leaves[k];
    if (!leaf.defined() || !leaf.grad().defined()) continue;
    if (!(leaf.grad().shape() == leaf.shape()) || leaf.grad().dtype() != leaf.dtype())
      return "the gradient of input " + std::to_string(k) + " has another shape or dtype";
  }
  return "";
}

}  // namespace ops_fuzz
