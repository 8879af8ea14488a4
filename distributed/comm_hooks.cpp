#include "comm_hooks.h"

#include <algorithm>

#include "../core/generator.h"
#include "../core/modes.h"
#include "../core/recorder.h"
#include "../ops/ops.h"
#include "group_state.h"

namespace tapir::inline v0::distributed {

namespace {

template <class T> T& at(std::vector<T>& list, size_t i) {
  if (list.size() <= i) list.resize(i + 1);
  return list[i];
}

Tensor as_matrix(const Tensor& g) { return g.reshape({g.size(0), g.numel() / g.size(0)}); }

/// The part of its length that a column of that dtype loses nothing by when it is rounding alone: sums of float32 and float64 round often, the
/// numbers themselves where they have 16 bits.
double noise_of(DType dtype) {
  switch (dtype) {
    case kFloat64: return 2e-14;
    case kFloat32: return 1e-5;
    case kFloat16: return 4e-3;
    default: return 3e-2;
  }
}

/// Makes the columns orthogonal and of length 1, by Gram and Schmidt. A column that the ones before it make up, but for rounding, becomes 0.
void orthogonalize_(const Tensor& columns) {
  Tensor to = columns, p = tapir::to(columns, compute_type(columns.dtype()));
  const double noise = noise_of(columns.dtype());
  const Tensor least = sum(p * p, {0}) * (noise * noise);
  for (int64_t i = 0; i < p.size(1); ++i) {
    Tensor column = p.narrow(1, i, 1);
    const Tensor square = sum(column * column);
    column.mul_(where(gt(square, least[i]), rsqrt(square), 0));
    if (i + 1 == p.size(1)) break;
    Tensor rest = p.narrow(1, i + 1, p.size(1) - i - 1);
    rest.sub_(matmul(column, matmul(column.t(), rest)));
  }
  if (!p.is_same(to)) to.copy_(p);
}

}  // namespace

AllReduceHook::AllReduceHook(std::optional<DType> dtype) : dtype_(dtype) {
  check(!dtype || (size_of(*dtype) == 2 && is_floating(*dtype)),
        "[AllReduceHook] expected compression to bfloat16 or float16, got {}", dtype.value_or(kFloat32));
}
void AllReduceHook::begin(const GradBucket& b) {
  Sent& s = at(sent_, b.index);
  const bool smaller = dtype_ && size_of(*dtype_) < size_of(b.buffer.dtype());
  s.buffer = smaller ? tapir::to(b.buffer, *dtype_) : b.buffer;
  s.work = b.group.all_reduce(s.buffer, ReduceOp::Mean, true);
}
void AllReduceHook::finish(const GradBucket& b) {
  Sent& s = at(sent_, b.index);
  s.work.wait();
  if (Tensor to = b.buffer; !s.buffer.is_same(to)) used_here(s.buffer), to.copy_(s.buffer);
  s = {};
}

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options) {
  check(options.rank > 0 && options.start_step >= 0,
        "[PowerSgdHook] expected a rank above 0 and a start_step of at least 0, got {} and {}", options.rank,
        options.start_step);
}

/// Q begins with the same random numbers on every rank.
void PowerSgdHook::prepare(State& s, const GradBucket& b) const {
  const int64_t r = options_.rank;
  s.buffer = b.buffer, s.matrices.clear(), s.others.clear();
  int64_t rows = 0, columns = 0, rest = 0;
  for (size_t i = 0; i < b.gradients.size(); ++i) {
    const Tensor& g = b.gradients[i];
    const int64_t n = g.dim() > 1 ? g.size(0) : 1, m = n ? g.numel() / n : 0;
    if (n * m > (n + m) * std::min({r, n, m})) s.matrices.push_back({.gradient = i}), rows += n, columns += m;
    else s.others.push_back(i), rest += g.numel();
  }
  const TensorOptions like{.dtype = b.buffer.dtype(), .device = b.buffer.device()};
  s.ps = empty({rows * r}, like), s.rest = empty({rest}, like);
  {
    Generator& g = default_generator();
    const uint64_t seed = g.seed(), offset = g.offset();
    g.set_state(options_.seed + b.index, 0);
    s.fresh = randn({columns * r}, {.dtype = kFloat32}).to(b.buffer.device()).to(b.buffer.dtype());
    s.qs = s.fresh.clone();
    g.set_state(seed, offset);
  }
  rows = columns = 0;
  for (Matrix& x : s.matrices) {
    const Tensor g = as_matrix(b.gradients[x.gradient]);
    x.p = s.ps.narrow(0, rows * r, g.size(0) * r).view({g.size(0), r});
    x.q = s.qs.narrow(0, columns * r, g.size(1) * r).view({g.size(1), r});
    x.fresh = s.fresh.narrow(0, columns * r, g.size(1) * r).view({g.size(1), r});
    x.error = zeros(g.shape(), like), x.given = empty(g.shape(), like);
    rows += g.size(0), columns += g.size(1);
  }
}

void PowerSgdHook::begin(const GradBucket& b) {
  if (modes.recorder)
    modes.recorder->host_acts("[PowerSgdHook] expected no compile() around backward, whose steps are counted here");
  State& s = at(states_, b.index);
  s.plain = s.steps++ < options_.start_step;
  if (s.plain) return plain_.begin(b);
  if (!s.buffer.is_same(b.buffer)) prepare(s, b);  // the first step orders buckets anew
  int64_t at = 0;
  for (const size_t i : s.others) {
    const Tensor& g = b.gradients[i];
    s.rest.narrow(0, at, g.numel()).view(g.shape()).copy_(g);
    at += g.numel();
  }
  for (Matrix& x : s.matrices) {
    x.given.copy_(as_matrix(b.gradients[x.gradient])).add_(x.error);
    x.p.copy_(matmul(x.given, x.q));
  }
  s.first = b.group.all_reduce(s.ps, ReduceOp::Mean, true);
  s.second = b.group.all_reduce(s.rest, ReduceOp::Mean, true);
}

void PowerSgdHook::finish(const GradBucket& b) {
  State& s = states_[b.index];
  if (s.plain) return plain_.finish(b);
  s.first.wait();
  for (Matrix& x : s.matrices) {
    orthogonalize_(x.p);
    x.q.copy_(matmul(x.given.t(), x.p));
  }
  b.group.all_reduce(s.qs, ReduceOp::Mean);
  for (Matrix& x : s.matrices) {
    const Tensor nearest = matmul(x.p, x.q.t());
    Tensor g = b.gradients[x.gradient];
    g.copy_(nearest.view(g.shape()));
    // An overflow ends with its step. A column of Q that is lost, to it or to a gradient of lower rank, begins anew.
    const Tensor left = x.given - nearest, length = amax(abs(x.q), {0});
    x.error.copy_(where(isfinite(left), left, 0));
    x.q.copy_(where(logical_and(isfinite(length), gt(length, 0)), x.q, x.fresh));
  }
  s.second.wait();
  int64_t at = 0;
  for (const size_t i : s.others) {
    Tensor g = b.gradients[i];
    g.copy_(s.rest.narrow(0, at, g.numel()).view(g.shape()));
    at += g.numel();
  }
}

}  // namespace tapir::inline v0::distributed
