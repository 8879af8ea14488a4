// The same call another way: on contiguous copies, compiled, on another device, by the table's reference.
#include <tapir/compile/compile.h>
#include <tapir/core/cuda.h>
#include <tapir/core/generator.h>

#include <cmath>

#include "../../op_cases/place.h"
#include "check.h"

namespace ops_fuzz {

static bool pointwise(const Call& call) { return bool(call.line->element); }

/// Overflow depends on the order of a sum, and so does the sign of an infinity that a rounding error is multiplied with.
static bool comparable(const Call& call, const List& y) {
  if (pointwise(call)) return true;
  const std::string& family = call.line->family;
  const bool special = call.line->nonfinite && family != "nn" && family != "linalg" && family != "loss";
  bool floats = false;
  for (const Tensor& t : y) floats |= t.defined() && is_floating(t.dtype());
  for (const Input& in : call.inputs) {
    if (in.fill == Fill::Extreme && floats) return false;
    if (in.fill == Fill::Special && is_floating(in.dtype) && !special) return false;
  }
  return true;
}
/// What rounding errors are measured by: a sum's terms may be larger than it is.
static double magnitude(const Call& call) {
  int64_t n = 1;
  for (const Input& in : call.inputs) n = std::max(n, pointwise(call) ? 1 : numel_of(in.shape));
  return double(n);
}
/// In units of the last place of the coarsest dtype: twice what the table allows beside the reference, for both sides round.
static double rounding(const Call& call, const List& y) {
  double coarsest = 0, finest = 1;
  for (const Input& in : call.inputs)
    if (is_floating(in.dtype)) coarsest = std::max(coarsest, last_place(in.dtype));
  for (const Tensor& t : y)
    if (t.defined() && is_floating(t.dtype())) finest = std::min(finest, last_place(t.dtype()));
  return 2 * call.line->ulps * std::max(coarsest / finest, 1.0);
}

/// What another way gives instead of `eager`.
static std::string compared(const Call& call, const Outcome& eager, const Outcome& other) {
  if (other.end == End::RuntimeError || eager.end == End::RuntimeError) return "";  // the memory that was left
  if (other.end != eager.end)
    return "expected " + std::string(name_of(eager.end)) +
           (eager.end == End::Result ? "" : " (" + eager.message + ")") + ", got " + name_of(other.end) +
           (other.end == End::Result ? "" : " (" + other.message + ")");
  if (eager.end != End::Result) return "";
  if (comparable(call, eager.y)) return differs(eager.y, other.y, rounding(call, eager.y), magnitude(call));
  const auto alike = [](const Tensor& a, const Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype()));
  };
  for (size_t k = 0; k < eager.y.size(); ++k)
    if (k >= other.y.size() || !alike(eager.y[k], other.y[k]))
      return "result " + std::to_string(k) + " has another shape or dtype";
  return "";
}

std::string beside_contiguous(const Call& call, const Outcome& eager) {
  bool plain = all_own(call);
  for (const Input& in : call.inputs) plain &= in.kind != Kind::Own || is_contiguous(in);
  if (plain) return "";
  // In place, memory that is seen twice may be refused; elsewhere layout and sharing change nothing.
  if (eager.end != End::Result && (call.form == Form::Twin || call.line->mutates)) return "";
  return compared(call, eager, run(call, build(call, kCPU, Layouts::Contiguous).x));
}

std::string beside_device(const Call& call, const Outcome& eager, Device device) {
  const Built built = build(call, device);
  const Outcome there = run(call, built.x, device);
  while (outcome_of([] { return cuda::synchronize(), List(); }).end != End::Result) {
  }  // errors that wait behind the first one
  // What the host reads in the values it does not wait for elsewhere.
  for (const char* words : {"at position", "ascend"})
    if (eager.end == End::ValueError && there.end == End::Result && eager.message.find(words) != std::string::npos)
      return "";
  if (there.end == End::Strange || there.end == End::InternalError) return there.message;
  return compared(call, eager, there);
}

