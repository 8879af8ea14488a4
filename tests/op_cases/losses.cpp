// Losses of probabilities, rates, margins and alignments.
#include <cmath>

#include "case.h"

namespace op_cases {

static const char* name_of(Reduction r) { return r == Reduction::None ? "None" : r == Reduction::Mean ? "Mean" : r == Reduction::Sum ? "Sum" : "BatchMean"; }
static Case& with(Case& c, Reduction r) { return c.text += " " + std::string(name_of(r)), c; }

static Array reduced(const Array& losses, Reduction how, double batch = 1) {
  if (how == Reduction::None) return losses;
  Array y;
  for (double v : losses.v) y.v[0] += v;
  y.v[0] /= how == Reduction::Mean ? double(losses.v.size()) : how == Reduction::BatchMean ? batch : 1;
  return y;
}

/// f of the numbers at one place: input, target and what comes after them.
using Element = std::function<double(double x, double t, double w)>;
static std::function<Array(const Arrays&)> each(Reduction r, Element f) {
  return [=](const Arrays& x) {
    return reduced(make(x[0].shape, [&](const Dims& i) { return f(x[0].at(i), broadcast_at(x[1], i), x.size() > 2 ? broadcast_at(x[2], i) : 1); }), r,
                   double(x[0].shape.empty() ? 1 : x[0].shape[0]));
  };
}
/// f of the last dimension's vectors: one loss for each row.
static std::function<Array(const Arrays&)> rows(Reduction r, std::function<double(const std::vector<std::vector<double>>&)> f) {
  return [=](const Arrays& x) {
    Shape shape = x[0].shape;
    const int64_t n = shape.back();
    shape.erase(shape.size() - 1);
    return reduced(make(shape,
                        [&](Dims i) {
                          std::vector<std::vector<double>> v;
                          for (const Array& a : x) {
                            v.emplace_back();
                            const bool row = a.shape.size() > shape.size() || shape.empty();
                            for (int64_t k = 0; k < (row && a.shape.size() ? n : 1); ++k) {
                              Dims at = i;
                              if (row) at.push_back(k);
                              v.back().push_back(broadcast_at(a, at));
                            }
                          }
                          return f(v);
                        }),
                   r);
  };
}

static double log_one_plus_exp(double v) { return v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v)); }

static void of_probabilities(Table& table, Reduction r) {
  const auto shapes = [](Case& c) -> Case& { return c.within(16).on("(2,3,4) (2,3,4) | () () | (0,3) (0,3)").perf("(1024,1024) (1024,1024)"); };
  const auto bce = [](double x, double t, double w) { return -w * (t * std::log(x) + (1 - t) * std::log1p(-x)); };
  with(shapes(CASE(binary_cross_entropy, binary_cross_entropy(x[0], x[1], {.reduction = r}))), r).in({kProbability}).finite_only().expect(each(r, bce));
  with(CASE(binary_cross_entropy, binary_cross_entropy(x[0], x[1], {.weight = x[2], .reduction = r})), r)
      .in({kProbability, kProbability, kConstant})
      .within(16)
      .finite_only()
      .on("(3,4) (3,4) (4)")
      .expect(each(r, bce));
  with(shapes(CASE(kl_div, kl_div(x[0], x[1], {.reduction = r}))), r).in({kAny, kProbability}).expect(each(r, [](double x, double t, double) {
    return (t == 0 ? 0 : t * std::log(t)) - t * x;
  }));
  with(shapes(CASE(kl_div, kl_div(x[0], x[1], {.reduction = r, .log_target = true}))), r).finite_only().expect(each(r, [](double x, double t, double) {
    return std::exp(t) * (t - x);
  }));
  with(shapes(CASE(soft_margin_loss, soft_margin_loss(x[0], x[1], r))), r).finite_only().expect(each(r, [](double x, double t, double) {
    return log_one_plus_exp(-t * x);
  }));
  with(CASE(multilabel_soft_margin_loss, multilabel_soft_margin_loss(x[0], x[1], {.weight = x[2], .reduction = r})), r)
      .in({kAny, kProbability, kConstant})
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) (4) | (4) (4) (4)")
      .expect([=](const Arrays& x) {
        return rows(r, [](const std::vector<std::vector<double>>& v) {
          double s = 0;
          for (size_t k = 0; k < v[0].size(); ++k) s += v[2][k] * ((1 - v[1][k]) * v[0][k] + log_one_plus_exp(-v[0][k]));
          return s / double(v[0].size());
        })({x[0], x[1], make(x[0].shape, [&](const Dims& i) { return broadcast_at(x[2], i); })});
      });
}

