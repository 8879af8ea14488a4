#pragma once
// Kernels read and write views of memory, with strides and more than once. A value of ONNX is written once and has no strides. This file
// finds the value that a view reads.
#include "../compile/program/program.h"
#include "builder.h"

namespace tapir::inline v0::onnx {

/// The values that the blocks of a program hold while its calls are translated in order.
class Values {
 public:
  Values(Builder& builder, const ir::Program& program) : b_(builder), program_(program), held_(program.blocks.size()) {}
  /// The view's elements now hold `value`.
  void write(const ir::View& at, const Value& value);
  /// The same for a tensor, which becomes an initializer called `name` when it is first read.
  void name(const ir::View& at, const Tensor& values, const std::string& name);
  /// The view's elements now hold `number`.
  void fill(const ir::View& at, Scalar number);
  /// The value of a view; nodes are added where it needs them. `broadcast`: the result need only broadcast to the view's shape.
  Value read(const ir::View& view, bool broadcast = false);
  /// The value whose elements are exactly those of the view, so that no node is needed; nullopt where there is none.
  std::optional<Value> direct(const ir::View& view);

 private:
  /// A value, and the elements of its block that it stands for.
  struct Held {
    ir::View at;
    Value value;
    std::optional<Scalar> number = {};  // that all elements were filled with
    Tensor pending = {};                // of name(): it becomes an initializer later
  };
  using List = std::vector<Held>;  // in the order of writing
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
