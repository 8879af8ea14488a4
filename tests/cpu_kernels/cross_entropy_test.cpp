#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

struct Case {
  std::vector<int64_t> shape;  // of logits
  std::vector<int> order;
};
const Case cases[] = {{{6, 10}, {0, 1}},
                      {{6, 10}, {1, 0}},
                      {{70, 3}, {0, 1}},
                      {{3, 5, 4, 7}, {0, 1, 2, 3}},
                      {{3, 5, 4, 7}, {0, 2, 3, 1}},
                      {{3, 50, 9}, {2, 1, 0}},
                      {{5, 300}, {0, 1}},
                      {{2, 40, 66}, {0, 1, 2}},
                      {{1, 1}, {0, 1}},
                      {{0, 5}, {0, 1}},
                      {{2, 5, 0}, {0, 1, 2}}};

struct Naive {
  std::vector<double> loss, lse, grad;
};
Naive naive(const Array& x, const Array& target, const Array* weight, const Array& dloss, const NllParams& p) {
  Naive r;
  const int64_t classes = x.view.sizes[1];
  const auto w = [&](int64_t c) { return weight ? get(*weight, {c}) : 1.0; };
  const auto at_class = [&](Place at, int64_t c) { return at.insert(at.begin() + 1, c), at; };
  const auto lse_of = [&](const Place& at) {
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; ++c) top = std::max(top, get(x, at_class(at, c)));
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(get(x, at_class(at, c)) - top);
    return top + std::log(sum);
  };
  for_places(target.view.shape(), [&](const Place& at) {
    const double lse = lse_of(at);
    const int64_t t = int64_t(get(target, at));
    double smooth = 0;
    for (int64_t c = 0; c < classes; ++c) smooth += w(c) * (lse - get(x, at_class(at, c)));
    r.lse.push_back(lse);
    if (t == p.ignore_index) r.loss.push_back(0);
    else
      r.loss.push_back((1 - p.label_smoothing) * w(t) * (lse - get(x, at_class(at, t))) +
                       p.label_smoothing / double(classes) * smooth);
  });
  for_places(x.view.shape(), [&](const Place& at) {
    const Place sample = without(at, 1);
    int64_t row = 0;  // of the sample, as the loop above met it
    for (size_t d = 0; d < sample.size(); ++d) row = row * target.view.sizes[d] + sample[d];
    const int64_t t = int64_t(get(target, sample)), c = at[1];
    const double g = get(dloss, sample), p_c = std::exp(get(x, at) - r.lse[size_t(row)]),
                 share = p.label_smoothing / double(classes);
    double all = 0;
    for (int64_t k = 0; k < classes; ++k) all += w(k);
    if (t == p.ignore_index) r.grad.push_back(0);
    else r.grad.push_back(g * ((1 - p.label_smoothing) * w(t) * (p_c - (c == t)) + share * (all * p_c - w(c))));
  });
  return r;
}

}  // namespace