static void of_rates(Table& table, Reduction r) {
  const auto shapes = [](Case& c) -> Case& { return c.within(16).finite_only().on("(2,3,4) (2,3,4) | () () | (0,3) (0,3)"); };
  const auto gaussian = [](double x, double t, double var) { return (std::log(var) + (x - t) * (x - t) / var) / 2; };
  with(CASE(gaussian_nll_loss, gaussian_nll_loss(x[0], x[1], x[2], {.reduction = r})), r)
      .in({kAny, kAny, kPositive})
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) (3,4) | (3,4) (3,4) (3,1)")
      .expect(each(r, gaussian));
  with(CASE(gaussian_nll_loss, gaussian_nll_loss(x[0], x[1], x[2], {.full = true, .reduction = r})), r)
      .in({kAny, kAny, kPositive})
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) (3)")
      .expect([=](const Arrays& x) {
        const Array var = make(x[0].shape, [&](const Dims& i) { return x[2].at(i[0]); });
        return each(r, [=](double x, double t, double v) { return gaussian(x, t, v) + std::log(8 * std::atan(1)) / 2; })({x[0], x[1], var});
      });
  with(CASE(gaussian_nll_loss, gaussian_nll_loss(x[0], x[1], 0.5, {.reduction = r})), r)
      .within(32)
      .finite_only()
      .on("(3,4) (3,4)")
      .expect(each(r, [=](double x, double t, double) { return gaussian(x, t, 0.5); }));
  const auto stirling = [](double t) { return t > 1 ? t * std::log(t) - t + std::log(8 * std::atan(1) * t) / 2 : 0; };
  with(shapes(CASE(poisson_nll_loss, poisson_nll_loss(x[0], x[1], {.full = true, .reduction = r}))), r)
      .in({kAny, kPositive})
      .expect(each(r, [=](double x, double t, double) { return std::exp(x) - t * x + stirling(t); }));
  with(shapes(CASE(poisson_nll_loss, poisson_nll_loss(x[0], x[1], {.log_input = false, .reduction = r}))), r)
      .in({kPositive})
      .expect(each(r, [](double x, double t, double) { return x - t * std::log(x + 1e-8); }));
}

static void of_distances(Table& table, Reduction r) {
  const auto shapes = [](Case& c) -> Case& { return c.within(16).on("(2,3,4) (2,3,4) | (2,3) (3) | () () | (0,3) (0,3)").perf("(1024,1024) (1024,1024)"); };
  with(shapes(CASE(smooth_l1_loss, smooth_l1_loss(x[0], x[1], {.reduction = r, .beta = 0.7}))), r).expect(each(r, [](double x, double t, double) {
    const double d = std::abs(x - t);
    return d < 0.7 ? d * d / 1.4 : d - 0.35;
  }));
  const auto huber = [](double x, double t, double w) {
    const double d = std::abs(x - t);
    return w * (d < 0.7 ? d * d / 2 : 0.7 * (d - 0.35));
  };
  with(shapes(CASE(huber_loss, huber_loss(x[0], x[1], {.reduction = r, .delta = 0.7}))), r).expect(each(r, huber));
  with(CASE(huber_loss, huber_loss(x[0], x[1], {.reduction = r, .delta = 0.7, .weight = x[2]})), r)
      .in({kAny, kAny, kConstant})
      .within(16)
      .on("(3,4) (3,4) (3,4)")
      .expect(each(r, huber));
}

