// Figures of PyTorch 2.15 where a line has numbers, else closed forms and moments.
#include <tapir/functional/gradcheck.h>
#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
using namespace tapir;
using namespace tapir::distributions;

namespace {
using Row = std::initializer_list<double>;
Tensor doubles(Row v) { return tensor(std::vector<double>(v)); }
Tensor doubles(std::initializer_list<Row> rows) {
  std::vector<Tensor> out;
  for (Row r : rows) out.push_back(doubles(r));
  return stack(out);
}
void near(const Tensor& got, std::vector<double> want, double tolerance = 1e-8) {
  const auto v = got.to_vector<double>();
  REQUIRE(v.size() == want.size());
  for (size_t i = 0; i < v.size(); ++i) CHECK(v[i] == Approx(want[i]).epsilon(tolerance).margin(tolerance));
}
const Tensor loc = doubles({0., 1., -2.}), scale = doubles({1., .5, 3.});
const Tensor a = doubles({0.5, 2., 40.}), b = doubles({1.5, 3., 10.});
/// Sample means within five standard errors of the mean; variances within 5 %.
template <class D> void check_moments(const D& d) {
  manual_seed(11);
  const int64_t n = 40000;
  const Tensor x = d.sample({n});
  CHECK(!x.requires_grad());
  const auto mean = tapir::mean(x, 0).template to_vector<double>(), want = d.mean().template to_vector<double>();
  const auto var = tapir::var(x, 0).template to_vector<double>(), want_var = d.variance().template to_vector<double>();
  for (size_t i = 0; i < mean.size(); ++i) {
    CHECK(std::abs(mean[i] - want[i]) < 5 * std::sqrt(want_var[i] / n));
    CHECK(var[i] == Approx(want_var[i]).epsilon(0.05));
  }
}
}  // namespace

TEST_CASE("Normal") {
  const Normal p(loc, scale), q(loc + 1, scale * 2);
  near(p.log_prob(doubles({.3, -1., 4.})), {-0.9639385332, -8.225791353, -4.017550822});
  near(p.entropy(), {1.418938533, 0.7257913526, 2.517550822});
  near(kl_divergence(p, q), {0.4431471806, 0.8181471806, 0.3320360694});
  check_moments(p);
  CHECK(Normal(zeros({2, 1}), ones(3)).sample({4, 5}).shape() == Shape{4, 5, 2, 3});
  CHECK_THROWS_AS(Normal(loc, -scale), ValueError);
  CHECK_THROWS_AS(Normal(tensor({1}), tensor({1})), ValueError);
  const Tensor m = doubles({2.}).requires_grad_(), s = doubles({3.}).requires_grad_();
  manual_seed(1);
  const Tensor x = Normal(m, s).rsample({1000});
  mean(x).backward();
  near(m.grad(), {1});
  near(s.grad(), {(mean(x).item() - 2) / 3});
}

TEST_CASE("Uniform") {
  const Uniform p(loc, loc + scale), q(loc - 1, loc + 4);
  near(p.log_prob(loc + 0.1), {0, 0.6931471806, -1.098612289});
  CHECK(std::isinf(p.log_prob(loc - 0.1).to_vector<double>()[0]));
  near(p.entropy(), {0, -0.6931471806, 1.098612289});
  near(kl_divergence(p, q), {1.609437912, 2.302585093, 0.5108256238});
  CHECK(std::isinf(kl_divergence(q, p).to_vector<double>()[0]));
  check_moments(p);
  CHECK_THROWS_AS(Uniform(loc, loc), ValueError);
}

TEST_CASE("Bernoulli") {
  const Bernoulli p(doubles({.2, .5, .9})), q(doubles({.4, .1, .8}));
  const Tensor value = doubles({1., 0., 1.});
  near(p.log_prob(value), {-1.609437912, -0.6931471806, -0.1053605157});
  near(Bernoulli::from_logits(loc).log_prob(value), {-0.6931471806, -1.313261688, -2.126928011});
  near(p.entropy(), {0.5004024235, 0.6931471806, 0.3250829734});
  near(kl_divergence(p, q), {0.09151622185, 0.5108256238, 0.03669001403});
  const Bernoulli sure(doubles({0., 1.})), half(doubles({.5, .5}));
  near(kl_divergence(sure, half), {std::log(2.), std::log(2.)}, 1e-6);
  CHECK(std::isinf(kl_divergence(half, sure).to_vector<double>()[0]));
  check_moments(p);
  CHECK_THROWS_AS(Bernoulli(doubles({1.5})), ValueError);
}

