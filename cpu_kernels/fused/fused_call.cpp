#include "fused_call.h"

#include <algorithm>
#include <cmath>

#include "../random/philox.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace tapir::inline v0::cpu {
namespace {

/// float32 to a 16-bit float and back, in one loop.
template <DType kHalf> void round_values(int64_t n, void* to, const void* from) {
  const float* x = static_cast<const float*>(from);
  float* out = static_cast<float*>(to);
  if constexpr (kHalf == kBFloat16) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = float(BFloat16(x[i]));
  } else {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
      const __m128i narrow = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(narrow));
    }
#endif
    for (; i < n; ++i) out[i] = float(Half(x[i]));
  }
}
/// Does `s` take back what `x`, a cast of `source`, narrowed?
bool is_rounding(const FusedStep& s, const FusedStep& x, const FusedStep& source) {
  return s.kind == FusedKind::Cast && s.type == kFloat32 && x.kind == FusedKind::Cast && source.type == kFloat32 &&
         (x.type == kBFloat16 || x.type == kFloat16);
}

}  // namespace

FusedCall::FusedCall(const entry::Fused& c)
    : count_(int(c.params->count)), outputs_(int(c.outs.size())), inputs_(int(c.ins.size())) {
  check_internal(count_ <= kFusedSteps && c.outs.size() <= kFusedOutputs && c.ins.size() <= kFusedInputs,
                 "[fused] expected at most {} steps, got {}", kFusedSteps, count_);
  operands_.make(outputs_ + inputs_), values_.make(count_), numbers_.make(count_);
  steps_.make(count_);
  for (int i = 0; i < count_; ++i) {
    FusedStep& s = steps_[i] = c.params->steps[i];
    values_[i].size = size_of(s.type);
    if (const FusedStep& x = steps_[s.operand[0]]; is_rounding(s, x, steps_[x.operand[0]])) {
      s.operand[0] = x.operand[0];
      values_[i].convert = x.type == kBFloat16 ? round_values<kBFloat16> : round_values<kFloat16>;
    }
    ordered_ |= s.kind == FusedKind::Keep;
    for (int k = 0; k < s.arity(); ++k) values_[s.operand[k]].last = std::max(values_[s.operand[k]].last, i);
    if (s.kind == FusedKind::Keep) values_[s.operand[0]].last = std::max(values_[s.operand[0]].last, i);
    if (s.kind == FusedKind::Store) values_[s.operand[0]].last = count_;  // stores stand at a tile's end
  }
  for (int k = 0; k < outputs_ + inputs_; ++k) {
    const TensorView& v = k < outputs_ ? c.outs[size_t(k)] : c.ins[size_t(k - outputs_)];
    operands_[k].data = v.as<char>(), operands_[k].size = size_of(v.dtype);
  }
  choose_kernels();
}

void FusedCall::choose_kernels() {
  for (int i = 0; i < count_; ++i) {
    const FusedStep& s = steps_[i];
    const DType from = steps_[s.operand[0]].type;
    Choice choice;
    switch (s.kind) {
      case FusedKind::Cast:
        if (!values_[i].convert) values_[i].convert = converter(s.type, from);
        break;
      case FusedKind::Unary: choice = choice_for(numbers_[i].unary = s.unary(), from); break;
      case FusedKind::Binary: choice = choice_for(numbers_[i].binary = s.binary(), from); break;
      case FusedKind::Ternary: choice = choice_for(numbers_[i].ternary = s.ternary(), steps_[s.operand[1]].type); break;
      default: break;
    }
    values_[i].kernel = choice.kernel;
    cost_ += choice.cost;
    computing_ += computes(i);
  }
}

void FusedCall::run_step(int i, int64_t from, int64_t n, char* const* at) const {
  const FusedStep& s = steps_[i];
  const FusedValue& v = values_[i];
  void* data[4] = {at[i] + from * v.size};
  for (int k = 0; k < s.arity(); ++k) data[k + 1] = at[s.operand[k]] + from * values_[s.operand[k]].size;
  if (v.kernel) v.kernel(n - from, data, &numbers_[i]);
  else v.convert(n - from, data[0], data[1]);
}

void FusedCall::keep(int i, int64_t flat, int64_t n, char* const* at, uint32_t* words) const {
  const FusedStep& s = steps_[i];
  uint64_t offset = uint64_t(s.numbers[2].to_int());
  if (s.operand[0] != i) offset += uint64_t(*reinterpret_cast<const int64_t*>(at[s.operand[0]]));
  const auto limit = uint32_t(std::ceil(s.numbers[0].to_double() * 0x1p24));
  const int64_t skip = flat % 4;
  words_of(uint64_t(s.numbers[1].to_int()), offset, flat - skip, n + skip, 0, words);
  bool* to = reinterpret_cast<bool*>(at[i]);
  for (int64_t k = 0; k < n; ++k) to[k] = words[k + skip] >> 8 >= limit;
}

}  // namespace tapir::inline v0::cpu
