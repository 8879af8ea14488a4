#include <algorithm>
#include <array>
#include <cmath>

#include "../../core/denormals.h"
#include "../../core/formulas/optimizer.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../stage.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {
namespace {

using formulas::StepNumbers;
constexpr int64_t kGrain = 16384;  // elements

/// Where one run of elements lies: parameter, gradient, which is only read, states.
template <class C> using Slots = std::array<C*, 5>;

/// Elements from i on: kTogether vectors of each of the K operands are read before the first is written. A read that follows a write to an
/// address with the same last 12 bits waits for it, and operands often begin at nearly the same place of a page.
constexpr int kTogether = 4;
template <int K, class C>
[[gnu::always_inline]] inline void update_vectors(const StepNumbers<C>& c, const Slots<C>& s, int64_t i) {
  typedef C Lanes __attribute__((vector_size(kVectorBytes)));  // aligned, unlike Vec
  Lanes v[kTogether][K];
#pragma GCC unroll 20
  for (int k = 0; k < kTogether * K; ++k) v[k / K][k % K] = load(s[size_t(k % K)] + i + k / K * kLanes<C>);
#pragma GCC unroll 4
  for (auto& one : v) formulas::update(c.op, c, one);
#pragma GCC unroll 20
  for (int k = 0; k < kTogether * K; ++k)
    if (k % K != 1) store<C>(s[size_t(k % K)] + i + k / K * kLanes<C>, v[k / K][k % K]);
}
/// n elements; the last ones by way of a block of zeros.
template <int K, class C> void update_by_vectors(const StepNumbers<C>& numbers, const Slots<C>& s, int64_t n) {
  constexpr int64_t kBlock = kTogether * kLanes<C>;
  const StepNumbers<C> c = numbers;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) update_vectors<K>(c, s, i);
  if (i == n) return;
  C rest[K][kBlock] = {};
  Slots<C> in{};
  for (size_t k = 0; k < K; ++k) in[k] = rest[k], std::copy_n(s[k] + i, n - i, rest[k]);
  update_vectors<K>(c, in, 0);
  for (size_t k = 0; k < K; ++k)
    if (k != 1) std::copy_n(rest[k], n - i, s[k] + i);
}

template <OptimizerOp kOp, int K, class C>
void update_one_by_one(const StepNumbers<C>& numbers, const Slots<C>& s, int64_t n) {
  C* __restrict const p = s[0];
  const C* __restrict const g = s[1];
  C* __restrict const first = s[2];
  C* __restrict const second = s[3];
  C* __restrict const third = s[4];
  const StepNumbers<C> c = numbers;
  for (int64_t i = 0; i < n; ++i) {
    C v[K] = {p[i], g[i]};
    if constexpr (K > 2) v[2] = first[i];
    if constexpr (K > 3) v[3] = second[i];
    if constexpr (K > 4) v[4] = third[i];
    formulas::update(kOp, c, v);
    p[i] = v[0];
    if constexpr (K > 2) first[i] = v[2];
    if constexpr (K > 3) second[i] = v[3];
    if constexpr (K > 4) third[i] = v[4];
  }
}

template <OptimizerOp kOp, int K, class C>
void update_run(const StepNumbers<C>& numbers, const Slots<C>& s, int64_t n) {
  if constexpr (kOp == OptimizerOp::Sgd || kOp == OptimizerOp::Adam) update_by_vectors<K>(numbers, s, n);
  else update_one_by_one<kOp, K>(numbers, s, n);
}

template <class C> using Update = void (*)(const StepNumbers<C>&, const Slots<C>&, int64_t);

template <class C> Update<C> update_for(const OptimizerParams& p) {
  using O = OptimizerOp;
  const int states = formulas::states_of(p);
  switch (p.op) {
    case O::Sgd: return states ? update_run<O::Sgd, 3, C> : update_run<O::Sgd, 2, C>;
    case O::Adam:
    case O::AdamW: return states == 3 ? update_run<O::Adam, 5, C> : update_run<O::Adam, 4, C>;
    case O::Adagrad: return update_run<O::Adagrad, 3, C>;
    case O::Adadelta: return update_run<O::Adadelta, 4, C>;
    case O::Adamax: return update_run<O::Adamax, 4, C>;
    case O::NAdam: return update_run<O::NAdam, 4, C>;
    case O::RAdam: return update_run<O::RAdam, 4, C>;
    case O::RMSprop:
      return states == 1   ? update_run<O::RMSprop, 3, C>
             : states == 2 ? update_run<O::RMSprop, 4, C>
                           : update_run<O::RMSprop, 5, C>;
    case O::Rprop: return update_run<O::Rprop, 4, C>;
    case O::ASGD: return update_run<O::ASGD, 3, C>;
    case O::Lion: return update_run<O::Lion, 3, C>;
  }
  fail(ErrorKind::Internal, "[optimizer_step] unknown operation {}", int64_t(p.op));
}

/// The operands of one parameter: 2 to 5 views; states that the operation has not are absent. Behind them, where the value is a float32
/// copy, the parameter of 16 bits.
struct Operands {
  const TensorView* view[6] = {};
  int count = 0;
  bool copies = false;

