#include "data_parallel.h"

#include <algorithm>

#include "../core/cuda.h"
#include "../core/modes.h"
#include "../ops/cast.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"

namespace tapir::inline v0::distributed {

Replicas::Replicas(std::vector<Device> devices) : devices_(std::move(devices)) {
  if (devices_.empty())
    for (int i = 0; i < cuda::device_count(); ++i) devices_.emplace_back(DeviceType::CUDA, i);
  check(!devices_.empty(), "[DataParallel] expected devices, got none: {}", cuda::why_not());
}

void Replicas::follow(nn::Module& module, nn::Module& replica, Device device) {
  replica.to(device);
  const auto own = module.parameters(), theirs = replica.parameters();
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i].requires_grad())
      theirs[i].register_post_accumulate_grad_hook([p = own[i]](const Tensor& copy) {
        NoGrad guard;
        const Tensor g = tapir::to(copy.grad(), p.device());
        copy.set_grad({});
        if (Tensor held = p.grad(); held.defined()) held.add_(g);
        else p.set_grad(g.clone());
      });
}

void Replicas::refresh(nn::Module& module, const std::vector<nn::Module*>& replicas) {
  NoGrad guard;
  const StateDict weights = module.state_dict();
  const auto modules = module.named_modules();
  seen_.resize(std::max(seen_.size(), replicas.size()));
  for (size_t i = 0; i < replicas.size(); ++i) {
    const StateDict copies = replicas[i]->state_dict();
    seen_[i].resize(copies.size());
    auto seen = seen_[i].begin();
    for (const auto& [name, copy] : copies) {
      const Tensor& t = weights.at(name);
      Seen& s = *seen++;
      if (t.numel() == 0) continue;
      // A graph of an earlier forward may still need the copy as it is. A program that is recorded has to copy in each replay.
      const bool same = s.memory == t.data_ptr() && s.version == t.version() && s.copy_version == copy.version();
      if (same && !modes.recorder) continue;
      copy.detach().copy_(t.detach());
      s = {t.data_ptr(), t.version(), copy.version()};
    }
    const auto theirs = replicas[i]->named_modules();
    for (size_t k = 0; k < std::min(modules.size(), theirs.size()); ++k)
      theirs[k].second->training = modules[k].second->training;
  }
}

std::vector<Tensor> Replicas::scatter(const Tensor& x) const {
  check(x.dim() > 0 && x.size(0) > 0, "[DataParallel] expected a batch along dimension 0, got {}", x);
  std::vector<Tensor> parts = chunk(x, int64_t(devices_.size()), 0);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = tapir::to(parts[i], devices_[i]);
  return parts;
}

Tensor Replicas::gather(const std::vector<Tensor>& parts) const {
  std::vector<Tensor> here;
  for (const Tensor& p : parts) here.push_back(tapir::to(p, devices_[0]));
  return here.size() == 1 ? here[0] : cat(here, 0);
}

}  // namespace tapir::inline v0::distributed