/// Targets 1 and -1 (and 0) from labels.
static Tensor signs(const Tensor& labels) { return sub(labels, 1); }

static void of_margins(Table& table, Reduction r) {
  with(CASE(hinge_embedding_loss, hinge_embedding_loss(x[0], signs(x[1]), {.margin = 0.6, .reduction = r})), r)
      .in({kAny, labels(3)})
      .within(16)
      .finite_only()
      .on("(3,4) (3,4) | () ()")
      .expect(each(r, [](double x, double t, double) { return (t == 2 ? 0 : std::max(0.0, 0.6 - x)) + (t == 0 ? 0 : x); }));
  with(CASE(margin_ranking_loss, margin_ranking_loss(x[0], x[1], x[2], {.margin = 0.5, .reduction = r})), r)
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) (3,4) | () () ()")
      .expect(each(r, [](double a, double b, double t) { return std::max(0.0, -t * (a - b) + 0.5); }));
  with(CASE(cosine_embedding_loss, cosine_embedding_loss(x[0], x[1], sub(mul(x[2], 2), 1), {.margin = -0.4, .reduction = r})), r)
      .in({kAny, kAny, labels(2)})
      .within(64)
      .finite_only()
      .on("(3,4) (3,4) (3) | (4) (4) ()")
      .expect(rows(r, [](const std::vector<std::vector<double>>& v) {
        double ab = 0, aa = 1e-12, bb = 1e-12;  // as PyTorch
        for (size_t k = 0; k < v[0].size(); ++k) ab += v[0][k] * v[1][k], aa += v[0][k] * v[0][k], bb += v[1][k] * v[1][k];
        const double cosine = ab / std::sqrt(aa * bb);
        return v[2][0] == 1 ? 1 - cosine : std::max(0.0, cosine + 0.4);
      }));
  for (int64_t p : {1, 2})
    with(CASE(multi_margin_loss, multi_margin_loss(x[0], x[1], {.p = p, .margin = 0.9, .weight = x[2], .reduction = r})), r)
        .of(kFloats)
        .in({kAny, labels(4), kConstant})
        .within(32)
        .finite_only()
        .on("(3,4) (3) (4) | (4) () (4)")
        .expect([=](const Arrays& x) {
          return rows(r, [&](const std::vector<std::vector<double>>& v) {
            const size_t t = size_t(v[1][0]);
            double s = 0;
            for (size_t c = 0; c < 4; ++c)
              if (c != t) s += x[2].v[t] * std::pow(std::max(0.0, 0.9 - v[0][t] + v[0][c]), double(p)) / 4;
            return s;
          })({x[0], x[1]});
        });
  with(CASE(multilabel_margin_loss, multilabel_margin_loss(x[0], signs(x[1]), r)), r)
      .in({kAny, labels(5)})
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) | (4) (4)")
      .expect(rows(r, [](const std::vector<std::vector<double>>& v) {
        std::vector<bool> chosen(4);
        size_t listed = 0;
        for (; listed < 4 && v[1][listed] > 0; ++listed) chosen[size_t(v[1][listed]) - 1] = true;
        double s = 0;
        for (size_t k = 0; k < listed; ++k)
          for (size_t c = 0; c < 4; ++c)
            if (!chosen[c]) s += std::max(0.0, 1 - v[0][size_t(v[1][k]) - 1] + v[0][c]) / 4;
        return s;
      }));
  const auto distance = [](const std::vector<double>& a, const std::vector<double>& b) {
    double s = 0;
    for (size_t k = 0; k < a.size(); ++k) s += std::pow(std::abs(a[k] - b[k] + 1e-6), 3);
    return std::cbrt(s);
  };
  for (bool swap : {false, true})
    with(CASE(triplet_margin_loss, triplet_margin_loss(x[0], x[1], x[2], {.margin = 1.5, .p = 3, .swap = swap, .reduction = r})), r)
        .within(64)
        .finite_only()
        .on("(3,4) (3,4) (3,4) | (4) (4) (4)")
        .expect(rows(r, [=](const std::vector<std::vector<double>>& v) {
          const double far = swap ? std::min(distance(v[0], v[2]), distance(v[1], v[2])) : distance(v[0], v[2]);
          return std::max(0.0, distance(v[0], v[1]) - far + 1.5);
        }));
}