TEST_CASE("Categorical") {
  const Tensor w = doubles({{1., 2., 3., 4.}, {0., 1., 1., 0.}}), v = doubles({{4., 3., 2., 1.}, {1., 1., 1., 1.}});
  const Categorical p(w), q(v);
  near(p.log_prob(tensor({2, 1})), {-1.203972804, -0.6931471806});
  near(Categorical::from_logits(w).log_prob(tensor({3, 0})), {-0.4401896986, -2.006408868});
  near(p.entropy(), {1.279854226, 0.6931471806});
  near(kl_divergence(p, q), {0.4564348191, 0.6931471806});
  CHECK(std::isinf(kl_divergence(q, p).to_vector<double>()[1]));
  manual_seed(2);
  const Tensor x = p.sample({30000});
  CHECK(x.shape() == Shape{30000, 2});
  for (int64_t c = 0; c < 4; ++c)
    near(mean(eq(x, c).to(kFloat64), 0),
         {p.probs.select(0, 0).select(0, c).item(), p.probs.select(0, 1).select(0, c).item()}, 0.03);
  CHECK(p.log_prob(x).shape() == Shape{30000, 2});
  CHECK(p.sample().shape() == Shape{2});
  CHECK(std::isnan(p.mean().to_vector<double>()[0]));
  CHECK_THROWS_AS(Categorical(doubles({1., -1.})), ValueError);
  CHECK_THROWS_AS(Categorical(zeros(3)), ValueError);
  CHECK_THROWS_AS(p.log_prob(tensor({4, 0})), ValueError);
}

TEST_CASE("Beta") {
  const Beta p(a, b), q(b, a);
  near(p.log_prob(doubles({.2, .6, .85})), {0.2415644753, 0.1414995623, 1.719838091});
  near(p.entropy(), {-0.5484172947, -0.2349066498, -1.47919277});
  near(kl_divergence(p, q), {2, 0.5, 42.73724355});
  near(p.variance(), {0.0625, 0.04, 0.003137254902});
  check_moments(p);
  CHECK_THROWS_AS(Beta(a, -b), ValueError);
}

TEST_CASE("Dirichlet") {
  const Dirichlet p(doubles({{.5, 1., 2.}, {3., 4., 50.}})), q(doubles({{1., 1., 1.}, {2., 4., 30.}}));
  near(p.log_prob(doubles({{.2, .3, .5}, {.05, .1, .85}})), {0.7401804351, 4.439499172});
  near(p.entropy(), {-1.481569687, -4.263862963});
  near(kl_divergence(p, q), {0.7884225066, 0.4580196919});
  near(p.variance(), {0.02721088435, 0.04535147392, 0.05442176871, 0.0008596809628, 0.001125014593, 0.001857335414});
  check_moments(p);
  near(sum(p.sample({10}), -1), std::vector<double>(20, 1));
  CHECK(isfinite(Dirichlet(full({2, 3}, 1e-3)).sample({100})).all().item<bool>());  // variates of 1e-300 and less
}

TEST_CASE("gradients of densities, entropies and divergences") {
  const Tensor x = doubles({.2, .5, .3}), c = doubles({.7, 2., 5.}).requires_grad_(),
               d = doubles({1.5, .4, 3.}).requires_grad_();
  const auto holds = [&](auto f) { CHECK(gradcheck(f, {c.detach().requires_grad_(), d.detach().requires_grad_()})); };
  using List = std::vector<Tensor>;
  holds([&](const List& v) {
    return List{Dirichlet(v[0]).log_prob(x), Dirichlet(v[0]).entropy(),
                kl_divergence(Dirichlet(v[0]), Dirichlet(v[1]))};
  });
  holds([&](const List& v) {
    return List{Beta(v[0], v[1]).log_prob(x), Beta(v[0], v[1]).entropy(),
                kl_divergence(Beta(v[0], v[1]), Beta(v[1], v[0]))};
  });
  holds([&](const List& v) {
    return List{Normal(v[0], v[1]).log_prob(x), Normal(v[0], v[1]).entropy(),
                kl_divergence(Normal(v[0], v[1]), Normal(v[1], v[0]))};
  });
  holds([&](const List& v) {
    return List{Categorical(v[0]).entropy(), kl_divergence(Categorical(v[0]), Categorical::from_logits(v[1]))};
  });
}

