#include "grad_scaler.h"

#include <cmath>
#include <limits>

#include "../autograd/grad_batches.h"
#include "../core/checks.h"
#include "../ops/ops.h"
#include "../optim/clip.h"

namespace tapir::inline v0::amp {

/// Scales are float32: 0 and infinity make every gradient NaN.
static void check_scale(const char* what, double scale) {
  check(float(scale) > 0 && scale <= std::numeric_limits<float>::max(),
        "[GradScaler] expected {} above 0 that float32 can hold, got {}", what, scale);
}

static void check_there(const Tensor& scale) {
  check(scale.defined(), "[GradScaler] expected a scaler, got one that was moved from");
}

GradScaler::GradScaler(const GradScalerOptions& o) : options_(o) {
  check_scale("an init_scale", o.init_scale);
  check(o.growth_factor > 1 && std::isfinite(o.growth_factor),
        "[GradScaler] expected a finite growth_factor above 1, got {}", o.growth_factor);
  check(o.backoff_factor > 0 && o.backoff_factor < 1, "[GradScaler] expected a backoff_factor in (0, 1), got {}",
        o.backoff_factor);
  check(o.growth_interval > 0, "[GradScaler] expected a growth_interval above 0, got {}", o.growth_interval);
  if (!o.enabled) return;
  scale_ = full({}, o.init_scale, {.dtype = kFloat32});
  growth_tracker_ = zeros({}, {.dtype = kInt32});
}

/// Scale and tracker move to where they are needed, once.
void GradScaler::follow(Device device) {
  check_there(scale_);
  if (scale_.device() == device) return;
  scale_ = to(scale_, device, true), growth_tracker_ = to(growth_tracker_, device, true);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  check(loss.defined() && is_floating(loss.dtype()), "[GradScaler] expected a loss of floating-point dtype, got {}",
        loss);
  follow(loss.device());
  return mul(loss, scale_);
}

GradScaler::Use& GradScaler::use(optim::Optimizer& optimizer) {
  for (Use& u : uses_)
    if (u.optimizer == &optimizer) return u;
  return uses_.emplace_back(Use{&optimizer, {}});
}

static Tensor not_finite(const Tensor& x, Device device) {
  return to(to(logical_not(isfinite(x)), kFloat32), device, true);
}

/// 1 where a gradient is not finite, else 0: 0-dim float32 on `device`. Two small operations for each dtype and device.
static Tensor look_for_inf(const std::vector<GradBatch>& batches, Device device) {
  Tensor found;
  for (const auto& [model, views] : batches) {
    const Tensor largest = empty({}, {.dtype = compute_type(model.dtype()), .device = model.device()});
    backend(largest).foreach (
        context(largest),
        {.out = largest, .xs = views, .params = {ForeachOp::NormP, std::numeric_limits<double>::infinity()}});
    const Tensor here = not_finite(largest, device);
    found = found.defined() ? maximum(found, here) : here;
  }
  return found.defined() ? found : zeros({}, {.dtype = kFloat32, .device = device});
}

static std::vector<Tensor> params_of(const optim::Optimizer& optimizer) {
  std::vector<Tensor> out;
  for (int64_t g = 0; g < optimizer.num_groups(); ++g)
    out.insert(out.end(), optimizer.params(g).begin(), optimizer.params(g).end());
  return out;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  Use& u = use(optimizer);
  check(!u.unscaled, "[GradScaler] unscale_() has already been called on this optimizer since the last update()");
  check(!u.stepped, "[GradScaler] unscale_() is being called after step()");
  NoGrad guard;
  const std::vector<Tensor> params = params_of(optimizer);
  const auto batches = grads_of("GradScaler", params);
  for (const Tensor& p : params)
    check(!p.grad().defined() || p.grad().dtype() != kFloat16,
          "[GradScaler] attempting to unscale float16 gradients: expected parameters of float32, got {}", p);
  if (!batches.empty()) follow(batches[0].model.device());
  u.found_inf = look_for_inf(batches, scale_.device());
  const Tensor inverse = reciprocal(to(scale_, kFloat64));
  for (const auto& [model, views] : batches)
    backend(model).foreach (context(model),
                            {.xs = views, .factor = to(inverse, model.device()), .params = {ForeachOp::Scale}});
  written(params);
  u.unscaled = true;
}

void GradScaler::step(optim::Optimizer& optimizer, double max_norm) {
  check(max_norm >= 0, "[GradScaler] expected max_norm of at least 0, got {}", max_norm);
  const bool clips = max_norm < std::numeric_limits<double>::infinity();
  const std::vector<Tensor> params = params_of(optimizer);
  const auto norm_of_all = [&] { return clips ? optim::grad_norm(params) : Tensor(); };
  const auto clip_by = [&](const Tensor& norm) { return clips ? optim::clip_factor(norm, max_norm) : Tensor(); };
  if (!options_.enabled) return optimizer.step({clip_by(norm_of_all()), {}});
  Use& u = use(optimizer);
  check(!u.stepped, "[GradScaler] step() has already been called since the last update()");
  NoGrad guard;
  Tensor norm = norm_of_all(), factor;
  if (!u.unscaled) {
    const auto batches = grads_of("GradScaler", params);
    if (!batches.empty()) follow(batches[0].model.device());
    u.found_inf = clips ? not_finite(norm, scale_.device()) : look_for_inf(batches, scale_.device());
    factor = reciprocal(scale_);
    if (clips) norm = mul(norm, factor);
  }
  if (clips) factor = factor.defined() ? mul(factor, clip_by(norm)) : clip_by(norm);
  optimizer.step({factor, u.found_inf});
  u.stepped = true;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  Tensor found;
  NoGrad guard;
  for (const Use& u : uses_) {
    if (!u.found_inf.defined()) continue;
    found = found.defined() ? maximum(found, to(u.found_inf, found.device())) : u.found_inf;
  }
  check(found.defined(),
        "[GradScaler] no inf checks were recorded prior to update(): expected step() or unscale_() first");
  follow(found.device());
  const Tensor good = eq(found, 0), count = where(good, add(growth_tracker_, 1), 0);
  const Tensor grows = eq(count, options_.growth_interval), grown = mul(scale_, options_.growth_factor);
  const Tensor next = where(logical_and(grows, isfinite(grown)), grown, scale_);
  scale_.copy_(where(good, next, mul(scale_, options_.backoff_factor)));
  growth_tracker_.copy_(where(grows, 0, count));
  uses_.clear();
}

void GradScaler::update(double new_scale) {
  check_scale("a new scale", new_scale);
  if (!options_.enabled) return;
  check_there(scale_);
  NoGrad guard;
  scale_.fill_(new_scale);
  uses_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  check_there(scale_);
  return scale_.item();
}

Tensor GradScaler::found_inf(const optim::Optimizer& optimizer) const {
  for (const Use& u : uses_)
    if (u.optimizer == &optimizer) return u.found_inf;
  return {};
}

bool GradScaler::skipped(const optim::Optimizer& optimizer) const {
  const Tensor found = found_inf(optimizer);
  return found.defined() && found.item() != 0;
}

StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](double x) { return full({}, x, {.dtype = kFloat64}); };
  return {{"scale", scale_.clone()},
          {"growth_factor", number(options_.growth_factor)},
          {"backoff_factor", number(options_.backoff_factor)},
          {"growth_interval", full({}, options_.growth_interval)},
          {"_growth_tracker", growth_tracker_.clone()}};
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  check(
      !state.empty(),
      "[GradScaler] the state is empty, possibly of a disabled scaler; expected scale, growth_factor, backoff_factor, "
      "growth_interval and _growth_tracker");
  check_names("GradScaler", state);
  GradScalerOptions o = options_;
  const auto number = [&](const char* entry) {
    const Tensor& x = state.at(entry);
    check(x.defined() && x.numel() == 1, "[GradScaler] expected one number in {}, got {}", entry, x);
    return x.item();
  };
  const double scale = number("scale"), tracker = number("_growth_tracker"), interval = number("growth_interval");
  check_scale("a scale", scale);
  o.init_scale = scale;
  o.growth_factor = number("growth_factor"), o.backoff_factor = number("backoff_factor");
  check(interval > 0 && interval < 0x1p63, "[GradScaler] expected a growth_interval above 0, got {}", interval);
  o.growth_interval = int64_t(interval);
  GradScaler checked(o);
  check(tracker >= 0 && tracker < 0x1p31, "[GradScaler] expected a _growth_tracker from 0 to 2^31 - 1, got {}",
        tracker);
  options_ = o;
  NoGrad guard;
  scale_.fill_(scale), growth_tracker_.fill_(tracker);
  uses_.clear();  // a step that an error has ended is not a part of that state
}

}  // namespace tapir::inline v0::amp
