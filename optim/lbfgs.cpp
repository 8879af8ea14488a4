#include "lbfgs.h"

#include <algorithm>
#include <cmath>

#include "../core/checks.h"
#include "../core/denormals.h"
#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/matmul.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/unary.h"
#include "kinds.h"

namespace tapir::inline v0::optim {
namespace {

using V = OptionValues;
constexpr const char* searches[] = {"", "strong_wolfe"};
constexpr OptionRule lbfgs_options[] = {{"max_iter", {&V::steps}, nullptr, 0, kAnyNumber, {}, true},
                                        {"max_eval", {&V::mode}, nullptr, 0, kAnyNumber, {}, true},
                                        {"tolerance_grad", {&V::eps}},
                                        {"tolerance_change", {&V::a}},
                                        {"history_size", {&V::b}, nullptr, 1, kAnyNumber, {}, true},
                                        {"line_search_fn", {&V::c}, nullptr, 0, kAnyNumber, searches},
                                        {"maximize", {}, &V::maximize}};

double largest(const Tensor& x) { return x.numel() == 0 ? 0 : abs(x).max().item(); }
double product(const Tensor& a, const Tensor& b) { return dot(a, b).item(); }

/// The minimum of the cubic through two points with slopes, within bounds.
double cubic_minimum(double x1, double f1, double g1, double x2, double f2, double g2, double low, double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                             : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(at, low), high);
}

constexpr double kArmijo = 1e-4, kCurvature = 0.9, kSmallestBracket = 1e-9;

}  // namespace

namespace kinds {
constinit const OptimizerKind lbfgs{.name = "LBFGS",
                                    .op = OptimizerOp::Sgd,
                                    .options = lbfgs_options,
                                    .states = [](const V&, const Tensor&) { return std::array<const char*, 3>{}; },
                                    .uncounted = true};
}

LBFGS::LBFGS(std::vector<Tensor> params, const LBFGSOptions& o) : Optimizer(kinds::lbfgs) {
  V values = values_of(kinds::lbfgs);
  const auto set = [&](const char* name, double value) { set_option(values, name, std::array{value}); };
  set("max_iter", double(o.max_iter)),
      set("max_eval", o.max_eval ? double(*o.max_eval) : std::floor(double(o.max_iter) * 5 / 4));
  set("tolerance_grad", o.tolerance_grad), set("tolerance_change", o.tolerance_change);
  set("history_size", double(o.history_size)), set("maximize", o.maximize);
  set_option(values, "line_search_fn", o.line_search_fn);
  add_group(std::move(params), values, o.lr);
  for (const Tensor& p : groups_[0].params)
    check(p.dtype() == groups_[0].params[0].dtype() && p.device() == groups_[0].params[0].device(),
          "[LBFGS] expected parameters of one dtype and device, got {} and {}", groups_[0].params[0], p);
}

void LBFGS::step(const StepScale&) {
  fail(ErrorKind::Value,
       "[LBFGS] expected a closure that gives the loss: opt.step([&] { ... return loss; }), got none");
}

/// The loss and the flat gradient at the present parameters, of what is to be made small.
double LBFGS::evaluate(const Closure& closure, Tensor& gradient, Tensor* loss) {
  Tensor value;
  {
    EnableGrad guard;
    value = closure.call(closure.f);
  }
  check(value.defined() && value.numel() == 1, "[LBFGS] expected a closure that gives the loss, one element, got {}",
        value);
  if (loss) *loss = value;
  std::vector<Tensor> parts;
  for (const Tensor& p : groups_[0].params)
    parts.push_back(p.grad().defined() ? p.grad().detach().reshape(-1) : zeros_like(p.detach()).reshape(-1));
  gradient = detail::flushed(cat(parts));
  const bool maximize = groups_[0].options.maximize;
  if (maximize) gradient = -gradient;
  return maximize ? -value.item() : value.item();
}

/// All parameters t of the direction further.
void LBFGS::move(double t) {
  const tapir::detail::FlushDenormals flush(state_.d.dtype());
  int64_t offset = 0;
  for (Tensor& p : groups_[0].params) {
    p.add_(narrow(state_.d, 0, offset, p.numel()).reshape(p.shape()), t);
    if (p.device() != kCPU) p.copy_(detail::flushed(p));
    offset += p.numel();
  }
}
std::vector<Tensor> LBFGS::copies() const {
  std::vector<Tensor> out;
  for (const Tensor& p : groups_[0].params) out.push_back(p.detach().clone());
  return out;
}
void LBFGS::restore(const std::vector<Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) groups_[0].params[i].copy_(values[i]);
}

