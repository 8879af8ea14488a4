#pragma once
// Kernel calls as ONNX nodes: what the files onnx_*.cpp share.
#include "onnx_values.h"

namespace tapir::inline v0::onnx {

/// The graph that is made, and the call that is translated now.
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
  /// x op number, in x's dtype.
  Value with(const char* op, const Value& x, double v) { return b.pointwise(op, {x, number(v, x.dtype)}, x.dtype); }
  Value two(const char* op, const Value& x, const Value& y) { return b.pointwise(op, {x, y}); }
  /// ValueError that names the call and where it was made.
  [[noreturn]] void refuse(const std::string& why = "") const;
};

/// Adds the nodes of e.call.
void translate(Export& e);

// By family, in onnx_pointwise.cpp, onnx_network.cpp and onnx_rnn.cpp.
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
