#include "autocast.h"

#include <unordered_map>
#include <utility>

namespace tapir::inline v0 {

/// A weight, its versions' casts. The source is held, so that its address stays its own.
struct CastCache {
  struct Entry {
    Tensor source, cast;
    uint32_t version;
    DType dtype;
    bool grad, inference;
  };
  std::unordered_map<const void*, Entry> entries;
};
CastCache* new_cast_cache() { return new CastCache; }
void delete_cast_cache(CastCache* cache) { delete cache; }

static Tensor cached_cast(CastCache& cache, const Tensor& x, DType dtype) {
  auto [at, fresh] = cache.entries.try_emplace(&x.impl());
  CastCache::Entry& e = at->second;
  if (fresh || e.version != x.version() || e.dtype != dtype || e.grad != modes.grad || e.inference != modes.inference)
    e = {x, to(x, dtype), x.version(), dtype, modes.grad, modes.inference};
  return e.cast;
}

static bool is_cast(DType dtype) { return is_floating(dtype) && dtype != kFloat64; }

DType product_type(DType dtype, Device device) {
  const bool on = modes.autocast && modes.autocast->on[int(device.type)];
  return on && is_cast(dtype) ? modes.autocast->dtype[int(device.type)] : dtype;
}

namespace detail {

bool CastScope::is_cast(const Tensor& x) const {
  return x.defined() && tapir::is_cast(x.dtype()) && x.device().type == first_->device().type;
}

void CastScope::see(const Tensor& x) {
  if (!x.defined()) return;
  if (!first_) first_ = &x;
  if (is_cast(x)) widest_ = widest_ == kBool || widest_ == x.dtype() ? x.dtype() : kFloat32;
}

void CastScope::decide(const CastRule& rule) {
  if (!first_) return;
  const DeviceType device = first_->device().type;
  const CastPolicy policy = rule.on(device);
  if (!modes.autocast->on[int(device)] || policy == CastPolicy::None) return;
  if (policy == CastPolicy::Plain) {
    region_ = std::exchange(modes.autocast, nullptr);
    return;
  }
  check(policy != CastPolicy::Refused,
        "[{}] is unsafe to autocast: expected {}_with_logits, whose input is not yet a probability, in an autocast "
        "region",
        rule.op, rule.op);
  decide(policy == CastPolicy::Lower    ? modes.autocast->dtype[int(device)]
         : policy == CastPolicy::Widest ? widest_
                                        : kFloat32);
}

void CastScope::decide(DType dtype) {
  if (!first_ || !modes.autocast || !modes.autocast->on[int(first_->device().type)]) return;
  target_ = dtype, casts_ = true;
  region_ = std::exchange(modes.autocast, nullptr);
}

Tensor CastScope::operator()(const Tensor& x) {
  if (!casts_ || !is_cast(x) || x.dtype() == target_) return x;
  const bool weight = region_->cache && x.requires_grad() && x.is_leaf() && target_ != kFloat32;
  return weight ? cached_cast(*region_->cache, x, target_) : to(x, target_);
}

Operand CastScope::operator()(const Operand& x) {
  if (!x.is_tensor()) return x;
  held_[num_held_] = (*this)(x.tensor());
  return held_[num_held_++];
}

std::span<const Tensor> CastScope::operator()(std::span<const Tensor> x) {
  list_.reserve(x.size());
  for (const Tensor& t : x) list_.push_back((*this)(t));
  return list_;
}

}  // namespace detail
}  // namespace tapir::inline v0
