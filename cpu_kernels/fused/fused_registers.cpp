#include "fused_registers.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tapir::inline v0::cpu {
namespace {

using Bits = int32_t __attribute__((vector_size(kVectorBytes)));

void save(float* p, Vector v) { std::memcpy(p, &v, sizeof(v)); }
void stream(float* p, Vector v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX__)
  _mm256_stream_ps(p, v);
#else
  save(p, v);
#endif
}
/// The upper 24 bits of random words.
Bits load_words(const char* p) {
  uint32_t __attribute__((vector_size(kVectorBytes))) v;
  std::memcpy(&v, p, sizeof(v));
  return Bits(v >> 8);
}
Vector root(Vector v) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, v);  // the plain one reads what is not set, says g++ 12
#elif defined(__AVX__)
  return _mm256_sqrt_ps(v);
#elif defined(__aarch64__)
  return vsqrtq_f32(v);
#else
  for (int64_t i = 0; i < kLanes<float>; ++i) v[i] = std::sqrt(v[i]);
  return v;
#endif
}

// The formulas of core/formulas whose every operation is one of IEEE's, which no compiler contracts with another one.
template <auto kOp> Vector apply(Vector x) {
  if constexpr (kOp == UnaryOp::Neg) return -x;
  else if constexpr (kOp == UnaryOp::Abs) return Vector(Bits(x) & 0x7fffffff);
  else if constexpr (kOp == UnaryOp::Square) return x * x;
  else if constexpr (kOp == UnaryOp::Relu) return x < 0 ? Vector{} : x;
  else if constexpr (kOp == UnaryOp::Sqrt) return root(x);
  else return 1 / x;
}
template <auto kOp> Vector apply(Vector a, Vector b) {
  if constexpr (kOp == BinaryOp::Add) return a + b;
  else if constexpr (kOp == BinaryOp::Sub) return a - b;
  else if constexpr (kOp == BinaryOp::Mul) return a * b;
  else if constexpr (kOp == BinaryOp::Div) return a / b;
  else if constexpr (kOp == BinaryOp::Maximum) return ((a > b) | (a != a)) ? a : b;
  else if constexpr (kOp == BinaryOp::Minimum) return ((a < b) | (a != a)) ? a : b;
  else return b > 0 ? a : Vector{};  // ReluGrad
}

#define TAPIR_BLOCK \
  const BlockStep *s, int64_t at, Vector a, Vector b, Vector c, Vector d, Vector e, Vector f, Vector g, Vector h
#define TAPIR_NEXT return s[1].run(s + 1, at, a, b, c, d, e, f, g, h)

template <UnaryOp kOp> void unary_block(TAPIR_BLOCK) {
  a = apply<kOp>(a), b = apply<kOp>(b), c = apply<kOp>(c), d = apply<kOp>(d);
  e = apply<kOp>(e), f = apply<kOp>(f), g = apply<kOp>(g), h = apply<kOp>(h);
  TAPIR_NEXT;
}
template <BinaryOp kOp, Other kOther, bool kSwapped> void binary_block(TAPIR_BLOCK) {
  const float* const p = s->memory + at;
  const auto step = [p, number = s->number](Vector x, int64_t i) {
    const Vector y = kOther == Other::Memory   ? load(p + i * kLanes<float>)
                     : kOther == Other::Number ? number - Vector{}
                                               : x;
    return kSwapped ? apply<kOp>(y, x) : apply<kOp>(x, y);
  };
  a = step(a, 0), b = step(b, 1), c = step(c, 2), d = step(d, 3);
  e = step(e, 4), f = step(f, 5), g = step(g, 6), h = step(h, 7);
  TAPIR_NEXT;
}
template <Other kOther, bool kSwapped, bool kWords> void where_block(TAPIR_BLOCK) {
  const float* const p = s->memory + at;
  const char* const mask = s->mask + at * (kWords ? 4 : 1);
  const auto step = [p, mask, s](Vector x, int64_t i) {
    const Vector y = kOther == Other::Memory   ? load(p + i * kLanes<float>)
                     : kOther == Other::Number ? s->number - Vector{}
                                               : x;
    const Bits chosen = kWords ? load_words(mask + i * kVectorBytes) >= s->limit
                               : Bits(load_int(reinterpret_cast<const int8_t*>(mask) + i * kLanes<float>)) != 0;
    return kSwapped ? (chosen ? y : x) : (chosen ? x : y);
  };
  a = step(a, 0), b = step(b, 1), c = step(c, 2), d = step(d, 3);
  e = step(e, 4), f = step(f, 5), g = step(g, 6), h = step(h, 7);
  TAPIR_NEXT;
}
void load_block(TAPIR_BLOCK) {
  const float* const p = s->memory + at;
  a = load(p), b = load(p + kLanes<float>), c = load(p + 2 * kLanes<float>), d = load(p + 3 * kLanes<float>);
  e = load(p + 4 * kLanes<float>), f = load(p + 5 * kLanes<float>), g = load(p + 6 * kLanes<float>),
  h = load(p + 7 * kLanes<float>);
  TAPIR_NEXT;
}
void number_block(TAPIR_BLOCK) {
  a = b = c = d = e = f = g = h = s->number - Vector{};
  TAPIR_NEXT;
}
template <void (*kStore)(float*, Vector)> void store_block(TAPIR_BLOCK) {
  float* const p = s->memory + at;
  kStore(p, a), kStore(p + kLanes<float>, b), kStore(p + 2 * kLanes<float>, c), kStore(p + 3 * kLanes<float>, d);
  kStore(p + 4 * kLanes<float>, e), kStore(p + 5 * kLanes<float>, f), kStore(p + 6 * kLanes<float>, g),
      kStore(p + 7 * kLanes<float>, h);
  TAPIR_NEXT;
}
template <Vector (*kFold)(Vector, Vector)> void reduce_block(TAPIR_BLOCK) {
  const Vector all = kFold(kFold(kFold(a, b), kFold(c, d)), kFold(kFold(e, f), kFold(g, h)));
  save(s->memory, kFold(load(s->memory), all));
  TAPIR_NEXT;
}
void end_block(const BlockStep*, int64_t, Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector) {}
#undef TAPIR_BLOCK
#undef TAPIR_NEXT

