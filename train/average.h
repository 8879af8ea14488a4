#pragma once
#include <optional>
#include <tuple>
#include <type_traits>

#include "../nn/module.h"
#include "../ops/create.h"

namespace tapir::inline v0::train {

struct AverageOptions {
  std::optional<double> decay = {};  // exponential: decay average + (1 - decay) weight; none: the mean of all updates
  bool use_buffers = false;          // averages buffers too, instead of taking the model's
};

namespace detail {
using Tensors = std::vector<std::pair<std::string, Tensor>>;
/// One update of the averages; the first one copies. Integers are always copied.
void average(const Tensors& averages, const Tensors& values, int64_t n_averaged, std::optional<double> decay);
/// Sets batch norms to plain averages from nothing while it lives, and the model to training.
class [[nodiscard]] FreshStatistics {
 public:
  explicit FreshStatistics(nn::Module& model);
  ~FreshStatistics();

 private:
  std::vector<std::pair<nn::Module*, bool>> training_;
  std::vector<std::pair<nn::Module*, std::optional<double>>> momenta_;
};
template <class B> Tensor input_of(const B& batch) {
  if constexpr (std::is_convertible_v<const B&, Tensor>) return batch;
  else return std::get<0>(batch);
}
}  // namespace detail

/// A copy of a model whose weights are averages of the model's: stochastic weight averaging (Izmailov et al. 2018, arXiv 1803.05407), or
/// an exponential moving average. Called as the model is.
///     train::AveragedModel ema(net, {.decay = 0.999});
///     ... opt.step(); ema.update_parameters(net);
template <class M> struct AveragedModel {
  M module;
  int64_t n_averaged = 0;
  AverageOptions options;
  explicit AveragedModel(M& model, const AverageOptions& options = {}) : module(model.clone()), options(options) {
    check(!options.decay || (*options.decay >= 0 && *options.decay <= 1),
          "[AveragedModel] expected decay in [0, 1], got {}", options.decay.value_or(0));
  }
  template <class... A> decltype(auto) operator()(A&&... a) { return module(std::forward<A>(a)...); }
  void update_parameters(M& model) {
    detail::average(module.named_parameters(), model.named_parameters(), n_averaged, options.decay);
    detail::average(module.named_buffers(), model.named_buffers(), options.use_buffers ? n_averaged : 0, options.decay);
    ++n_averaged;
  }
  /// PyTorch's names: "n_averaged", "module.weight".
  StateDict state_dict() {
    StateDict out{{"n_averaged", full({}, n_averaged)}};
    out.merge("module.", module.state_dict());
    return out;
  }
  void load_state_dict(const StateDict& state) {
    const int64_t n = state.at("n_averaged").template item<int64_t>();
    check_count("AveragedModel", "n_averaged", n);
    this->module.load_state_dict(state.strip("module."));  // nvcc warns of a line that begins with `module`
    n_averaged = n;
  }
};

/// Computes the running statistics of batch norms anew, as plain averages over the loader's batches: a batch is a tensor, or a tuple or
/// pair whose first is. For averaged weights, whose statistics nobody has seen.
template <class Loader, class M> void update_bn(Loader& loader, M& model) {
  NoGrad guard;
  detail::FreshStatistics fresh(model);
  for (auto&& batch : loader) model(detail::input_of(batch));
}

}  // namespace tapir::inline v0::train
