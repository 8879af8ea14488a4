#include "ops.h"

#include <algorithm>
#include <cmath>

namespace tapir::inline v0::onnx {
namespace {

/// start + i step
Value range(Export& e) {
  const auto p = e.call->params<RangeParams>();
  const bool whole = !p.start.is_float() && !p.step.is_float();
  const Shape& shape = e.view(&entry::Range::out).shape;
  const DType dtype = whole ? kInt64 : kFloat64;
  Value y = e.b.node("Range", {e.b.extent(0), e.b.extent(shape[0]), e.b.extent(1)}, kInt64, shape);
  y = e.b.cast(y, dtype);
  if (p.step.to_double() != 1) y = e.b.pointwise("Mul", {y, e.b.number(p.step, dtype)});
  if (p.start.to_double() != 0) y = e.b.pointwise("Add", {y, e.b.number(p.start, dtype)});
  return y;
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

Value reduce(Export& e) {
  const auto p = e.call->params<ReduceParams>();
  Value x = e.read(&entry::Reduce::x);
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < x.shape.size(); ++d)
    if (p.dims >> d & 1) axes.push_back(d);
  const bool logical = p.op == ReduceOp::Any || p.op == ReduceOp::All;
  x = logical ? e.b.cast(e.b.cast(x, kBool), kInt32) : e.b.cast(x, e.view(&entry::Reduce::out).dtype);
  const auto plain = [&](const char* op) { return axes.empty() ? x : reduced(e, op, x, axes); };
  switch (p.op) {
    case ReduceOp::Sum: return plain("ReduceSum");
    case ReduceOp::Mean: return plain("ReduceMean");
    case ReduceOp::Prod: return plain("ReduceProd");
    case ReduceOp::Any:
    case ReduceOp::Max: return plain("ReduceMax");
    case ReduceOp::All:
    case ReduceOp::Min: return plain("ReduceMin");
    case ReduceOp::LogSumExp: return plain("ReduceLogSumExp");
    case ReduceOp::NormP: return axes.empty() ? e.b.unary("Abs", x) : norm_p(e, x, axes, p.p);
    case ReduceOp::Var: return variance(e, x, axes, p.correction);
    case ReduceOp::Std: return e.b.unary("Sqrt", variance(e, x, axes, p.correction));
    default: e.refuse();
  }
}

Value arg_reduce(Export& e) {
  const auto p = e.call->params<ArgReduceParams>();
  const Value x = e.read(&entry::ArgReduce::x);
  return e.b.node(p.op == ArgReduceOp::ArgMax ? "ArgMax" : "ArgMin", {x.name}, kInt64,
                  e.view(&entry::ArgReduce::out).shape, {{"axis", p.dim}, {"keepdims", 1}});
}

Value scan(Export& e) {
  const auto p = e.call->params<ScanParams>();
  if (p.op != ScanOp::CumSum) e.refuse();
  const Value x = e.b.cast(e.read(&entry::Scan::x), e.view(&entry::Scan::out).dtype);
  return e.b.node("CumSum", {x.name, e.b.extent(p.dim)}, x.dtype, x.shape);
}

void sort(Export& e) {
  using entry::Sort;
  const auto p = e.call->params<SortParams>();
  if (p.op != SortOp::Sort && p.op != SortOp::TopK) e.refuse();
  const Value x = e.read(&Sort::x);
  Shape shape = x.shape;
  const int64_t k = p.op == SortOp::Sort ? shape[p.dim] : p.k;
  shape[p.dim] = k;
  const Value values{e.b.fresh(), x.dtype, shape}, indices{e.b.fresh(), kInt64, shape};
  e.b.graph.nodes.push_back({"TopK",
                             {x.name, e.b.extents({k})},
                             {values.name, indices.name},
                             {{"axis", p.dim}, {"largest", p.descending ? 1 : 0}, {"sorted", 1}}});
  if (e.has(&Sort::values)) e.write(&Sort::values, values);
  if (e.has(&Sort::indices)) e.write(&Sort::indices, indices);
}

Value softmax(Export& e) {
  const auto p = e.call->params<SoftmaxParams>();
  return e.b.unary(p.log ? "LogSoftmax" : "Softmax", e.read(&entry::Softmax::x), {{"axis", p.dim}});
}

Value gather(Export& e) {
  const Value x = e.read(&entry::Gather::x), index = e.read(&entry::Gather::index);
  return e.b.node("GatherElements", {x.name, index.name}, x.dtype, index.shape,
                  {{"axis", e.call->params<GatherParams>().dim}});
}
Value scatter(Export& e) {
  using entry::Scatter;
  const auto p = e.call->params<ScatterParams>();
  const char* names[] = {"none", "add", "mul", "max", "min"};
  if (p.op >= ScatterOp::Max && e.opset < 18) e.refuse("; this reduction needs opset 18");
  const Value y = e.read(&Scatter::out), index = e.read(&Scatter::index),
              source = e.b.expand(e.read(&Scatter::source), index.shape);
  return e.b.node("ScatterElements", {y.name, index.name, source.name}, y.dtype, y.shape,
                  {{"axis", p.dim}, {"reduction", names[int(p.op)]}});
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
Value index(Export& e) {
  const Value x = e.read(&entry::Index::x);
  const std::vector<ir::View>& indices = e.view(&entry::Index::indices);
  const Shape& shape = e.view(&entry::Index::out).shape;
  if (indices.size() > 1) return e.b.node("GatherND", {x.name, packed(e, indices).name}, x.dtype, shape);
  return e.b.node("Gather", {x.name, e.values.read(indices[0]).name}, x.dtype, shape, {{"axis", 0}});
}
Value index_put(Export& e) {
  using entry::IndexPut;
  const std::vector<ir::View>& indices = e.view(&IndexPut::indices);
  const Value y = e.read(&IndexPut::out), places = packed(e, indices);
  Shape shape = indices[0].shape;
  for (int64_t d = int64_t(indices.size()); d < y.shape.size(); ++d) shape.push_back(y.shape[d]);
  const Value source = e.b.expand(e.read(&IndexPut::source), shape);
  return e.b.node("ScatterND", {y.name, places.name, source.name}, y.dtype, y.shape,
                  {{"reduction", e.call->params<IndexParams>().accumulate ? "add" : "none"}});
}

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
  using namespace entry;
  switch (e.call->entry) {
    case Id::copy: return e.write(&Copy::out, e.read(&Copy::x, true));
    case Id::fill: return e.values.fill(e.view(&Fill::out), e.call->params<Scalar>());
    case Id::range: return e.write(&Range::out, range(e));
    case Id::unary: return e.write(&Unary::out, unary(e, e.read(&Unary::x), e.call->params<UnaryParams>()));
    case Id::binary: return e.write(&Binary::out, binary(e));
    case Id::ternary: return e.write(&Ternary::out, ternary(e));
    case Id::reduce: return e.write(&Reduce::out, reduce(e));
    case Id::arg_reduce: return e.write(&ArgReduce::out, arg_reduce(e));
    case Id::scan: return e.write(&Scan::out, scan(e));
    case Id::sort: return sort(e);
    case Id::softmax: return e.write(&Softmax::y, softmax(e));
    case Id::gather: return e.write(&Gather::out, gather(e));
    case Id::scatter: return e.write(&Scatter::out, scatter(e));
    case Id::index: return e.write(&entry::Index::out, index(e));
    case Id::index_put: return e.write(&IndexPut::out, index_put(e));
    case Id::matmul: return e.write(&Matmul::out, matmul(e));
    case Id::conv: return e.write(&Conv::y, conv(e));
    case Id::conv_backward_data: return e.write(&ConvBackwardData::dx, conv_transpose(e));
    case Id::pool: return e.write(&Pool::y, pool(e));
    case Id::resample: return e.write(&Resample::y, resample(e));
    case Id::norm: return e.write(&Norm::y, norm(e));
    case Id::attention: return e.write(&Attention::out, attention(e));
    case Id::rnn: return rnn(e);
    default: e.refuse();
  }
}

}  // namespace tapir::inline v0::onnx
