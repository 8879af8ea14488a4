#include "run.h"

#include <tapir/core/cuda.h>
#include <tapir/core/generator.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "../../op_cases/place.h"

namespace ops_fuzz {

const char* name_of(End end) {
  const char* names[] = {"a result", "ValueError", "RuntimeError", "InternalError", "another exception"};
  return names[int(end)];
}

namespace {
struct Opening {
  Opening(const Arguments* instead, Arguments* seen) { opened = {instead, seen}; }
  ~Opening() { opened = {}; }
};

template <class T> T taken(const Call& call, int k, T otherwise) {
  const auto found = call.arguments.find(k);
  if (found == call.arguments.end()) return otherwise;
  const T* value = std::get_if<T>(&found->second);
  return value ? *value : otherwise;
}
}  // namespace

/// Constant 0: keepdim; the others: the dimensions.
static List reduced(const Call& call, const List& x) {
  Dims dims;
  for (int k = 1; call.arguments.contains(k); ++k) dims.push_back(taken<int64_t>(call, k, 0));
  if (call.line->one_dim && dims.size() == 0) dims.push_back(0);
  return call.line->reduce(x[0], dims, taken(call, 0, false));
}
/// Constant 0: the number; constant 1: whether it stands first.
static List paired(const Call& call, const List& x) {
  Scalar number = 2;
  if (const auto found = call.arguments.find(0); found != call.arguments.end()) {
    if (const auto* i = std::get_if<int64_t>(&found->second)) number = *i;
    if (const auto* d = std::get_if<double>(&found->second)) number = *d;
    if (const auto* b = std::get_if<bool>(&found->second)) number = *b;
  }
  if (taken(call, 1, false)) return {call.line->pair(number, x[0])};
  return {call.line->pair(x[0], number)};
}

List invoke(const Call& call, const List& x) {
  const Opening guard(&call.arguments, nullptr);
  switch (call.form) {
    case Form::Reduce: return reduced(call, x);
    case Form::Pair: return paired(call, x);
    case Form::Op: return call.line->call(x);
    case Form::Twin: break;
  }
  Tensor self = x[0];
  const Tensor* given = call.line->twin_call(self, x);
  if (given != &self) throw std::logic_error("the twin does not return self");
  return {self};
}

Outcome run(const Call& call, const List& x, Device device) {
  return outcome_of([&] {
    manual_seed(7);
    List y = invoke(call, x);
    if (device.is_cuda()) cuda::synchronize();
    return y;
  });
}

const Arguments& constants_of(const Call& call) {
  static std::unordered_map<const Case*, Arguments> of_op, of_twin;
  auto& all = call.form == Form::Twin ? of_twin : of_op;
  const auto [found, fresh] = all.try_emplace(call.line);
  if (!fresh) return found->second;
  Call plain{call.line, call.form, {}, {}};
  for (const Shape& shape : call.line->shapes[0]) {
    const op_cases::Values& values = call.line->values_of(plain.inputs.size());
    DType dtype = kFloat32;
    while (!op_cases::contains(call.line->dtypes, dtype)) dtype = DType(int(dtype) + 1);
    plain.inputs.push_back(
        {.dtype = values.dtype.value_or(dtype), .shape = shape, .strides = contiguous_strides(shape)});
  }
  const List x = build(plain).x;
  outcome_of([&] {
    const Opening guard(nullptr, &found->second);
    if (call.form != Form::Twin) return call.line->call(x);
    Tensor self = x[0];
    call.line->twin_call(self, x);
    return List();
  });
  return found->second;
}

/// An expanded result may have any number of elements.
static constexpr int64_t kMostCompared = 1 << 20;

double last_place(DType t) {
  return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : t == kBFloat16 ? 0x1p-7 : 0;
}
static double smallest(DType t) { return t == kFloat16 ? 0x1p-24 : t == kFloat64 ? 0x1p-1022 : 0x1p-126; }

static double largest(DType t) {
  return t == kFloat64 ? std::numeric_limits<double>::max() : t == kFloat16 ? 65504 : std::numeric_limits<float>::max();
}

static std::string number(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", v);
  return text;
}

std::string differs(const std::vector<double>& w, const std::vector<double>& g, DType dtype, double ulps,
                    double magnitude) {
  double sum = 0, count = 0;
  for (const double v : w)
    if (std::isfinite(v)) sum += std::abs(v), ++count;
  const double mean = std::max(magnitude, count ? sum / count : 0), unit = ulps * last_place(dtype);
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] == g[i] || (std::isnan(w[i]) && std::isnan(g[i]))) continue;
    // A reference has no overflow.
    if (std::isinf(g[i]) && ulps > 0 && std::abs(w[i]) > largest(dtype) * (1 - unit) && (w[i] > 0) == (g[i] > 0))
      continue;
    if (std::isfinite(w[i]) && ulps > 0 &&
        std::abs(g[i] - w[i]) <= unit * (std::abs(w[i]) + mean) + ulps * smallest(dtype))
      continue;
    return "element " + std::to_string(i) + ": expected " + number(w[i]) + ", got " + number(g[i]);
  }
  return "";
}

static std::string differs(const Tensor& want, const Tensor& got, double ulps, double magnitude) {
  if (!want.defined() || !got.defined()) return want.defined() == got.defined() ? "" : "one result is undefined";
  if (!(want.shape() == got.shape())) return "expected shape " + want.shape().str() + ", got " + got.shape().str();
  if (want.dtype() != got.dtype())
    return "expected " + std::string(tapir::name_of(want.dtype())) + ", got " +
           std::string(tapir::name_of(got.dtype()));
  if (want.numel() == 0 || want.numel() > kMostCompared) return "";
  const NoGrad guard;
  const Tensor w = want.detach().cpu().contiguous(), g = got.detach().cpu().contiguous();
  if (std::memcmp(w.data_ptr(), g.data_ptr(), size_t(w.numel() * size_of(w.dtype()))) == 0) return "";
  if (!is_floating(want.dtype())) ulps = 0;
  return differs(op_cases::read(w).v, op_cases::read(g).v, w.dtype(), ulps, magnitude);
}
std::string differs(const List& want, const List& got, double ulps, double magnitude) {
  if (want.size() != got.size())
    return "expected " + std::to_string(want.size()) + " results, got " + std::to_string(got.size());
  for (size_t k = 0; k < want.size(); ++k)
    if (std::string text = differs(want[k], got[k], ulps, magnitude); !text.empty())
      return (want.size() > 1 ? "result " + std::to_string(k) + ", " : "") + text;
  return "";
}

}  // namespace ops_fuzz