TEST_CASE("implicit gradients of gamma variates: d ln(x) / d a at fixed probability, from 40-digit arithmetic") {
  const std::vector<double> av{0.05, 0.5, 1, 3, 10, 29.9, 30, 100, 1000};
  const std::vector<double> xv{1e-6, .3, 2, 1, 14, 25, 36, 80, 1060};
  const std::vector<double> want{266.35358314383507,   3.366006486496182,    0.8158457311748504,
                                 0.5787730491540525,   0.08553020698385354,  0.03673106581371676,
                                 0.030556157151514173, 0.011175758354452286, 0.0009713103251365888};
  for (size_t i = 0; i < av.size(); ++i)
    CHECK(tapir::distributions::detail::log_gamma_slope(av[i], std::log(xv[i])) == Approx(want[i]).epsilon(1e-7));
}

TEST_CASE("rsample of Beta and Dirichlet: the mean gradient is that of the mean") {
  const Tensor c = doubles({.6, 2., 45.}).requires_grad_();
  manual_seed(5);
  const Tensor x = Dirichlet(c).rsample({20000});
  const Tensor weight = doubles({1., 2., -1.});
  const auto sampled = grad({mean(sum(x * weight, -1))}, {c})[0].to_vector<double>();
  const auto exact = grad({sum(Dirichlet(c).mean() * weight)}, {c})[0].to_vector<double>();
  for (size_t i = 0; i < 3; ++i) CHECK(sampled[i] == Approx(exact[i]).epsilon(0.05).margin(2e-4));
  const Tensor p = doubles({.5, 3.}).requires_grad_(), q = doubles({2., 1.5}).requires_grad_();
  const auto g = grad({sum(mean(square(Beta(p, q).rsample({40000})), 0))}, {p, q});
  const Beta beta(p, q);
  const auto h = grad({sum(beta.variance() + square(beta.mean()))}, {p, q});
  for (size_t i = 0; i < 2; ++i) {
    const auto got = g[i].to_vector<double>(), want = h[i].to_vector<double>();
    for (size_t k = 0; k < 2; ++k) CHECK(got[k] == Approx(want[k]).epsilon(0.05));
  }
  const auto twice = [&] {
    const Tensor once = grad({sum(square(Beta(p, q).rsample()))}, {p}, {}, {.create_graph = true})[0];
    grad({sum(once)}, {p});
  };
  CHECK_THROWS_AS(twice(), ValueError);
}

TEST_CASE("gamma variates are the same for a seed, and have the right moments for small and large concentrations") {
  const Tensor c = doubles({1e-2, .3, 1., 7., 500.});
  manual_seed(9);
  const Tensor x = exp(log_standard_gamma(expand(c, {40000, 5})));
  manual_seed(9);
  CHECK(exp(log_standard_gamma(expand(c, {40000, 5}))).to_vector<double>() == x.to_vector<double>());
  const auto m = mean(x, 0).to_vector<double>(), v = var(x, 0).to_vector<double>(), want = c.to_vector<double>();
  for (size_t i = 0; i < 5; ++i) {
    CHECK(std::abs(m[i] - want[i]) < 5 * std::sqrt(want[i] / 40000));
    CHECK(v[i] == Approx(want[i]).epsilon(0.15));
  }
  const auto low = mean((x.select(1, 0) < 1e-30).to(kFloat64)).item();  // P(x < t) = t^a / Gamma(a + 1) for small t
  CHECK(low == Approx(std::pow(1e-30, 1e-2) / std::tgamma(1.01)).margin(0.012));
}