template <BinaryOp kOp> BlockStep::Run binary_function(Other other, bool swapped) {
  if (other == Other::Same) return binary_block<kOp, Other::Same, false>;
  if (other == Other::Memory)
    return swapped ? binary_block<kOp, Other::Memory, true> : binary_block<kOp, Other::Memory, false>;
  return swapped ? binary_block<kOp, Other::Number, true> : binary_block<kOp, Other::Number, false>;
}
template <bool kWords> BlockStep::Run where_function(Other other, bool swapped) {
  if (other == Other::Same) return where_block<Other::Same, false, kWords>;
  if (other == Other::Memory)
    return swapped ? where_block<Other::Memory, true, kWords> : where_block<Other::Memory, false, kWords>;
  return swapped ? where_block<Other::Number, true, kWords> : where_block<Other::Number, false, kWords>;
}

}  // namespace

BlockStep::Run block_function(const FusedStep& s, Other other, bool swapped) {
  if (s.type != kFloat32) return nullptr;
  if (s.kind == FusedKind::Unary) {
    switch (UnaryOp(s.op)) {
      case UnaryOp::Neg: return unary_block<UnaryOp::Neg>;
      case UnaryOp::Abs: return unary_block<UnaryOp::Abs>;
      case UnaryOp::Square: return unary_block<UnaryOp::Square>;
      case UnaryOp::Relu: return unary_block<UnaryOp::Relu>;
      case UnaryOp::Sqrt: return unary_block<UnaryOp::Sqrt>;
      case UnaryOp::Reciprocal: return unary_block<UnaryOp::Reciprocal>;
      default: return nullptr;
    }
  }
  if (s.kind == FusedKind::Ternary)
    return TernaryOp(s.op) == TernaryOp::Where ? block_where(other, swapped, false) : nullptr;
  if (s.kind != FusedKind::Binary) return nullptr;
  const BinaryOp op = BinaryOp(s.op);
  if ((op == BinaryOp::Add || op == BinaryOp::Sub) && s.numbers[0].to_double() != 1) return nullptr;
  switch (op) {
    case BinaryOp::Add: return binary_function<BinaryOp::Add>(other, swapped);
    case BinaryOp::Sub: return binary_function<BinaryOp::Sub>(other, swapped);
    case BinaryOp::Mul: return binary_function<BinaryOp::Mul>(other, swapped);
    case BinaryOp::Div: return binary_function<BinaryOp::Div>(other, swapped);
    case BinaryOp::Maximum: return binary_function<BinaryOp::Maximum>(other, swapped);
    case BinaryOp::Minimum: return binary_function<BinaryOp::Minimum>(other, swapped);
    case BinaryOp::ReluGrad: return binary_function<BinaryOp::ReluGrad>(other, swapped);
    default: return nullptr;
  }
}
BlockStep::Run block_where(Other other, bool swapped, bool words) {
  return words ? where_function<true>(other, swapped) : where_function<false>(other, swapped);
}
BlockStep::Run block_load() { return load_block; }
BlockStep::Run block_number() { return number_block; }
BlockStep::Run block_save() { return store_block<save>; }
BlockStep::Run block_stream() { return store_block<stream>; }
BlockStep::Run block_reduce(ReduceOp op) {
  return op == ReduceOp::Sum ? reduce_block<apply<BinaryOp::Add>> : reduce_block<apply<BinaryOp::Maximum>>;
}
float block_start(ReduceOp op) { return op == ReduceOp::Sum ? 0 : -std::numeric_limits<float>::infinity(); }
BlockStep::Run block_end() { return end_block; }

int64_t run_blocks(const BlockStep* steps, int64_t n, Fetcher& fetcher, int64_t fetched) {
  const Vector none{};
  int64_t at = 0;
  for (; at + kBlock <= n; at += kBlock) {
    fetcher.move(fetched);
    steps->run(steps, at, none, none, none, none, none, none, none, none);
  }
  return at;
}

}  // namespace tapir::inline v0::cpu
