#include "dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;

template <class T> LoopKernel compare(BinaryOp op) {
  const auto map = [](auto make) { return loop2<bool, T, T, P>(make); };
  switch (op) {
    case BinaryOp::Eq: return map([](const P&) { return [](T a, T b) { return a == b; }; });
    case BinaryOp::Ne: return map([](const P&) { return [](T a, T b) { return a != b; }; });
    case BinaryOp::Lt: return map([](const P&) { return [](T a, T b) { return a < b; }; });
    case BinaryOp::Le: return map([](const P&) { return [](T a, T b) { return a <= b; }; });
    case BinaryOp::Gt: return map([](const P&) { return [](T a, T b) { return a > b; }; });
    case BinaryOp::Ge: return map([](const P&) { return [](T a, T b) { return a >= b; }; });
    case BinaryOp::LogicalAnd: return map([](const P&) { return [](T a, T b) { return (a != T(0)) & (b != T(0)); }; });
    case BinaryOp::LogicalOr: return map([](const P&) { return [](T a, T b) { return (a != T(0)) | (b != T(0)); }; });
    case BinaryOp::LogicalXor: return map([](const P&) { return [](T a, T b) { return (a != T(0)) != (b != T(0)); }; });
    default: return nullptr;
  }
}

template <class T> LoopKernel bitwise(BinaryOp op) {
  const auto map = [](auto make) { return loop2<T, T, T, P>(make); };
  switch (op) {
    case BinaryOp::BitwiseAnd: return map([](const P&) { return [](T a, T b) { return T(a & b); }; });
    case BinaryOp::BitwiseOr: return map([](const P&) { return [](T a, T b) { return T(a | b); }; });
    case BinaryOp::BitwiseXor: return map([](const P&) { return [](T a, T b) { return T(a ^ b); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice binary_compare(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() -> Choice { return {compare<T>(op), 1}; });
}
Choice binary_bitwise(BinaryOp op, DType type) {
  if (is_floating(type)) return {};
  return for_integers("binary", type, [&]<class T>() -> Choice { return {bitwise<T>(op), 1}; });
}

}  // namespace tapir::inline v0::cpu
