#pragma once
#include <type_traits>

#include "optimizer.h"

namespace tapir::inline v0::optim {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  std::optional<int64_t> max_eval = {};  // none: max_iter 5 / 4
  double tolerance_grad = 1e-7, tolerance_change = 1e-9;
  int64_t history_size = 100;
  std::string line_search_fn = "";  // or "strong_wolfe"
  bool maximize = false;
};

/// Quasi-Newton steps by the curvature of the last `history_size` steps; for full batches. It waits for the device, all parameters are
/// of one dtype and device, and there are no groups. Liu and Nocedal 1989.
///     opt.step([&] { opt.zero_grad(); Tensor loss = ...; loss.backward(); return loss; });
class LBFGS final : public Optimizer {
 public:
  explicit LBFGS(std::vector<Tensor> params, const LBFGSOptions& options = {});
  /// Up to max_iter iterations; the closure gives the loss and its gradients anew. Returns the first loss. Where the closure throws,
  /// parameters and state are as before.
  template <class F>
  requires std::is_invocable_r_v<Tensor, F&> Tensor step(F&& closure) {
    return run({const_cast<void*>(static_cast<const void*>(&closure)),
                [](void* f) -> Tensor { return (*static_cast<std::remove_reference_t<F>*>(f))(); }});
  }
  /// ValueError: there is no step without a closure.
  void step(const StepScale& scale = {}) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Closure {
    void* f;
    Tensor (*call)(void* f);
  };
  struct Point {  // on the line of a search
    double t, loss;
    Tensor gradient;
    double slope;
  };
  struct State {  // under PyTorch's names
    double func_evals = 0, n_iter = 0, t = 0, H_diag = 1, prev_loss = 0;
    Tensor d, prev_flat_grad;
    std::vector<Tensor> old_dirs, old_stps;
    std::vector<double> ro;
  };
  Tensor run(const Closure& closure);
  Tensor iterate(const Closure& closure);
  double evaluate(const Closure& closure, Tensor& gradient, Tensor* loss = nullptr);
  Point look(const Closure& closure, const std::vector<Tensor>& from, double t);
  Point search(const Closure& closure, Point start, double t, int64_t most, int64_t& evaluations);
  Point zoom(const Closure& closure, const std::vector<Tensor>& from, const Point& start, Point low, Point high,
             int64_t most, int64_t& iterations, int64_t& evaluations);
  void direction(const Tensor& gradient);
  void move(double t);
  std::vector<Tensor> copies() const;
  void restore(const std::vector<Tensor>& values);
  State state_;
};

}  // namespace tapir::inline v0::optim