LBFGS::Point LBFGS::look(const Closure& closure, const std::vector<Tensor>& from, double t) {
  Point p{t, 0, {}, 0};
  move(t);
  p.loss = evaluate(closure, p.gradient);
  restore(from);
  p.slope = product(p.gradient, state_.d);
  return p;
}

/// A step length that satisfies the strong Wolfe conditions: first a bracket around one, then zoom. Nocedal and Wright 2006,
/// algorithms 3.5 and 3.6.
LBFGS::Point LBFGS::search(const Closure& closure, Point start, double t, int64_t most, int64_t& evaluations) {
  const std::vector<Tensor> from = copies();
  Point before = start, now = look(closure, from, t);
  evaluations = 1;
  int64_t iterations = 0;
  for (; iterations < most; ++iterations) {
    const bool too_high = now.loss > start.loss + kArmijo * now.t * start.slope;
    if (too_high || (iterations > 1 && now.loss >= before.loss)) break;
    if (std::abs(now.slope) <= -kCurvature * start.slope) return now;
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before.t, before.loss, before.slope, now.t, now.loss, now.slope,
                                      now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = now;
    now = look(closure, from, next);
    ++evaluations;
  }
  if (iterations == most) before = start;
  return before.loss <= now.loss ? zoom(closure, from, start, before, now, most, iterations, evaluations)
                                 : zoom(closure, from, start, now, before, most, iterations, evaluations);
}

LBFGS::Point LBFGS::zoom(const Closure& closure, const std::vector<Tensor>& from, const Point& start, Point low,
                         Point high, int64_t most, int64_t& iterations, int64_t& evaluations) {
  const double reach = largest(state_.d);
  bool slow = false;  // the trial before was near an end, too
  for (; iterations < most && std::abs(high.t - low.t) * reach >= kSmallestBracket; ++iterations) {
    const double left = std::min(low.t, high.t), right = std::max(low.t, high.t), margin = 0.1 * (right - left);
    double t = cubic_minimum(low.t, low.loss, low.slope, high.t, high.loss, high.slope, left, right);
    if (std::min(right - t, t - left) < margin) {
      if (slow || t >= right || t <= left) {
        t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
        slow = false;
      } else slow = true;
    } else slow = false;
    const Point now = look(closure, from, t);
    ++evaluations;
    if (now.loss > start.loss + kArmijo * t * start.slope || now.loss >= low.loss) {
      high = now;
      if (high.loss < low.loss) std::swap(low, high);
      continue;
    }
    const bool done = std::abs(now.slope) <= -kCurvature * start.slope;
    if (!done && now.slope * (high.t - low.t) >= 0) high = low;
    low = now;
    if (done) break;
  }
  return low;
}

/// state_.d = - H gradient, by two loops over the history.
void LBFGS::direction(const Tensor& gradient) {
  const tapir::detail::FlushDenormals flush(gradient.dtype());
  State& s = state_;
  if (s.n_iter == 1) {
    s.d = -gradient, s.H_diag = 1;
    s.old_dirs.clear(), s.old_stps.clear(), s.ro.clear();
    return;
  }
  const Tensor y = detail::flushed(gradient - s.prev_flat_grad), step = detail::flushed(s.d * s.t);
  if (const double ys = product(y, step); ys > 1e-10) {
    if (double(s.old_dirs.size()) == groups_[0].options.b)
      s.old_dirs.erase(s.old_dirs.begin()), s.old_stps.erase(s.old_stps.begin()), s.ro.erase(s.ro.begin());
    s.old_dirs.push_back(y), s.old_stps.push_back(step), s.ro.push_back(1 / ys);
    s.H_diag = ys / product(y, y);
  }
  std::vector<double> al(s.ro.size());
  Tensor q = -gradient;
  for (size_t i = al.size(); i-- > 0;) {
    al[i] = product(s.old_stps[i], q) * s.ro[i];
    q.add_(s.old_dirs[i], -al[i]);
  }
  s.d = q * s.H_diag;
  for (size_t i = 0; i < al.size(); ++i) s.d.add_(s.old_stps[i], al[i] - product(s.old_dirs[i], s.d) * s.ro[i]);
  s.d = detail::flushed(s.d);
}

