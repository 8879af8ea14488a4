#include "early_stopping.h"

#include <cmath>
#include <limits>

#include "../core/checks.h"
#include "../core/fail_as.h"

namespace tapir::inline v0::train {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), best_(std::numeric_limits<double>::infinity() * (options.higher_is_better ? -1 : 1)) {
  check(options.patience > 0, "[EarlyStopping] expected a patience above 0, got {}", options.patience);
  check(options.min_delta >= 0 && std::isfinite(options.min_delta),
        "[EarlyStopping] expected a finite min_delta from 0 on, got {}", options.min_delta);
}

bool EarlyStopping::step(double metric) {
  const bool better =
      options_.higher_is_better ? metric > best_ + options_.min_delta : metric < best_ - options_.min_delta;
  if (better) best_ = metric, best_epoch_ = epochs_, waited_ = 0;
  else ++waited_;
  ++epochs_;
  return stopped();
}

StateDict EarlyStopping::state_dict() const {
  StateDict out;
  out.append("best", tensor_from_host(&best_, kFloat64, {}, {}));
  const std::pair<const char*, int64_t> items[] = {
      {"best_epoch", best_epoch_}, {"epochs", epochs_}, {"waited", waited_}};
  for (const auto& [name, value] : items) out.append(name, tensor_from_host(&value, kInt64, {}, {}));
  return out;
}

void EarlyStopping::load_state_dict(const StateDict& state) try {
  check_names("EarlyStopping", state);
  const auto one = [&](const char* name) -> const Tensor& {
    const Tensor& x = state.at(name);
    check(x.defined() && x.numel() == 1, "[EarlyStopping] expected one number in {}, got {}", name, x);
    return x;
  };
  const double best = one("best").item<double>();
  check(!std::isnan(best), "[EarlyStopping] expected a number in best, got nan");
  const auto number = [&](const char* name) {
    const double value = one(name).item<double>();
    check(value == std::floor(value) && std::abs(value) < 0x1p53,
          "[EarlyStopping] expected a whole number in {}, got {}", name, value);
    return int64_t(value);
  };
  const int64_t best_epoch = number("best_epoch"), epochs = number("epochs"), waited = number("waited");
  check_count("EarlyStopping", "best_epoch", best_epoch, -1), check_count("EarlyStopping", "epochs", epochs);
  check_count("EarlyStopping", "waited", waited);
  best_ = best, best_epoch_ = best_epoch, epochs_ = epochs, waited_ = waited;
} catch (...) {
  fail_as("EarlyStopping");
}

}  // namespace tapir::inline v0::train