TEST_CASE("cross_entropy: every float, layout and option, with its gradient") {
  for (DType t : float_dtypes)
    for (const Case& c : cases)
      for (double smoothing : {0.0, 0.1})
        for (bool weighted : {false, true})
          for (bool other_layout : {false, true}) {
            std::vector<int64_t> samples = c.shape;
            samples.erase(samples.begin() + 1);
            const NllParams params{1, smoothing};
            Array x(t, c.shape, c.order), dx(t, c.shape, other_layout ? std::vector<int>{} : c.order),
                target(kInt64, samples, {}, {}, 1);
            std::vector<int64_t> parts = samples;
            parts.insert(parts.begin(), 2);
            Array weight(t, {c.shape[1]}), loss(t, samples), lse(t == kFloat64 ? t : kFloat32, parts, {}, {}, 2),
                dloss(t, samples);
            eighths(x, 3), target.random(5, 0, int(c.shape[1]) - 1), weight.random(7, 0, 3), eighths(dloss, 9);
            const TensorView none{}, &w = weighted ? weight.view : none;
            const Naive expected = naive(x, target, weighted ? &weight : nullptr, dloss, params);
            Context& ctx = cpu_context();
            cpu_table().cross_entropy(ctx, {.losses = loss.view,
                                            .lse = lse.view,
                                            .logits = x.view,
                                            .target = target.view,
                                            .weight = w,
                                            .params = params});
            CHECK(!ctx.error.set);
            CHECK(distance(values(loss.view), expected.loss) < tolerance(t));
            std::vector<double> sums = values(lse.view);
            for (size_t i = 0; i < expected.lse.size(); ++i) sums[i] += sums[i + expected.lse.size()];
            sums.resize(expected.lse.size());
            CHECK(distance(sums, expected.lse) < tolerance(lse.view.dtype));
            cpu_table().cross_entropy_backward(cpu_context(), {.dlogits = dx.view,
                                                               .dlosses = dloss.view,
                                                               .lse = lse.view,
                                                               .logits = x.view,
                                                               .target = target.view,
                                                               .weight = w,
                                                               .params = params});
            CHECK(distance(values(dx.view), expected.grad) < tolerance(t));
          }
}

TEST_CASE("cross_entropy: labels out of range are recorded, the other losses are right") {
  for (int64_t classes : {4, 100}) {
    Array x(kFloat32, {6, classes}), target(kInt64, {6}), loss(kFloat32, {6}), lse(kFloat32, {2, 6}),
        ones(kFloat32, {6}), dx(kFloat32, {6, classes});
    x.fill(0), target.fill(1), ones.fill(1);
    put(target, {2}, double(classes)), put(target, {4}, -1), put(target, {5}, -100);
    Context& ctx = cpu_context();
    cpu_table().cross_entropy(
        ctx, {.losses = loss.view, .lse = lse.view, .logits = x.view, .target = target.view, .params = {}});
    CHECK((ctx.error.set && ctx.error.position == 2 && ctx.error.value == classes && ctx.error.bound == classes));
    for (int64_t i = 0; i < 6; ++i) CHECK(get(loss, {i}) == Approx(i < 2 || i == 3 ? std::log(double(classes)) : 0));
    Context& again = cpu_context();
    cpu_table().cross_entropy_backward(again, {.dlogits = dx.view,
                                               .dlosses = ones.view,
                                               .lse = lse.view,
                                               .logits = x.view,
                                               .target = target.view,
                                               .params = {}});
    CHECK((again.error.set && again.error.position == 2));
    CHECK((get(dx, {2, 1}) == 0 && get(dx, {5, 1}) == 0 && get(dx, {3, 1}) == Approx(1 / double(classes) - 1)));
  }
}

TEST_CASE("cross_entropy: logits 1e4 apart, infinities, NaN") {
  for (int64_t samples : {1, 5})
    for (int64_t classes : {3, 80}) {
      Array x(kFloat32, {samples, classes}), target(kInt64, {samples}), loss(kFloat32, {samples}),
          lse(kFloat32, {2, samples});
      target.fill(0);
      const auto run = [&](double first, double rest) {
        x.fill(rest);
        for (int64_t i = 0; i < samples; ++i) put(x, {i, 0}, first);
        cpu_table().cross_entropy(
            cpu_context(),
            {.losses = loss.view, .lse = lse.view, .logits = x.view, .target = target.view, .params = {}});
        return get(loss, {0});
      };
      CHECK(run(1e4, -1e4) == 0);
      CHECK(run(-1e4, 1e4) == Approx(2e4 + std::log(double(classes - 1))));
      CHECK(run(-INFINITY, 0) == INFINITY);
      CHECK(run(0, -INFINITY) == 0);
      CHECK(std::isnan(run(NAN, 0)));
      CHECK(std::isnan(run(INFINITY, 0)));
    }
}
