#pragma once
// From blocks that kernels write and views that they read to ONNX's values, which are written once and have no strides.
#include <map>
#include <optional>

#include "onnx_graph.h"
#include "program.h"

namespace tapir::inline v0::onnx {

/// A value of the graph.
struct Value {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
};

/// Adds nodes to a graph, and knows the shapes of what they make.
class Builder {
 public:
  explicit Builder(std::string name) { graph.name = std::move(name); }
  Graph graph;

  std::string fresh();
  /// A node with one output of that dtype and shape.
  Value node(const char* op, std::vector<std::string> inputs, DType dtype, const Shape& shape,
             std::vector<Attribute> attributes = {});
  /// Pointwise: the dtype and the broadcast shapes of the operands.
  Value pointwise(const char* op, const std::vector<Value>& inputs, std::optional<DType> dtype = {});
  Value unary(const char* op, const Value& x, std::vector<Attribute> attributes = {});
  Value constant(const Tensor& values, std::string name = "", bool extents = false);
  /// A list of extents, axes or places.
  std::string extents(const std::vector<int64_t>& values);
  std::string extent(int64_t value);  // of rank 0
  Value number(Scalar value, DType dtype);

  // No node where there is nothing to do.
  Value reshape(const Value& x, const Shape& shape);
  Value transpose(const Value& x, const Dims& order);
  Value expand(const Value& x, const Shape& shape);
  Value cast(const Value& x, DType dtype);

 private:
  int64_t next_ = 0;
  std::map<std::string, std::string> constants_;
};

/// What the blocks of a program hold, call after call.
class Values {
 public:
  Values(Builder& builder, const ir::Program& program) : b_(builder), program_(program), held_(program.blocks.size()) {}
  /// The block holds, at these places, that value.
  void write(const ir::View& at, const Value& value);
  /// The same for a tensor that becomes an initializer when it is read.
  void name(const ir::View& at, const Tensor& values, const std::string& name);
  /// Remembers that `at` was filled with a number.
  void fill(const ir::View& at, Scalar number);
  /// The elements of a view; a number becomes a constant. `broadcast`: axes of stride 0 may have extent 1, or be left out in front.
  Value read(const ir::View& view, bool broadcast = false);
  /// The value that lies there exactly as the view sees it, without a node.
  std::optional<Value> direct(const ir::View& view);

 private:
  struct Held {
    ir::View at;
    Value value;
    std::optional<Scalar> number = {};  // filled with it
    Tensor pending = {};                // not in the graph yet
  };
  using List = std::vector<Held>;
  Value& value_of(Held& h);
  void add(const ir::View& at, Held held);
  void take_outside(const ir::View& view);
  void assemble(List& list);
  bool concatenate(List& list);
  bool pad(List& list);
  void scatter(List& list);
  Value derive(Held& from, const ir::View& view, bool broadcast);
  std::optional<Value> by_slices(const Value& flat, int64_t count, int64_t offset, const Dims& sizes,
                                 const Dims& strides);

  Builder& b_;
  const ir::Program& program_;
  std::vector<List> held_;
};

}  // namespace tapir::inline v0::onnx
