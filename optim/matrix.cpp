#include "matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../core/denormals.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/matmul.h"
#include "../ops/pointwise.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"
#include "../ops/vector_norm.h"
#include "kinds.h"

namespace tapir::inline v0::optim {
namespace {

using V = OptionValues;
using Names = std::array<const char*, 3>;

constexpr const char* ratios[] = {"original", "match_rms_adamw", "spectral_unclamped"};
constexpr OptionRule muon_options[] = {{"weight_decay", {&V::weight_decay}},
                                       {"momentum", {&V::beta1}, nullptr, 0, 1},
                                       {"nesterov", {}, &V::nesterov},
                                       {"ns_coefficients", {&V::a, &V::b, &V::c}, nullptr, kAnyNumber},
                                       {"eps", {&V::eps}},
                                       {"ns_steps", {&V::steps}, nullptr, 0, 100, {}, true},
                                       {"adjust_lr_fn", {&V::mode}, nullptr, 0, kAnyNumber, ratios}};
constexpr OptionRule adafactor_options[] = {{"beta2_decay", {&V::beta2}, nullptr, kAnyNumber},
                                            {"eps", {&V::b, &V::eps}},
                                            {"d", {&V::a}, nullptr, 1},
                                            {"weight_decay", {&V::weight_decay}},
                                            {"maximize", {}, &V::maximize}};

double epsilon_of(DType dtype) {
  switch (dtype) {
    case kFloat64: return 0x1p-52;
    case kFloat16: return 0x1p-10;
    case kBFloat16: return 0x1p-7;
    default: return 0x1p-23;
  }
}

// Parameters of 16 bits are rounded where PyTorch rounds them: rates are rounded to the parameter's dtype; the weights of running means and
// 1 - lr weight_decay stay wide; the parameter is rounded after the decay and again after the step.
Tensor wide(const Tensor& t) { return t.to(compute_type(t.dtype())); }
Tensor decayed(const Tensor& p, const Tensor& lr, double weight_decay) {
  return (wide(p) * (1 - lr * weight_decay)).to(p.dtype());
}
Tensor stepped(const Tensor& p, const Tensor& move, const Tensor& rate) {
  return (wide(p) - wide(move) * rate.to(p.dtype())).to(p.dtype());
}

/// A matrix with the singular vectors of g and singular values near 1.
Tensor orthogonalized(const Tensor& g, const V& o) {
  const bool tall = g.size(0) > g.size(1);
  Tensor x = g.to(kBFloat16);
  if (tall) x = transpose(x, 0, 1);
  x = x / clamp_min(norm(x), o.eps);
  for (int i = 0; i < int(o.steps); ++i) {
    const Tensor gram = mm(x, transpose(x, 0, 1));
    x = addmm(x, addmm(gram, gram, gram, {.beta = o.b, .alpha = o.c}), x, {.beta = o.a});
  }
  return tall ? transpose(x, 0, 1) : x;
}
double rate_ratio(const Tensor& p, int mode) {
  const double rows = double(p.size(0)), columns = double(p.size(1));
  if (mode == 1) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(mode == 0 ? std::max(1.0, rows / columns) : rows / columns);
}
/// The mean square along one dimension.
Tensor mean_square(const Tensor& g, int64_t dim) { return mean(square(g), dim, {.keepdim = true}); }

}  // namespace

namespace kinds {
// Their steps are operations, not the entry that `op` names.
constinit const OptimizerKind muon{.name = "Muon",
                                   .op = OptimizerOp::Sgd,
                                   .options = muon_options,
                                   .states = [](const V&, const Tensor&) { return Names{"momentum_buffer"}; },
                                   .momentum = true,
                                   .uncounted = true};
constinit const OptimizerKind adafactor{
    .name = "Adafactor",
    .op = OptimizerOp::Adam,
    .options = adafactor_options,
    .states = [](const V&, const Tensor& p) {
      return p.dim() > 1 ? Names{"row_var", "col_var"} : Names{nullptr, nullptr, "variance"};
    }};
}  // namespace kinds

TAPIR_OPTIMIZER_OF_PARAMETERS(Muon)
Muon::Muon(std::vector<MuonGroup> groups, const MuonOptions& options)
    : Optimizer(kinds::muon, std::move(groups), options) {
  for (const Group& g : groups_)
    for (size_t i = 0; i < g.params.size(); ++i)
      check(g.params[i].dim() == 2, "[Muon] expected parameters of rank 2, got {} at position {}", g.params[i],
            int64_t(i));
}

void Muon::update(Group& group, const Batch& batch, const StepScale& scale) {
  const tapir::detail::FlushDenormals flush(batch.dtype);
  const V& o = group.options;
  const Tensor& momentum = group.device_beta1;
  for (size_t i : batch.members) {
    const Tensor p = group.params[i].detach(), g = gradient(group, i, scale);
    Tensor& buffer = group.slots[i].state[0];
    const auto with_momentum = [&](const Tensor& old) { return lerp(wide(g), wide(old), momentum).to(g.dtype()); };
    const Tensor b = momentum.defined() ? with_momentum(buffer) : lerp(buffer, g, 1 - o.beta1);
    Tensor move = b;
    if (o.nesterov) move = momentum.defined() ? with_momentum(b) : lerp(g, b, o.beta1);
    const Tensor kept = decayed(p, group.device_lr, o.weight_decay);
    const Tensor rate = group.device_lr * rate_ratio(p, int(o.mode));
    assign(group.params[i], stepped(kept, orthogonalized(move, o).to(p.dtype()), rate), scale);
    assign(buffer, b, scale);
  }
  count(batch, scale);
}

TAPIR_OPTIMIZER_OF_PARAMETERS(Adafactor)
Adafactor::Adafactor(std::vector<AdafactorGroup> groups, const AdafactorOptions& options)
    : Optimizer(kinds::adafactor, std::move(groups), options) {
  for (Group& g : groups_) {
    check(g.options.beta2 <= 0, "[Adafactor] invalid beta2_decay: expected a number of at most 0, got {}",
          g.options.beta2);
    if (std::isnan(g.options.b)) g.options.b = epsilon_of(g.params[0].dtype());
  }
}

Tensor Adafactor::new_state(const Group& group, size_t k, const Tensor& p) const {
  if (k == 2) return Optimizer::new_state(group, k, p);
  Shape shape = p.shape();
  shape[p.dim() - 1 - int64_t(k)] = 1;
  return zeros(shape, {.dtype = p.dtype(), .device = p.device()});
}

void Adafactor::update(Group& group, const Batch& batch, const StepScale& scale) {
  const tapir::detail::FlushDenormals flush(batch.dtype);
  const V& o = group.options;
  count(batch, scale);
  const Tensor step = batch.step.to(kFloat64), weight = pow(step, o.beta2);
  const Tensor rate = minimum(group.device_lr, rsqrt(step));
  for (size_t i : batch.members) {
    const Tensor p = group.params[i].detach(), g = gradient(group, i, scale);
    if (p.numel() == 0) continue;
    // Smaller squares count as 0, whose root has no reciprocal.
    const double eps = o.b, least = p.dtype() == kFloat64 ? 0 : std::numeric_limits<float>::min(),
                 root = std::sqrt(double(p.numel()));
    auto& [row, column, whole] = group.slots[i].state;
    const auto mixed = [&](const Tensor& old, const Tensor& now) {
      return lerp(wide(old), wide(now), weight).to(p.dtype());
    };
    Tensor variance;
    if (p.dim() > 1) {
      const Tensor r = mixed(row, mean_square(g, -1)), c = mixed(column, mean_square(g, -2));
      variance = matmul(r, c) / clamp_min(mean(r, -2, {.keepdim = true}), eps);
      assign(row, r, scale), assign(column, c, scale);
    } else {
      variance = mixed(whole, square(g));
      assign(whole, variance, scale);
    }
    const Tensor move = rsqrt(clamp_min(variance, std::max(eps * eps, least))) * g;
    const Tensor size = clamp_min(norm(p).to(kFloat64) / root, o.eps) * rate;
    const Tensor clipped = clamp_min(norm(move).to(kFloat64) / (root * o.a), 1);
    const Tensor kept = o.weight_decay == 0 ? p : decayed(p, group.device_lr, o.weight_decay);
    assign(group.params[i], stepped(kept, move, size / clipped), scale);
  }
}

}  // namespace tapir::inline v0::optim