  Operands(const entry::OptimizerStep& c, size_t i) {
    const std::span<const TensorView> lists[] = {c.values, c.grads, c.first, c.second, c.third};
    for (const auto& list : lists)
      if (list.empty()) break;
      else view[count++] = &list[i];
    copies = c.values.size() > c.grads.size();
    if (copies) view[count] = &c.values[c.grads.size() + i];
  }
  /// All of dtype C and in one layout without gaps: then one flat loop serves.
  template <class C> bool flat() const {
    if (copies) return false;
    for (int k = 0; k < count; ++k)
      if (view[k]->dtype != dtype_of<C> || !same_strides(*view[0], *view[k])) return false;
    return view[0]->is_contiguous() || is_dense(*view[0]);
  }
  template <class C> Slots<C> slots(int64_t from) const {
    const auto at = [&](int k) { return k < count ? view[k]->as<C>() + from : nullptr; };
    return {at(0), at(1), at(2), at(3), at(4)};
  }
};

constexpr int64_t kPiece = 512;  // elements
/// Where a run of elements ends that would end before element `at` of n, which lie in rows of `row`. A product and the sum that follows are
/// rounded once or twice, in the last elements of a run perhaps otherwise than before them: so that bits do not depend on the number of
/// threads, runs end where a row does or a multiple of kPiece in it.
int64_t run_end(int64_t at, int64_t n, int64_t row) { return at < n ? at - at % row % kPiece : n; }

/// n float32 copies become what the step starts from; parameters: what they are copies of, of that dtype.
template <class C> void start_from(DType dtype, int64_t n, C* copies, const C* parameters) {
  for_any_float("optimizer_step", dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) copies[i] = formulas::start_of(copies[i], C(T(copies[i])), parameters[i]);
  });
}

/// Any strides and dtypes: blocks are converted to C, updated and converted back.
template <class C>
void update_strided(const Operands& operands, Update<C> update, const StepNumbers<C>& k, int64_t first, int64_t last) {
  alignas(64) C block[6][kPiece];
  std::array<const int64_t*, 6> strides;
  const int count = operands.count, all = count + operands.copies;
  for (int i = 0; i < 6; ++i) strides[size_t(i)] = operands.view[i < all ? i : 0]->strides;
  const Walk<6> walk(operands.view[0]->shape(), strides);
  const int64_t row = walk.inner();
  first = run_end(first, walk.total, row), last = run_end(last, walk.total, row);
  walk.run(first, last, [&](int64_t, int64_t size, const std::array<int64_t, 6>& at) {
    for (int64_t done = 0; done < size; done += kPiece) {
      const int64_t n = std::min(kPiece, size - done);
      const auto offset = [&](int i) { return at[size_t(i)] + done * walk.step(i); };
      for (int i = 0; i < all; ++i) load_row(*operands.view[i], offset(i), walk.step(i), n, block[i]);
      if (operands.copies) start_from(operands.view[count]->dtype, n, block[0], block[count]);
      update(k, {block[0], block[1], block[2], block[3], block[4]}, n);
      for (int i = 0; i < count; ++i)
        if (i != 1) store_row(*operands.view[i], offset(i), walk.step(i), n, block[i]);
      if (operands.copies) store_row(*operands.view[count], offset(count), walk.step(count), n, block[0]);
    }
  });
}

template <class C> void update_all(const entry::OptimizerStep& c, const StepNumbers<C>& k) {
  const Update<C> update = update_for<C>(c.params);
  int64_t total = 0;
  for (V g : c.grads) total += g.numel();
  // Many small tensors and a few large ones balance alike: what is split is the row of all elements.
  parallel_for(total, kGrain, [&](int64_t first, int64_t last) {
    int64_t start = 0;
    for (size_t i = 0; i < c.grads.size() && start < last; ++i) {
      const int64_t n = c.grads[i].numel(), from = std::max<int64_t>(first - start, 0), to = std::min(last - start, n);
      start += n;
      if (from >= to) continue;
      const Operands operands(c, i);
      if (operands.template flat<C>()) {
        const int64_t begin = run_end(from, n, n);
        update(k, operands.template slots<C>(begin), run_end(to, n, n) - begin);
      } else update_strided(operands, update, k, from, to);
    }
  });
}

}  // namespace

void optimizer_step(Context&, const entry::OptimizerStep& c) {
  if (c.found_inf.defined() && number_of(c.found_inf) != 0) return;
  const double lr = number_of(c.lr), inv_scale = c.inv_scale.defined() ? number_of(c.inv_scale) : 1;
  const double beta1 = c.beta1.defined() ? number_of(c.beta1) : c.params.beta1;
  const double t = double(++*c.step.as<int64_t>());
  const auto step_as = [&]<class C>() {
    update_all<C>(c, formulas::numbers_of<C>(c.params, lr, t, inv_scale, beta1, c.numbers.as<float>()));
  };
  if (c.values.empty()) return;
  const detail::FlushDenormals flush(c.values[0].dtype);
  if (c.values[0].dtype == kFloat64) step_as.template operator()<double>();
  else step_as.template operator()<float>();
}

}  // namespace tapir::inline v0::cpu
