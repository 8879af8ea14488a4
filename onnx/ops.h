#pragma once
// Translates kernel calls to ONNX nodes. A family of entries is a file: pointwise.cpp, network.cpp, rnn.cpp, and ops.cpp for the others.
#include "values.h"

namespace tapir::inline v0::onnx {

/// The graph under construction, and the call that is translated now.
struct Export {
  int64_t opset = 17;
  Builder b;
  Values values;
  const ir::Call* call = nullptr;

  Export(const ir::Program& program, const std::string& name, int64_t opset)
      : opset(opset), b(name), values(b, program) {}
  const ir::View& view(size_t i) const { return call->view(i); }
  bool has(size_t i) const { return view(i).kind != ir::View::Kind::Absent; }
  Value read(size_t i, bool broadcast = false) { return values.read(view(i), broadcast); }
  void write(const Value& v) { values.write(view(0), v); }
  Value number(double v, DType dtype) { return b.number(v, dtype); }
  /// op(x, v), in x's dtype.
  Value with(const char* op, const Value& x, double v) { return b.pointwise(op, {x, number(v, x.dtype)}, x.dtype); }
  Value two(const char* op, const Value& x, const Value& y) { return b.pointwise(op, {x, y}); }
  /// Throws a ValueError with the name of the call and where it was made.
  [[noreturn]] void refuse(const std::string& why = "") const;
};

/// Adds the nodes that compute what e.call writes.
void translate(Export& e);

/// A reduction over `axes`, which keep the extent 1. ReduceSum has its axes as an input, the others from opset 18 on.
Value reduced(Export& e, const char* op, const Value& x, const std::vector<int64_t>& axes);
/// The view with its last two dimensions exchanged.
ir::View transposed(ir::View v);

// One function for each entry of the backend's table, called by translate().
Value unary(Export& e, const Value& x, const UnaryParams& p);
void unary(Export& e);
void binary(Export& e);
void ternary(Export& e);
void matmul(Export& e);
void conv(Export& e);
void conv_transpose(Export& e);
void pool(Export& e);
void resample(Export& e);
void norm(Export& e);
void attention(Export& e);
void rnn(Export& e);

}  // namespace tapir::inline v0::onnx
