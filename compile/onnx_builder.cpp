#include <cstring>

#include "../ops/create.h"
#include "onnx_values.h"

namespace tapir::inline v0::onnx {
namespace {

Shape broadcast(const Shape& a, const Shape& b) {
  Shape s = a.size() > b.size() ? a : b;
  for (int64_t i = 0; i < s.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    s[s.size() - 1 - i] = x == 1 ? y : x;
  }
  return s;
}

}  // namespace

std::string Builder::fresh() { return graph.name + "_" + std::to_string(next_++); }

Value Builder::node(const char* op, std::vector<std::string> inputs, DType dtype, const Shape& shape,
                    std::vector<Attribute> attributes) {
  Value y{fresh(), dtype, shape};
  graph.nodes.push_back({op, std::move(inputs), {y.name}, std::move(attributes)});
  return y;
}
Value Builder::pointwise(const char* op, const std::vector<Value>& inputs, std::optional<DType> dtype) {
  std::vector<std::string> names;
  Shape shape;
  for (const Value& x : inputs) names.push_back(x.name), shape = broadcast(shape, x.shape);
  return node(op, std::move(names), dtype.value_or(inputs.back().dtype), shape);
}
Value Builder::unary(const char* op, const Value& x, std::vector<Attribute> attributes) {
  return node(op, {x.name}, x.dtype, x.shape, std::move(attributes));
}

Value Builder::constant(const Tensor& values, std::string name, bool extents) {
  if (name.empty()) name = fresh();
  graph.initializers.push_back({name, values, extents});
  return {std::move(name), values.dtype(), values.shape()};
}
std::string Builder::extents(const std::vector<int64_t>& values) { return constant(tensor(values), "", true).name; }
std::string Builder::extent(int64_t value) {
  return constant(tensor(std::span<const int64_t>(&value, 1), Shape()), "", true).name;
}
Value Builder::number(Scalar value, DType dtype) {
  const std::string key = std::to_string(int(dtype)) + tapir::format(" {} ", value) + std::to_string(value.to_double());
  std::string& name = constants_[key];
  const Tensor t = full({}, value, {.dtype = dtype});
  if (name.empty()) name = constant(t).name;
  return {name, dtype, {}};
}

Value Builder::reshape(const Value& x, const Shape& shape) {
  return x.shape == shape ? x : node("Reshape", {x.name, extents(shape.vec())}, x.dtype, shape);
}
Value Builder::transpose(const Value& x, const Dims& order) {
  Shape shape;
  bool moved = false;
  for (int64_t i = 0; i < order.size(); ++i) shape.push_back(x.shape[order[i]]), moved |= order[i] != i;
  return moved ? node("Transpose", {x.name}, x.dtype, shape, {{"perm", order.vec()}}) : x;
}
Value Builder::expand(const Value& x, const Shape& shape) {
  return x.shape == shape ? x : node("Expand", {x.name, extents(shape.vec())}, x.dtype, shape);
}
Value Builder::cast(const Value& x, DType dtype) {
  return x.dtype == dtype ? x : node("Cast", {x.name}, dtype, x.shape, {{"to", onnx_type(dtype)}});
}

}  // namespace tapir::inline v0::onnx
