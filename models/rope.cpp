#include "rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "../core/error.h"
#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/pointwise.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::models {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

bool positive(double x) { return x > 0 && std::isfinite(x); }
bool positive(const std::vector<double>& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return positive(v); });
}
void check_stretch(const char* name, const std::vector<double>& list, int64_t count) {
  check(int64_t(list.size()) == count && positive(list),
        "[RotaryEmbedding] expected {} numbers above 0 as {}, got {}{}", count, name, int64_t(list.size()),
        positive(list) ? "" : ", not all above 0");
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const RopeScaling& s, double theta, int64_t depth, int64_t max_positions)
    : scaling(s), theta(theta), depth(depth), max_position_embeddings(max_positions) {
  const RopeType type = s.rope_type;
  const auto need = [](bool ok, const char* name, std::string_view what, const std::optional<double>& got) {
    check(ok, "[RotaryEmbedding] expected {} as {}, got {}", what, name, got ? std::to_string(*got) : "none");
  };
  check(depth > 0 && depth % 2 == 0 && max_positions > 0,
        "[RotaryEmbedding] expected heads of an even size and max_position_embeddings above 0, got {} and {}", depth,
        max_positions);
  need(positive(theta), "rope_theta", "a number above 0", theta);
  check(!s.original_max_position_embeddings || *s.original_max_position_embeddings > 0,
        "[RotaryEmbedding] expected original_max_position_embeddings above 0, got {}",
        s.original_max_position_embeddings.value_or(0));
  const bool ratio = (type == RopeType::Yarn || type == RopeType::LongRope) && s.original_max_position_embeddings;
  if (type == RopeType::Default) need(!s.factor || *s.factor == 1, "factor", "none without a rope_type", s.factor);
  else if (s.factor || !ratio)
    need(s.factor && *s.factor >= 1 && positive(*s.factor), "factor", "at least 1", s.factor);
  need(!s.attention_factor || positive(*s.attention_factor), "attention_factor", "a number above 0",
       s.attention_factor);
  if (type == RopeType::Dynamic)
    check(depth > 2, "[RotaryEmbedding] expected heads of more than 2 elements for Dynamic, got {}", depth);
  if (type == RopeType::Llama3) {
    need(s.low_freq_factor && positive(*s.low_freq_factor), "low_freq_factor", "a number above 0", s.low_freq_factor);
    need(s.high_freq_factor && *s.high_freq_factor > *s.low_freq_factor && positive(*s.high_freq_factor),
         "high_freq_factor", "a number above low_freq_factor", s.high_freq_factor);
  }
  if (type == RopeType::Yarn) {
    need(theta > 1, "rope_theta", "a number above 1 for Yarn", theta);
    need(positive(s.beta_slow), "beta_slow", "a number above 0", s.beta_slow);
    need(s.beta_fast >= s.beta_slow && positive(s.beta_fast), "beta_fast", "a number of at least beta_slow",
         s.beta_fast);
    for (const auto& [name, m] : {std::pair("mscale", s.mscale), std::pair("mscale_all_dim", s.mscale_all_dim)})
      need(!m || (*m >= 0 && std::isfinite(*m)), name, "a number of at least 0", m);
  }
  if (type == RopeType::LongRope) {
    check_stretch("short_factor", s.short_factor, depth / 2), check_stretch("long_factor", s.long_factor, depth / 2);
    need(s.attention_factor || factor() <= 1 || original() > 1, "original_max_position_embeddings", "more than 1",
         original());
  }
}

