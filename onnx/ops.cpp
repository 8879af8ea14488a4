#include "ops.h"

#include <algorithm>
#include <cmath>

namespace tapir::inline v0::onnx {
namespace {

void copy(Export& e) { e.write(e.read(1, true)); }
void fill(Export& e) { e.values.fill(e.view(0), e.call->params<Scalar>()); }

/// start + i step
void range(Export& e) {
  const auto p = e.call->params<RangeParams>();
  const bool whole = !p.start.is_float() && !p.step.is_float();
  const Shape& shape = e.view(0).shape;
  const DType dtype = whole ? kInt64 : kFloat64;
  Value y = e.b.node("Range", {e.b.extent(0), e.b.extent(shape[0]), e.b.extent(1)}, kInt64, shape);
  y = e.b.cast(y, dtype);
  if (p.step.to_double() != 1) y = e.b.pointwise("Mul", {y, e.b.number(p.step, dtype)});
  if (p.start.to_double() != 0) y = e.b.pointwise("Add", {y, e.b.number(p.start, dtype)});
  e.write(y);
}

Value norm_p(Export& e, const Value& x, const std::vector<int64_t>& axes, double p) {
  if (p == 1 || p == 2) return reduced(e, p == 1 ? "ReduceL1" : "ReduceL2", x, axes);
  if (std::isinf(p)) return reduced(e, p > 0 ? "ReduceMax" : "ReduceMin", e.b.unary("Abs", x), axes);
  if (p == 0) e.refuse();
  const Value sum = reduced(e, "ReduceSum", e.with("Pow", e.b.unary("Abs", x), p), axes);
  return e.with("Pow", sum, 1 / p);
}

Value variance(Export& e, const Value& x, const std::vector<int64_t>& axes, double correction) {
  double count = 1;
  for (const int64_t d : axes) count *= double(x.shape[d]);
  const Value centred = e.two("Sub", x, reduced(e, "ReduceMean", x, axes));
  const Value sum = reduced(e, "ReduceSum", e.two("Mul", centred, centred), axes);
  return e.with("Div", sum, std::max(0.0, count - correction));
}

void reduce(Export& e) {
  const auto p = e.call->params<ReduceParams>();
  Value x = e.read(1);
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < x.shape.size(); ++d)
    if (p.dims >> d & 1) axes.push_back(d);
  const bool logical = p.op == ReduceOp::Any || p.op == ReduceOp::All;
  x = logical ? e.b.cast(e.b.cast(x, kBool), kInt32) : e.b.cast(x, e.view(0).dtype);
  const auto plain = [&](const char* op) { e.write(axes.empty() ? x : reduced(e, op, x, axes)); };
  switch (p.op) {
    case ReduceOp::Sum: return plain("ReduceSum");
    case ReduceOp::Mean: return plain("ReduceMean");
    case ReduceOp::Prod: return plain("ReduceProd");
    case ReduceOp::Any:
    case ReduceOp::Max: return plain("ReduceMax");
    case ReduceOp::All:
    case ReduceOp::Min: return plain("ReduceMin");
    case ReduceOp::LogSumExp: return plain("ReduceLogSumExp");
    case ReduceOp::NormP: return e.write(axes.empty() ? e.b.unary("Abs", x) : norm_p(e, x, axes, p.p));
    case ReduceOp::Var: return e.write(variance(e, x, axes, p.correction));
    case ReduceOp::Std: return e.write(e.b.unary("Sqrt", variance(e, x, axes, p.correction)));
    default: e.refuse();
  }
}

void arg_reduce(Export& e) {
  const auto p = e.call->params<ArgReduceParams>();
  const Value x = e.read(1);
  e.write(e.b.node(p.op == ArgReduceOp::ArgMax ? "ArgMax" : "ArgMin", {x.name}, kInt64, e.view(0).shape,
                   {{"axis", p.dim}, {"keepdims", 1}}));
}

void scan(Export& e) {
  const auto p = e.call->params<ScanParams>();
  if (p.op != ScanOp::CumSum) e.refuse();
  const Value x = e.b.cast(e.read(2), e.view(0).dtype);
  e.write(e.b.node("CumSum", {x.name, e.b.extent(p.dim)}, x.dtype, x.shape));
}

void sort(Export& e) {
  const auto p = e.call->params<SortParams>();
  if (p.op != SortOp::Sort && p.op != SortOp::TopK) e.refuse();
  const Value x = e.read(2);
  Shape shape = x.shape;
  const int64_t k = p.op == SortOp::Sort ? shape[p.dim] : p.k;
  shape[p.dim] = k;
  const Value values{e.b.fresh(), x.dtype, shape}, indices{e.b.fresh(), kInt64, shape};
  e.b.graph.nodes.push_back({"TopK",
                             {x.name, e.b.extents({k})},
                             {values.name, indices.name},
                             {{"axis", p.dim}, {"largest", p.descending ? 1 : 0}, {"sorted", 1}}});
  if (e.has(0)) e.write(values);
  if (e.has(1)) e.values.write(e.view(1), indices);
}

void softmax(Export& e) {
  const auto p = e.call->params<SoftmaxParams>();
  e.write(e.b.unary(p.log ? "LogSoftmax" : "Softmax", e.read(1), {{"axis", p.dim}}));
}

void gather(Export& e) {
  const Value x = e.read(1), index = e.read(2);
  e.write(e.b.node("GatherElements", {x.name, index.name}, x.dtype, index.shape,
                   {{"axis", e.call->params<GatherParams>().dim}}));
}
void scatter(Export& e) {
  const auto p = e.call->params<ScatterParams>();
  const char* names[] = {"none", "add", "mul", "max", "min"};
  if (p.op >= ScatterOp::Max && e.opset < 18) e.refuse("; this reduction needs opset 18");
  const Value y = e.read(0), index = e.read(1), source = e.b.expand(e.read(2), index.shape);
  e.write(e.b.node("ScatterElements", {y.name, index.name, source.name}, y.dtype, y.shape,
                   {{"axis", p.dim}, {"reduction", names[int(p.op)]}}));
}

/// The k index tensors as one, (..., k): what GatherND and ScatterND take.
Value packed(Export& e, const std::vector<ir::View>& indices) {
  Shape shape = indices[0].shape;
  shape.push_back(1);
  std::vector<std::string> parts;
  for (const ir::View& v : indices) parts.push_back(e.b.reshape(e.values.read(v), shape).name);
  shape[shape.size() - 1] = int64_t(indices.size());
  return e.b.node("Concat", parts, kInt64, shape, {{"axis", shape.size() - 1}});
}
void index(Export& e) {
  const Value x = e.read(1);
  const std::vector<ir::View>& indices = e.call->operands[2].views;
  const Shape& shape = e.view(0).shape;
  if (indices.size() > 1) return e.write(e.b.node("GatherND", {x.name, packed(e, indices).name}, x.dtype, shape));
  e.write(e.b.node("Gather", {x.name, e.values.read(indices[0]).name}, x.dtype, shape, {{"axis", 0}}));
}
void index_put(Export& e) {
  const std::vector<ir::View>& indices = e.call->operands[2].views;
  const Value y = e.read(0), places = packed(e, indices);
  Shape shape = indices[0].shape;
  for (int64_t d = int64_t(indices.size()); d < y.shape.size(); ++d) shape.push_back(y.shape[d]);
  const Value source = e.b.expand(e.read(1), shape);
  e.write(e.b.node("ScatterND", {y.name, places.name, source.name}, y.dtype, y.shape,
                   {{"reduction", e.call->params<IndexParams>().accumulate ? "add" : "none"}}));
}

/// An entry of the backend's table, and the function that translates its calls.
struct Rule {
  std::string_view entry;
  void (*translate)(Export&);
};
constexpr Rule kRules[] = {{"copy", copy},
                           {"fill", fill},
                           {"range", range},
                           {"unary", unary},
                           {"binary", binary},
                           {"ternary", ternary},
                           {"reduce", reduce},
                           {"arg_reduce", arg_reduce},
                           {"scan", scan},
                           {"sort", sort},
                           {"softmax", softmax},
                           {"gather", gather},
                           {"scatter", scatter},
                           {"index", index},
                           {"index_put", index_put},
                           {"matmul", matmul},
                           {"conv", conv},
                           {"conv_backward_data", conv_transpose},
                           {"pool", pool},
                           {"resample", resample},
                           {"norm", norm},
                           {"attention", attention},
                           {"rnn", rnn}};

}  // namespace

Value reduced(Export& e, const char* op, const Value& x, const std::vector<int64_t>& axes) {
  Shape shape = x.shape;
  for (const int64_t d : axes) shape[d] = 1;
  if (e.opset >= 18 || std::string_view(op) == "ReduceSum")
    return e.b.node(op, {x.name, e.b.extents(axes)}, x.dtype, shape, {{"keepdims", 1}});
  return e.b.node(op, {x.name}, x.dtype, shape, {{"axes", axes}, {"keepdims", 1}});
}

ir::View transposed(ir::View v) {
  const int64_t n = v.shape.size();
  std::swap(v.shape[n - 1], v.shape[n - 2]), std::swap(v.strides[n - 1], v.strides[n - 2]);
  return v;
}

void Export::refuse(const std::string& why) const {
  fail(ErrorKind::Value, "[onnx::save] expected operations that ONNX has a form for in opset {}, got {}{}{}", opset,
       ir::label_of(*call), why, describe(call->site.get()));
}

void translate(Export& e) {
  for (const Rule& rule : kRules)
    if (ir::is(*e.call, rule.entry)) return rule.translate(e);
  e.refuse();
}

}  // namespace tapir::inline v0::onnx
