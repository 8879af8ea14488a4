#include "builder.h"

#include "../ops/create.h"
#include "../ops/front.h"

namespace tapir::inline v0::onnx {

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
  for (const Value& x : inputs) names.push_back(x.name), shape = broadcast_shapes("onnx::save", shape, x.shape);
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
  if (name.empty()) name = constant(full({}, value, {.dtype = dtype})).name;
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