Tensor LBFGS::run(const Closure& closure) {
  check(!groups_.empty(), "[LBFGS] expected an optimizer with parameters, got one that was moved from");
  NoGrad guard;
  const std::vector<Tensor> before = copies();
  const State state = state_;
  try {
    return iterate(closure);
  } catch (...) {
    restore(before);
    state_ = state;
    throw;
  }
}

Tensor LBFGS::iterate(const Closure& closure) {
  const V& o = groups_[0].options;
  State& s = state_;
  Tensor first, gradient;
  double loss = evaluate(closure, gradient, &first);
  int64_t evaluations = 1;
  ++s.func_evals;
  count_step();
  if (largest(gradient) <= o.eps) return first;
  for (int64_t n = 1; double(n) <= o.steps; ++n) {
    ++s.n_iter;
    direction(gradient);
    s.prev_flat_grad = gradient, s.prev_loss = loss;
    s.t = s.n_iter == 1 ? std::min(1.0, 1 / abs(gradient).sum().item()) * lr() : lr();
    const double slope = product(gradient, s.d);
    if (slope > -o.a) break;
    int64_t more = 0;
    if (o.c == 1) {
      const Point end = search(closure, {0, loss, gradient, slope}, s.t, int64_t(o.mode) - evaluations, more);
      loss = end.loss, gradient = end.gradient, s.t = end.t;
      move(s.t);
    } else {
      move(s.t);
      if (double(n) != o.steps) loss = evaluate(closure, gradient), more = 1;  // the last one's would be of no use
    }
    evaluations += more, s.func_evals += double(more);
    if (double(evaluations) >= o.mode || largest(gradient) <= o.eps) break;
    if (largest(s.d) * std::abs(s.t) <= o.a || std::abs(loss - s.prev_loss) < o.a) break;
  }
  return first;
}

StateDict LBFGS::state_dict() const {
  StateDict out = Optimizer::state_dict();
  const State& s = state_;
  if (s.func_evals == 0) return out;
  const auto number = [&](const std::string& name, double value) {
    out.append("state.0." + name, full({}, value, {.dtype = kFloat64}));
  };
  number("func_evals", s.func_evals), number("n_iter", s.n_iter);
  if (!s.d.defined()) return out;
  number("t", s.t), number("H_diag", s.H_diag), number("prev_loss", s.prev_loss);
  out.append("state.0.d", s.d), out.append("state.0.prev_flat_grad", s.prev_flat_grad);
  for (size_t i = 0; i < s.ro.size(); ++i) {
    const std::string at = tapir::format(".{}", int64_t(i));
    out.append("state.0.old_dirs" + at, s.old_dirs[i]), out.append("state.0.old_stps" + at, s.old_stps[i]);
    number("ro" + at, s.ro[i]);
  }
  return out;
}

void LBFGS::load_state_dict(const StateDict& state) try {
  State s;
  int64_t count = 0;
  for (const Tensor& p : groups_[0].params) count += p.numel();
  const Tensor& like = groups_[0].params[0];
  const auto number = [&](const std::string& name, double& to) {
    if (const Tensor* t = state.find("state.0." + name)) to = t->item();
  };
  const auto vector = [&](const std::string& name) {
    const Tensor& t = state.at("state.0." + name);
    check(t.shape() == Shape{count}, "[LBFGS] expected state.0.{} of shape ({}), got {}", name, count, t.shape());
    return t.to(like.dtype()).to(like.device()).clone();
  };
  check_names("LBFGS", state);
  number("func_evals", s.func_evals), number("n_iter", s.n_iter);
  check(s.func_evals >= 0 && s.n_iter >= 0, "[LBFGS] expected func_evals and n_iter of at least 0, got {} and {}",
        s.func_evals, s.n_iter);
  if (state.contains("state.0.d")) {
    number("t", s.t), number("H_diag", s.H_diag), number("prev_loss", s.prev_loss);
    s.d = vector("d"), s.prev_flat_grad = vector("prev_flat_grad");
    for (int64_t i = 0; state.contains(tapir::format("state.0.old_dirs.{}", i)); ++i) {
      s.old_dirs.push_back(vector(tapir::format("old_dirs.{}", i))),
          s.old_stps.push_back(vector(tapir::format("old_stps.{}", i)));
      s.ro.push_back(state.at(tapir::format("state.0.ro.{}", i)).item());
    }
  } else check(s.n_iter == 0, "[LBFGS] expected state.0.d beside state.0.n_iter {}", s.n_iter);
  Optimizer::load_state_dict(state);
  state_ = std::move(s);
} catch (...) {
  fail_as("LBFGS");
}

}  // namespace tapir::inline v0::optim
