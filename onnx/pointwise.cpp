#include <cmath>

#include "ops.h"

namespace tapir::inline v0::onnx {
namespace {

/// The name of the ONNX operator that computes the same; null where there is none.
const char* name_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::Neg: return "Neg";
    case UnaryOp::Abs: return "Abs";
    case UnaryOp::Sign: return "Sign";
    case UnaryOp::Exp: return "Exp";
    case UnaryOp::Log: return "Log";
    case UnaryOp::Sqrt: return "Sqrt";
    case UnaryOp::Reciprocal: return "Reciprocal";
    case UnaryOp::Sin: return "Sin";
    case UnaryOp::Cos: return "Cos";
    case UnaryOp::Tan: return "Tan";
    case UnaryOp::Asin: return "Asin";
    case UnaryOp::Acos: return "Acos";
    case UnaryOp::Atan: return "Atan";
    case UnaryOp::Sinh: return "Sinh";
    case UnaryOp::Cosh: return "Cosh";
    case UnaryOp::Tanh: return "Tanh";
    case UnaryOp::Asinh: return "Asinh";
    case UnaryOp::Acosh: return "Acosh";
    case UnaryOp::Atanh: return "Atanh";
    case UnaryOp::Sigmoid: return "Sigmoid";
    case UnaryOp::Erf: return "Erf";
    case UnaryOp::Floor: return "Floor";
    case UnaryOp::Ceil: return "Ceil";
    case UnaryOp::Round: return "Round";  // ties to even, in both
    case UnaryOp::Relu: return "Relu";
    case UnaryOp::Hardswish: return "HardSwish";
    case UnaryOp::Softsign: return "Softsign";
    default: return nullptr;
  }
}

/// x Phi(x), or its approximation by tanh.
Value gelu(Export& e, const Value& x, bool by_tanh) {
  Value inner = e.b.unary("Erf", e.with("Mul", x, std::sqrt(0.5)));
  if (by_tanh) {
    const Value cube = e.two("Mul", e.two("Mul", x, x), x);
    inner = e.b.unary("Tanh", e.with("Mul", e.two("Add", x, e.with("Mul", cube, 0.044715)), std::sqrt(2 / M_PI)));
  }
  return e.with("Mul", e.two("Mul", x, e.with("Add", inner, 1)), 0.5);
}
Value clip(Export& e, const Value& x, double low, double high) {
  const auto bound = [&](double v) { return std::isinf(v) ? "" : e.number(v, x.dtype).name; };
  return std::isinf(low) && std::isinf(high) ? x
                                             : e.b.node("Clip", {x.name, bound(low), bound(high)}, x.dtype, x.shape);
}
Value choose(Export& e, const Value& condition, const Value& a, const Value& b) {
  return e.b.pointwise("Where", {condition, a, b});
}
Value test(Export& e, const char* op, const Value& x, double v) {
  return e.b.pointwise(op, {x, e.number(v, x.dtype)}, kBool);
}
Value truncated(Export& e, const Value& x) {
  return e.two("Mul", e.b.unary("Floor", e.b.unary("Abs", x)), e.b.unary("Sign", x));
}

