#pragma once
// Adds nodes and constants to an ONNX graph.
#include <map>
#include <optional>

#include "graph.h"

namespace tapir::inline v0::onnx {

/// A value of the graph: the output of a node, an input or an initializer.
struct Value {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
};

/// A graph under construction. Each function returns the value that its node computes, with dtype and shape.
class Builder {
 public:
  explicit Builder(std::string name) { graph.name = std::move(name); }
  Graph graph;

  /// A name that no other value of the graph has.
  std::string fresh();
  /// Adds a node with one output of this dtype and shape.
  Value node(const char* op, std::vector<std::string> inputs, DType dtype, const Shape& shape,
             std::vector<Attribute> attributes = {});
  /// The shape is the operands' broadcast shape, the dtype by default that of the last operand.
  Value pointwise(const char* op, const std::vector<Value>& inputs, std::optional<DType> dtype = {});
  Value unary(const char* op, const Value& x, std::vector<Attribute> attributes = {});
  /// Adds an initializer.
  Value constant(const Tensor& values, std::string name = "", bool extents = false);
  /// An initializer of sizes, axes or positions: its name. The second has rank 0.
  std::string extents(const std::vector<int64_t>& values);
  std::string extent(int64_t value);
  /// An initializer of rank 0, the same one for the same number.
  Value number(Scalar value, DType dtype);

  // These return x itself where it has that shape, order or dtype already.
  Value reshape(const Value& x, const Shape& shape);
  Value transpose(const Value& x, const Dims& order);
  Value expand(const Value& x, const Shape& shape);
  Value cast(const Value& x, DType dtype);

 private:
  int64_t next_ = 0;
  std::map<std::string, std::string> constants_;
};

}  // namespace tapir::inline v0::onnx