static void of_callers_distance(Table& table) {
  const auto distance = [](const Tensor& a, const Tensor& b) { return square(sub(a, b)); };
  CASE(triplet_margin_with_distance_loss, triplet_margin_with_distance_loss(x[0], x[1], x[2], distance, {.margin = 2, .swap = true}))
      .within(64)
      .finite_only()
      .on("(3,4) (3,4) (3,4)")
      .expect([](const Arrays& x) {
        const auto d = [&](int a, int b, size_t i) { return std::pow(x[size_t(a)].v[i] - x[size_t(b)].v[i], 2); };
        Array y;
        for (size_t i = 0; i < 12; ++i) y.v[0] += std::max(0.0, d(0, 1, i) - std::min(d(0, 2, i), d(1, 2, i)) + 2) / 12;
        return y;
      });
  CASE(triplet_loss_of_distances, triplet_loss_of_distances(x[0], x[1], 0.5, Reduction::None)).EACH(2, std::max(0.0, a - b + 0.5)).finite_only();
}

/// Sums over all alignments of probabilities: every path through the frames is walked.
static double alignments(const Array& p, int64_t n, int64_t t, int64_t frames, const std::vector<int64_t>& states, size_t state) {
  const double here = p.at({t, n, states[state]});
  if (t == frames - 1) return state + 2 >= states.size() ? here : 0;
  double s = 0;
  for (size_t next = state; next < states.size() && next <= state + 2; ++next)
    if (next < state + 2 || (states[next] != 0 && states[next] != states[state])) s += alignments(p, n, t + 1, frames, states, next);
  return here * s;
}
static void of_alignments(Table& table, Reduction r) {
  static const std::vector<int64_t> frames = {5, 4}, lengths = {2, 1};
  with(CASE(ctc_loss, ctc_loss(log_softmax(x[0], 2), add(x[1], 1), frames, lengths, {.reduction = r})), r)
      .of(set_of({kFloat32, kFloat64}))
      .in({kAny, labels(3)})
      .within(64)
      .finite_only()
      .on("(5,2,4) (2,2)")
      .expect([=](const Arrays& x) {
        Array p = along(x[0], 2, [](const std::vector<double>& v) {
          std::vector<double> y;
          double s = 0;
          for (double a : v) s += std::exp(a);
          for (double a : v) y.push_back(std::exp(a) / s);
          return y;
        });
        return reduced(make(2,
                            [&](const Dims& i) {
                              const size_t n = size_t(i[0]);
                              std::vector<int64_t> states = {0};
                              for (int64_t k = 0; k < lengths[n]; ++k) states.push_back(int64_t(x[1].at({i[0], k})) + 1), states.push_back(0);
                              const double total = alignments(p, i[0], 0, frames[n], states, 0) + alignments(p, i[0], 0, frames[n], states, 1);
                              return -std::log(total) / (r == Reduction::Mean ? double(lengths[n]) : 1);
                            }),
                       r);
      });
}

void more_loss_cases(Table& table) {
  for (Reduction r : {Reduction::None, Reduction::Mean, Reduction::Sum})
    of_probabilities(table, r), of_rates(table, r), of_distances(table, r), of_margins(table, r), of_alignments(table, r);
  of_callers_distance(table);
  with(CASE(kl_div, kl_div(x[0], x[1], {.reduction = Reduction::BatchMean})), Reduction::BatchMean)
      .in({kAny, kProbability})
      .within(16)
      .on("(3,4) (3,4) | () ()")
      .expect(each(Reduction::BatchMean, [](double x, double t, double) { return (t == 0 ? 0 : t * std::log(t)) - t * x; }));
}

}  // namespace op_cases