/// Functions that take attributes or several nodes.
std::optional<Value> composed(Export& e, const Value& x, const UnaryParams& p) {
  Builder& b = e.b;
  switch (p.op) {
    case UnaryOp::Gelu: return gelu(e, x, p.a != 0);
    case UnaryOp::GeluTanh: return gelu(e, x, true);
    case UnaryOp::Silu: return e.two("Mul", x, b.unary("Sigmoid", x));
    case UnaryOp::Mish: return e.two("Mul", x, b.unary("Tanh", b.unary("Softplus", x)));
    case UnaryOp::LeakyRelu: return b.unary("LeakyRelu", x, {{"alpha", p.a}});
    case UnaryOp::Hardsigmoid: return b.unary("HardSigmoid", x, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
    case UnaryOp::LogSigmoid: return b.unary("Neg", b.unary("Softplus", b.unary("Neg", x)));
    case UnaryOp::Tanhshrink: return e.two("Sub", x, b.unary("Tanh", x));
    case UnaryOp::Hardshrink: return b.unary("Shrink", x, {{"lambd", p.a}, {"bias", 0.0}});
    case UnaryOp::Softshrink: return b.unary("Shrink", x, {{"lambd", p.a}, {"bias", p.a}});
    case UnaryOp::Elu: {
      const Value low = e.with("Mul", e.with("Sub", b.unary("Exp", e.with("Mul", x, p.c)), 1), p.a);
      return choose(e, test(e, "Greater", x, 0), e.with("Mul", x, p.b), low);
    }
    case UnaryOp::Softplus: {
      const Value scaled = e.with("Mul", x, p.a);
      return choose(e, test(e, "Greater", scaled, p.b), x, e.with("Div", b.unary("Softplus", scaled), p.a));
    }
    case UnaryOp::Threshold: return choose(e, test(e, "Greater", x, p.a), x, e.number(p.b, x.dtype));
    case UnaryOp::Clamp: return clip(e, x, p.a, p.b);
    case UnaryOp::Square: return e.two("Mul", x, x);
    case UnaryOp::Cube: return e.two("Mul", e.two("Mul", x, x), x);
    case UnaryOp::PowScalar: return p.a == 2 ? e.two("Mul", x, x) : e.with("Pow", x, p.a);
    case UnaryOp::Rsqrt: return b.unary("Reciprocal", b.unary("Sqrt", x));
    case UnaryOp::InverseSquare: return b.unary("Reciprocal", e.two("Mul", x, x));
    case UnaryOp::Expm1: return e.with("Sub", b.unary("Exp", x), 1);
    case UnaryOp::Log1p: return b.unary("Log", e.with("Add", x, 1));
    case UnaryOp::Log2: return e.with("Div", b.unary("Log", x), M_LN2);
    case UnaryOp::Log10: return e.with("Div", b.unary("Log", x), M_LN10);
    case UnaryOp::Exp2: return b.unary("Exp", e.with("Mul", x, M_LN2));
    case UnaryOp::Erfc: return e.two("Sub", e.number(1, x.dtype), b.unary("Erf", x));
    case UnaryOp::Trunc: return truncated(e, x);
    case UnaryOp::Frac: return e.two("Sub", x, truncated(e, x));
    default: return {};
  }
}

/// Functions whose result is bool.
std::optional<Value> tested(Export& e, const Value& x, UnaryOp op) {
  switch (op) {
    case UnaryOp::LogicalNot: return e.b.unary("Not", e.b.cast(x, kBool));
    case UnaryOp::BitwiseNot: return x.dtype == kBool ? std::optional(e.b.unary("Not", x)) : std::nullopt;
    case UnaryOp::IsNan: return e.b.node("IsNaN", {x.name}, kBool, x.shape);
    case UnaryOp::IsInf: return e.b.node("IsInf", {x.name}, kBool, x.shape);
    default: return {};
  }
}

const char* name_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::Add: return "Add";
    case BinaryOp::Sub: return "Sub";
    case BinaryOp::Mul: return "Mul";
    case BinaryOp::Div: return "Div";
    case BinaryOp::Pow: return "Pow";
    case BinaryOp::Maximum: return "Max";
    case BinaryOp::Minimum: return "Min";
    case BinaryOp::Eq: return "Equal";
    case BinaryOp::Lt: return "Less";
    case BinaryOp::Le: return "LessOrEqual";
    case BinaryOp::Gt: return "Greater";
    case BinaryOp::Ge: return "GreaterOrEqual";
    case BinaryOp::LogicalAnd: return "And";
    case BinaryOp::LogicalOr: return "Or";
    case BinaryOp::LogicalXor: return "Xor";
    default: return nullptr;
  }
}
bool is_compare(BinaryOp op) { return op >= BinaryOp::Eq && op <= BinaryOp::LogicalXor; }
bool is_logical(BinaryOp op) { return op >= BinaryOp::LogicalAnd && op <= BinaryOp::LogicalXor; }

