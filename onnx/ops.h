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
  // The call's operands by their names: read(&entry::Norm::x).
  template <class E, class T> const auto& view(T E::*operand) const { return (*call)[operand]; }
  template <class E, class T> bool has(T E::*operand) const { return view(operand).kind != ir::View::Kind::Absent; }
  template <class E, class T> Value read(T E::*operand, bool broadcast = false) {
    return values.read(view(operand), broadcast);
  }
  template <class E, class T> void write(T E::*operand, const Value& v) { values.write(view(operand), v); }
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

// What a call of an entry computes, for translate(), which writes it; rnn() has several outputs and writes them itself.
Value unary(Export& e, const Value& x, const UnaryParams& p);
Value binary(Export& e);
Value ternary(Export& e);
Value matmul(Export& e);
Value conv(Export& e);
Value conv_transpose(Export& e);
Value pool(Export& e);
Value resample(Export& e);
Value norm(Export& e);
Value attention(Export& e);
void rnn(Export& e);

}  // namespace tapir::inline v0::onnx
