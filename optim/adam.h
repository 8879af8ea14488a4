#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// Parameters with options of their own; see Note [Parameter groups].
struct AdamGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {};
  std::optional<std::array<double, 2>> betas = {};
  std::optional<double> eps = {}, weight_decay = {};
  std::optional<bool> amsgrad = {}, maximize = {};
};
using AdamWGroup = AdamGroup;

/// Adam: Kingma and Ba 2014, arXiv 1412.6980; weight decay is added to the gradient. amsgrad: Reddi et al. 2018.
class Adam final : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> params, const AdamOptions& options = {})
      : Adam(std::vector<AdamGroup>{{std::move(params)}}, options) {}
  explicit Adam(std::vector<AdamGroup> groups, const AdamOptions& options = {});

 private:
  std::array<const char*, 3> state_names(const OptimizerParams& o) const override {
    return {"exp_avg", "exp_avg_sq", o.amsgrad ? "max_exp_avg_sq" : nullptr};
  }
};

/// AdamW: Loshchilov and Hutter 2017, arXiv 1711.05101; weight decay shrinks the parameters by lr * weight_decay.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& options = {})
      : AdamW(std::vector<AdamWGroup>{{std::move(params)}}, options) {}
  explicit AdamW(std::vector<AdamWGroup> groups, const AdamWOptions& options = {});

 private:
  std::array<const char*, 3> state_names(const OptimizerParams& o) const override {
    return {"exp_avg", "exp_avg_sq", o.amsgrad ? "max_exp_avg_sq" : nullptr};
  }
};

}  // namespace tapir::inline v0::optim
