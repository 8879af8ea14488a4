// Losses. A reference gives the loss of each element, its share of the mean, and is reduced by `reduced`.
#include <cmath>

#include "case.h"

namespace op_cases {

static Array reduced(const Array& losses, Reduction how, double weights) {
  if (how == Reduction::None) return losses;
  Array y;
  for (double v : losses.v) y.v[0] += v;
  if (how == Reduction::Mean) y.v[0] /= weights;
  return y;
}
static const char* name_of(Reduction r) { return r == Reduction::None ? "None" : r == Reduction::Mean ? "Mean" : "Sum"; }
/// The mean of integers is refused; differences of uint8 wrap around.
static Case& integers_too(Case& c, Reduction r) {
  return r == Reduction::Mean ? c : c.of(kNumbers & ~set_of({kUInt8})).gives(r == Reduction::Sum ? Gives::Sums : Gives::Same);
}
/// Several reductions stand in one loop, so the text names which.
static Case& with(Case& c, Reduction r) { return c.text += " " + std::string(name_of(r)), c; }

/// x's index (n, c, ...) for a label's index (n, ...).
static Dims at_class(const Dims& i, int64_t c, int64_t rank) {
  Dims at = i;
  at.insert(rank == 1 ? 0 : 1, c);
  return at;
}
static Array log_softmaxed(const Array& x) {
  return along(x, x.shape.size() == 1 ? 0 : 1, [](const std::vector<double>& v) {
    double top = -INFINITY, s = 0;
    for (double a : v) top = std::isnan(a) ? a : std::max(top, a);
    for (double a : v) s += std::exp(a - top);
    std::vector<double> y;
    for (double a : v) y.push_back(a - top - std::log(s));
    return y;
  });
}

/// Labels: (1 - smoothing) w[t] (-l[t]) + smoothing / C sum over c of w[c] (-l[c]); label 0 may be ignored.
static Array of_labels(const Array& logs, const Array& labels, const Array* weight, Reduction how, double smoothing, int64_t ignored = -1) {
  const int64_t rank = logs.shape.size(), classes = logs.shape[rank == 1 ? 0 : 1];
  double weights = 0;
  const auto w = [&](int64_t c) { return weight ? weight->at(c) : 1; };
  const Array losses = make(labels.shape, [&](const Dims& i) {
    const int64_t t = int64_t(labels.at(i));
    if (t == ignored) return 0.0;
    weights += w(t);
    double loss = -(1 - smoothing) * w(t) * logs.at(at_class(i, t, rank));
    for (int64_t c = 0; c < classes && smoothing > 0; ++c) loss -= smoothing / double(classes) * w(c) * logs.at(at_class(i, c, rank));
    return loss;
  });
  return reduced(losses, how, weights);
}

/// x (..., D) times w (C, D), with the classes where of_labels wants them.
static Array scored(const Array& x, const Array& w) {
  const int64_t rank = x.shape.size(), axis = rank == 1 ? 0 : 1;
  Shape shape = x.shape;
  shape.erase(rank - 1), shape.insert(axis, w.shape[0]);
  return make(shape, [&](const Dims& i) {
    Dims at = i;
    at.erase(axis), at.push_back(0);
    double sum = 0;
    for (int64_t d = 0; d < w.shape[1]; ++d) at[rank - 1] = d, sum += x.at(at) * w.at({i[axis], d});
    return sum;
  });
}

static void of_classes(Table& table, Reduction r) {
  with(CASE(cross_entropy, cross_entropy(x[0], x[1], {.reduction = r})), r)
      .in({kAny, labels(4)})
      .within(16)
      .on("(5,4) (5) | (2,4,3) (2,3) | (4) ()")
      .perf("(1024,1000) (1024)")
      .EXPECT(of_labels(log_softmaxed(x[0]), x[1], nullptr, r, 0));
  with(CASE(cross_entropy, cross_entropy(x[0], x[1], {.reduction = r, .ignore_index = 1})), r)
      .in({kAny, labels(4)})
      .within(16)
      .on("(5,4) (5) | (2,4,3) (2,3)")
      .EXPECT(of_labels(log_softmaxed(x[0]), x[1], nullptr, r, 0, 1));
  with(CASE(cross_entropy, cross_entropy(x[0], x[1], {.weight = x[2], .reduction = r, .label_smoothing = 0.2})), r)
      .in({kAny, labels(4), kConstant})
      .within(32)
      .on("(5,4) (5) (4)")
      .EXPECT(of_labels(log_softmaxed(x[0]), x[1], &x[2], r, 0.2));
  with(CASE(linear_cross_entropy, linear_cross_entropy(x[0], x[1], x[2], {.reduction = r, .ignore_index = 1, .chunk_size = 2})), r)
      .in({kAny, kAny, labels(4)})
      .within(128)
      .finite_only()
      .on("(5,3) (4,3) (5) | (2,3,2) (4,2) (2,3) | (3) (4,3) () | (0,3) (4,3) (0)")
      .perf("(4096,768) (32000,768) (4096)")
      .EXPECT(of_labels(log_softmaxed(scored(x[0], x[1])), x[2], nullptr, r, 0, 1));
  with(CASE(cross_entropy, cross_entropy(x[0], x[1], {.reduction = r})), r).in({kAny, kProbability}).within(32).on("(5,4) (5,4)").expect([=](const Arrays& x) {
    const Array logs = log_softmaxed(x[0]);
    return reduced(make(5,
                        [&](const Dims& i) {
                          double s = 0;
                          for (int64_t c = 0; c < 4; ++c) s -= x[1].at({i[0], c}) * logs.at({i[0], c});
                          return s;
                        }),
                   r, 5);
  });
  with(CASE(nll_loss, nll_loss(x[0], x[1], {.weight = x[2], .reduction = r, .ignore_index = 2})), r)
      .in({kAny, labels(4), kConstant})
      .within(16)
      .finite_only()
      .on("(5,4) (5) (4) | (2,4,3) (2,3) (4)")
      .EXPECT(of_labels(x[0], x[1], &x[2], r, 0, 2));
  with(CASE(nll_loss, nll_loss(x[0], x[1], {.reduction = r, .ignore_index = 1})), r)
      .in({kPositive, labels(4)})
      .within(16)
      .finite_only()
      .on("(5,4) (5)")
      .EXPECT(of_labels(x[0], x[1], nullptr, r, 0, 1));
  with(CASE(nll_loss, nll_loss(x[0], x[1], {.reduction = r})), r)
      .in({kAny, labels(4)})
      .within(16)
      .finite_only()
      .on("(5,4) (5) | (4) ()")
      .EXPECT(of_labels(x[0], x[1], nullptr, r, 0));
}

static void of_elements(Table& table, Reduction r) {
  const auto each = [r](double (*f)(double x, double t, double w)) {
    return [r, f](const Arrays& x) {
      double weights = 0;
      const Array losses = make(x[0].shape, [&](const Dims& i) {
        const double w = x.size() > 2 ? broadcast_at(x[2], i) : 1;
        weights += w;
        return f(x[0].at(i), broadcast_at(x[1], i), w);
      });
      return reduced(losses, r, weights);
    };
  };
  const auto square = [](double x, double t, double w) { return w * (x - t) * (x - t); };
  const auto distance = [](double x, double t, double w) { return w * std::abs(x - t); };
  const auto bce = [](double x, double t, double w) {
    const double log_p = x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
    return -w * (t * log_p + (1 - t) * (log_p - x));
  };
  const auto shapes = [](Case& c) -> Case& { return c.within(16).on("(2,3,4) (2,3,4) | () ()").perf("(1024,1024) (1024,1024)"); };
  integers_too(with(shapes(CASE(mse_loss, mse_loss(x[0], x[1], {.reduction = r}))), r), r).expect(each(square));
  integers_too(with(shapes(CASE(l1_loss, l1_loss(x[0], x[1], {.reduction = r}))), r), r).expect(each(distance));
  with(shapes(CASE(binary_cross_entropy_with_logits, binary_cross_entropy_with_logits(x[0], x[1], {.reduction = r}))), r)
      .in({kAny, kProbability})
      .finite_only()
      .expect(each(bce));
  with(CASE(mse_loss, mse_loss(x[0], x[1], {.weight = x[2], .reduction = r})), r)
      .in({kAny, kAny, kConstant})
      .within(16)
      .on("(2,3) (2,3) (2,3)")
      .expect(each(square));
  with(CASE(l1_loss, l1_loss(x[0], x[1], {.weight = x[2], .reduction = r})), r)
      .in({kAny, kAny, kConstant})
      .within(16)
      .on("(2,3) (2,3) (2,3)")
      .expect(each(distance));
  with(CASE(binary_cross_entropy_with_logits, binary_cross_entropy_with_logits(x[0], x[1], {.reduction = r, .pos_weight = x[2]})), r)
      .in({kAny, kProbability, kConstant})
      .within(16)
      .finite_only()
      .on("(2,3) (2,3) (3)")
      .expect([=](const Arrays& x) {
        return reduced(make(x[0].shape,
                            [&](const Dims& i) {
                              const double v = x[0].at(i), t = x[1].at(i), p = 1 / (1 + std::exp(-v));
                              return -(broadcast_at(x[2], i) * t * std::log(p) + (1 - t) * std::log(1 - p));
                            }),
                       r, 6);
      });
}

void loss_cases(Table& table) {
  for (Reduction r : {Reduction::None, Reduction::Mean, Reduction::Sum}) of_classes(table, r), of_elements(table, r);
  more_loss_cases(table);
}

}  // namespace op_cases