std::optional<Value> binary(Export& e, Value x, Value y, const BinaryParams& p) {
  const bool real = is_floating(x.dtype);
  if ((p.op == BinaryOp::Add || p.op == BinaryOp::Sub) && p.alpha.to_double() != 1)
    y = e.b.pointwise("Mul", {y, e.b.number(p.alpha, y.dtype)});
  if (is_logical(p.op)) x = e.b.cast(x, kBool), y = e.b.cast(y, kBool);
  if (x.dtype == kBool && (p.op == BinaryOp::Mul || p.op == BinaryOp::BitwiseAnd)) return e.two("And", x, y);
  if (x.dtype == kBool && (p.op == BinaryOp::Add || p.op == BinaryOp::BitwiseOr)) return e.two("Or", x, y);
  if (x.dtype == kBool && p.op == BinaryOp::BitwiseXor) return e.two("Xor", x, y);
  if (const char* name = name_of(p.op)) return e.b.pointwise(name, {x, y}, is_compare(p.op) ? kBool : x.dtype);
  switch (p.op) {
    case BinaryOp::Ne: return e.b.unary("Not", e.b.pointwise("Equal", {x, y}, kBool));
    case BinaryOp::Glu: return e.two("Mul", x, e.b.unary("Sigmoid", y));
    case BinaryOp::Fmod:
      return e.b.node("Mod", {x.name, y.name}, x.dtype, e.view(&entry::Binary::out).shape, {{"fmod", 1}});
    case BinaryOp::Remainder:
      if (!real) return e.two("Mod", x, y);
      return e.two("Sub", x, e.two("Mul", e.b.unary("Floor", e.two("Div", x, y)), y));
    case BinaryOp::FloorDiv:
      if (!real) return e.two("Div", e.two("Sub", x, e.two("Mod", x, y)), y);
      return e.b.unary("Floor", e.two("Div", x, y));
    case BinaryOp::TruncDiv: return real ? truncated(e, e.two("Div", x, y)) : e.two("Div", x, y);
    default: return {};
  }
}

}  // namespace

Value unary(Export& e, const Value& x, const UnaryParams& p) {
  if (const char* name = name_of(p.op)) return e.b.unary(name, x);
  auto y = composed(e, x, p);
  if (!y) y = tested(e, x, p.op);
  if (!y) e.refuse();
  return *y;
}

Value binary(Export& e) {
  using entry::Binary;
  const auto y = binary(e, e.read(&Binary::a, true), e.read(&Binary::b, true), e.call->params<BinaryParams>());
  if (!y) e.refuse();
  return *y;
}

Value ternary(Export& e) {
  using entry::Ternary;
  const auto p = e.call->params<TernaryParams>();
  const Value a = e.read(&Ternary::a, true), b = e.read(&Ternary::b, true), c = e.read(&Ternary::c, true);
  const auto scaled = [&](const Value& x) {
    return p.alpha.to_double() == 1 ? x : e.b.pointwise("Mul", {x, e.b.number(p.alpha, x.dtype)});
  };
  switch (p.op) {
    case TernaryOp::Where: return choose(e, e.b.cast(a, kBool), b, c);
    case TernaryOp::AddCMul: return e.two("Add", a, scaled(e.two("Mul", b, c)));
    case TernaryOp::AddCDiv: return e.two("Add", a, scaled(e.two("Div", b, c)));
    case TernaryOp::Lerp: return e.two("Add", a, e.two("Mul", c, e.two("Sub", b, a)));
    case TernaryOp::Clamp: return e.two("Min", e.two("Max", a, b), c);
    case TernaryOp::Prelu: return choose(e, test(e, "Greater", b, 0), a, e.two("Mul", c, a));
    default: e.refuse();
  }
}

}  // namespace tapir::inline v0::onnx