/// The results, and where gradients are wanted those of the inputs.
static List with_gradients(const Call& call, const List& x) {
  List y = invoke(call, x), wanted, outputs, ones;
  for (const Tensor& t : x)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  for (const Tensor& t : y)
    if (t.defined() && t.requires_grad()) outputs.push_back(t), ones.push_back(ones_like(t));
  if (!outputs.empty() && call.form != Form::Twin)
    for (const Tensor& g : grad(outputs, wanted, ones, {.allow_unused = true})) y.push_back(g);
  for (Tensor& t : y)
    if (t.defined() && t.requires_grad()) t = t.detach();
  return y;
}

std::string beside_compiled(const Call& call, bool& replayed) {
  const auto f = [&](const List& x) { return with_gradients(call, x); };
  auto step = compile(f, {.rows = false});
  const Outcome want = outcome_of([&] { return manual_seed(7), f(build(call).x); });
  if (want.end != End::Result) return "";
  Outcome last;
  for (int i = 0; i < 4; ++i) {
    const Built built = build(call);
    last = outcome_of([&] { return manual_seed(7), step(built.x); });
    // What depends on values is refused while it is recorded; it says so.
    if (last.end == End::ValueError && last.message.find("while a program is recorded") != std::string::npos) return "";
    if (last.end == End::RuntimeError) return "";  // the memory that was left
    if (last.end != End::Result) return "call " + std::to_string(i) + " of the compiled function: " + last.message;
    if (std::string text = compared(call, want, last); !text.empty()) return "call " + std::to_string(i) + ": " + text;
  }
  replayed = step.programs() > 0;
  return "";
}

/// References work on the shapes and numbers of their line; those of a pointwise operation whose line names no shapes on any that broadcast.
static bool has_reference(const Call& call) {
  const Case& line = *call.line;
  if (!line.reference || call.form != Form::Op || !call.arguments.empty() || !all_own(call)) return false;
  bool shapes = pointwise(call) && line.shapes.back()[0] == Shape{7, 431};
  for (const std::vector<Shape>& set : line.shapes) {
    bool same = set.size() == call.inputs.size();
    for (size_t k = 0; k < set.size() && same; ++k) same = set[k] == call.inputs[k].shape;
    shapes |= same;
  }
  const DType dtype = call.inputs[0].dtype;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Input& in = call.inputs[k];
    const DType own = line.values_of(k).dtype.value_or(line.values_of(0).dtype ? in.dtype : dtype);
    // Equal numbers, of which many are among 16-bit ones, have any order.
    if (!pointwise(call) && is_floating(in.dtype) && size_of(in.dtype) == 2) return false;
    if (in.fill != Fill::Case || in.dtype != own || ((!line.expands || line.family == "linalg") && overlaps(in)))
      return false;
    if (!line.values_of(k).dtype && !op_cases::contains(line.dtypes, in.dtype)) return false;
  }
  return shapes;
}
std::string beside_reference(const Call& call, const Outcome& eager, bool& compared) {
  if (!has_reference(call)) return "";
  op_cases::Arrays values;
  for (const Tensor& x : build(call).x) values.push_back(op_cases::read(x));
  const op_cases::Arrays want = call.line->reference(values);
  compared = true;
  if (want.size() != eager.y.size())
    return "expected " + std::to_string(want.size()) + " results, got " + std::to_string(eager.y.size());
  for (size_t k = 0; k < want.size(); ++k) {
    const Tensor& y = eager.y[k];
    std::vector<double> numbers = want[k].v;
    if (!is_floating(y.dtype()))
      for (double& v : numbers) v = op_cases::wrapped(v, y.dtype());
    std::vector<double> got = op_cases::read(y).v;
    if (!(want[k].shape == y.shape())) return "expected shape " + want[k].shape.str() + ", got " + y.shape().str();
    if (std::string text = differs(numbers, got, y.dtype(), rounding(call, eager.y), magnitude(call)); !text.empty())
      return text;
  }
  return "";
}

}  // namespace ops_fuzz
