#include "fused_call.h"

#include <algorithm>
#include <cmath>

#include "../random/philox.h"
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
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
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i narrow = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(narrow));
    }
#elif defined(__aarch64__)
    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vcvt_f16_f32(vld1q_f32(x + i))));
#endif
    for (; i < n; ++i) out[i] = float(Half(x[i]));
  }
}
int32_t limit_of(const FusedStep& keep) { return int32_t(Philox::drop_limit(keep.numbers[0].to_double())); }
template <class T> void where_words(int64_t n, void* const* data, const void* limit) {
  T* out = static_cast<T*>(data[0]);
  const uint32_t* words = static_cast<const uint32_t*>(data[1]);
  const T *a = static_cast<const T*>(data[2]), *b = static_cast<const T*>(data[3]);
  const int32_t from = *static_cast<const int32_t*>(limit);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], y = b[i];
    out[i] = int32_t(words[i] >> 8) >= from ? x : y;
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
  find_words();
  choose_kernels();
}

/// Keeps that are read by nothing but Where.
void FusedCall::find_words() {
  for (int i = 0; i < count_; ++i) {
    if (steps_[i].kind != FusedKind::Keep) continue;
    bool words = true;
    for (int j = i + 1; j < count_; ++j) {
      const FusedStep& s = steps_[j];
      const bool is_where = s.kind == FusedKind::Ternary && TernaryOp(s.op) == TernaryOp::Where;
      for (int k = 0; k < s.arity(); ++k)
        words &= s.operand[k] != i || (k == 0 && is_where && (s.type == kFloat32 || s.type == kFloat64));
    }
    if (words) values_[i].words = true, values_[i].size = 4;
  }
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
    if (s.kind == FusedKind::Ternary && values_[s.operand[0]].words) {
      choice.kernel = s.type == kFloat32 ? where_words<float> : where_words<double>;
      numbers_[i].limit = limit_of(steps_[s.operand[0]]);
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

void FusedCall::keep(int i, int64_t flat, int64_t n, char** at) const {
  const FusedStep& s = steps_[i];
  const auto seed = uint64_t(s.numbers[1].to_int());
  uint64_t offset = uint64_t(s.numbers[2].to_int());
  if (s.operand[0] != i) offset += uint64_t(*reinterpret_cast<const int64_t*>(at[s.operand[0]]));
  const int64_t skip = flat % 4;
  if (values_[i].words) {
    words_of(seed, offset, flat - skip, n + skip, 0, reinterpret_cast<uint32_t*>(at[i]));
    at[i] += skip * 4;
    return;
  }
  constexpr int64_t kPart = 512;
  alignas(64) uint32_t words[kPart + 8];
  const int32_t limit = limit_of(s);
  for (int64_t done = 0; done < n; done += kPart) {
    const int64_t some = std::min(kPart, n - done);
    words_of(seed, offset, flat - skip + done, some + skip, 0, words);
    bool* const to = reinterpret_cast<bool*>(at[i]) + done;
    for (int64_t k = 0; k < some; ++k) to[k] = int32_t(words[k + skip] >> 8) >= limit;
  }
}

}  // namespace tapir::inline v0::cpu