double RotaryEmbedding::original() const {
  return double(scaling.original_max_position_embeddings.value_or(max_position_embeddings));
}
double RotaryEmbedding::factor() const { return scaling.factor.value_or(double(max_position_embeddings) / original()); }
int64_t RotaryEmbedding::max_length() const {
  if (scaling.rope_type == RopeType::Dynamic) return std::numeric_limits<int64_t>::max();
  if (scaling.rope_type == RopeType::Default) return max_position_embeddings;
  const double start = scaling.rope_type == RopeType::Linear ? double(max_position_embeddings) : original();
  return std::max(max_position_embeddings, int64_t(std::min(factor() * start, 0x1p62)));
}
double RotaryEmbedding::attention_factor() const {
  const RopeType type = scaling.rope_type;
  if (type != RopeType::Yarn && type != RopeType::LongRope) return 1;
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (factor() <= 1) return 1;
  if (type == RopeType::LongRope) return std::sqrt(1 + std::log(factor()) / std::log(original()));
  const auto scale = [&](double m) { return 0.1 * m * std::log(factor()) + 1; };
  const double m = scaling.mscale.value_or(0), all = scaling.mscale_all_dim.value_or(0);
  return m != 0 && all != 0 ? scale(m) / scale(all) : scale(1);
}

/// What the frequencies theta^(-2i/D) are multiplied by. All but LongRope: a share of each stays as it is, the rest is divided by the
/// factor; high frequencies, which make many turns within the original length, stay.
std::vector<double> RotaryEmbedding::stretch(bool long_text) const {
  const RopeScaling& s = scaling;
  std::vector<double> out;
  if (s.rope_type == RopeType::LongRope) {
    out = long_text ? s.long_factor : s.short_factor;
    for (double& x : out) x = 1 / x;
    return out;
  }
  double low = 0, high = 0;
  if (s.rope_type == RopeType::Yarn) {
    const auto index_of = [&](double turns) {  // the i whose frequency makes so many
      return double(depth) * std::log(original() / (turns * kTurn)) / (2 * std::log(theta));
    };
    low = index_of(s.beta_fast), high = index_of(s.beta_slow);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.), high = std::min(high, double(depth - 1));
    if (low == high) high += 0.001;
  }
  for (int64_t i = 0; i < depth / 2; ++i) {
    double kept = 0;
    if (s.rope_type == RopeType::Yarn) kept = 1 - (double(i) - low) / (high - low);
    if (s.rope_type == RopeType::Llama3) {
      const double turns = original() * std::pow(theta, -2. * double(i) / double(depth)) / kTurn;
      kept = (turns - *s.low_freq_factor) / (*s.high_freq_factor - *s.low_freq_factor);
    }
    kept = std::clamp(kept, 0., 1.);
    out.push_back((1 - kept) / factor() + kept);
  }
  return out;
}
Tensor RotaryEmbedding::inv_freq(const Tensor& length) const {
  NoGrad guard;
  const TensorOptions wide{.dtype = kFloat64, .device = length.device()};
  const Tensor exponents = div(arange(0, depth, 2, wide), -double(depth));
  if (scaling.rope_type == RopeType::Dynamic) {
    const double most = double(max_position_embeddings), f = factor();
    const Tensor longer = sub(mul(maximum(to(length, kFloat64), most), f / most), f - 1);
    return pow(mul(pow(longer, double(depth) / double(depth - 2)), theta), exponents);
  }
  const Tensor rates = pow(Scalar(theta), exponents);
  if (scaling.rope_type == RopeType::Default) return rates;
  const Tensor by = tensor(stretch(false), wide);
  if (scaling.rope_type != RopeType::LongRope) return mul(rates, by);
  return mul(rates, where(gt(length, int64_t(original())), tensor(stretch(true), wide), by));
}
RotaryTable RotaryEmbedding::table(const Tensor& positions, DType dtype) const {
  NoGrad guard;
  const Tensor length = add(select(positions, 0, -1), 1);
  const Tensor half = mul(unsqueeze(to(positions, kFloat64), 1), inv_freq(length)), angles = cat({half, half}, 1);
  const double scale = attention_factor();
  const auto scaled = [&](const Tensor& x) { return to(scale == 1 ? x : mul(x, scale), dtype); };
  return {scaled(cos(angles)), scaled(sin(angles))};
}
Tensor RotaryTable::rotate(const Tensor& x) const {
  const std::vector<Tensor> half = chunk(x, 2, -1);
  return add(mul(x, cos), mul(cat({neg(half[1]), half[0]}, -1), sin));
}

}  // namespace tapir::inline v0::models
