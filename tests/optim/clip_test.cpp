#include <tapir/tapir.h>

#include <cmath>
#include <limits>

#include "../catch.h"
using namespace tapir;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

/// Parameters whose gradients are these numbers, in two dtypes; one has none.
std::vector<Tensor> params(const std::vector<double>& gradients) {
  std::vector<Tensor> out{zeros({2}, {.requires_grad = true})};
  for (size_t i = 0; i < gradients.size(); ++i) {
    const DType t = i % 2 ? kFloat64 : kFloat32;
    out.push_back(zeros({1}, {.dtype = t, .requires_grad = true}));
    out.back().set_grad(tensor({gradients[i]}, {.dtype = t}));
  }
  return out;
}
double grad_of(const std::vector<Tensor>& p, size_t i) { return p[i + 1].grad().item(); }
bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }
}  // namespace

TEST_CASE("clip_grad_norm_ scales all gradients by one factor and returns the norm before") {
  auto p = params({3, 4});
  CHECK(near(optim::clip_grad_norm_(p, 10).item(), 5));
  CHECK(grad_of(p, 0) == 3);  // below the limit: untouched
  CHECK(near(optim::clip_grad_norm_(p, 1).item(), 5));
  CHECK(near(grad_of(p, 0), 0.6));
  CHECK(near(grad_of(p, 1), 0.8));
  auto q = params({3, -4});
  CHECK(optim::clip_grad_norm_(q, 2, {.norm_type = kInf}).item() == 4);
  CHECK(near(grad_of(q, 0), 1.5));
  CHECK(near(grad_of(q, 1), -2));
  auto r = params({3, -4});
  CHECK(near(optim::clip_grad_norm_(r, 3.5, {.norm_type = 1}).item(), 7));
  CHECK(near(grad_of(r, 0), 1.5));
}

TEST_CASE("BI-213, BI-214 gradients that are not finite, limits that make no sense, no gradients") {
  for (const double bad : {kNan, kInf}) {
    auto p = params({3, bad});
    CHECK_THROWS_AS(optim::clip_grad_norm_(p, 1, {.error_if_nonfinite = true}), ValueError);
    CHECK(grad_of(p, 0) == 3);
    CHECK(!std::isfinite(optim::clip_grad_norm_(p, 1).item()));
  }
  auto p = params({3});
  CHECK_THROWS_AS(optim::clip_grad_norm_(p, -1), ValueError);
  CHECK_THROWS_AS(optim::clip_grad_norm_(p, kNan), ValueError);
  CHECK_THROWS_AS(optim::clip_grad_norm_(p, 1, {.norm_type = 0}), ValueError);
  CHECK_THROWS_AS(optim::clip_grad_value_(p, -1), ValueError);
  CHECK(grad_of(p, 0) == 3);
  CHECK(optim::clip_grad_norm_(params({}), 1).item() == 0);
}

TEST_CASE("clip_grad_value_ limits every element") {
  auto p = params({3, -4, 0.5});
  optim::clip_grad_value_(p, 2);
  CHECK(grad_of(p, 0) == 2);
  CHECK(grad_of(p, 1) == -2);
  CHECK(grad_of(p, 2) == 0.5);
}

TEST_CASE("a step that is given clip_factor clips as clip_grad_norm_ does, and leaves the gradients as they are") {
  for (double max_norm : {0., 2., 1e3}) {
    std::vector<Tensor> a, b;
    for (const DType dtype : {kFloat32, kFloat64, kFloat32}) {
      const Tensor start = randn({5, 3}, {.dtype = dtype}), grad = randn({5, 3}, {.dtype = dtype});
      for (auto* list : {&a, &b}) list->push_back(start.clone().requires_grad_()), list->back().set_grad(grad.clone());
    }
    optim::AdamW first(a, {.lr = 0.1}), second(b, {.lr = 0.1});
    const Tensor before = a[1].grad().clone(), norm = optim::grad_norm(a);
    first.step({.inv_scale = optim::clip_factor(norm, max_norm), .found_inf = {}});
    CHECK(equal(a[1].grad(), before));
    CHECK(optim::clip_grad_norm_(b, max_norm).item() == norm.item());
    second.step();
    for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i].detach(), b[i].detach()));
  }
  CHECK_THROWS_AS(optim::clip_factor(ones({}), -1), ValueError);
  CHECK_THROWS_AS(optim::grad_norm({}, {.norm_type = 0}), ValueError);
}
