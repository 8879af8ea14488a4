#include <tapir/tapir.h>

#include "../ops/helpers.h"

TEST_CASE("saved-tensor hooks see what operations save, and double backward still works") {
  const Tensor x = leaf({1, 2, 3});
  int packed = 0, unpacked = 0;
  Tensor y;
  {
    auto guard = saved_tensors_hooks([&](const Tensor& t) { return ++packed, t.clone(); },
                                     [&](const Tensor& t) { return ++unpacked, t; });
    y = sum(exp(x * 2) * sin(x));
  }
  CHECK(packed > 0);
  const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  CHECK(unpacked > 0);
  const Tensor h = grad({sum(g)}, {x})[0];
  const auto plain = [](const Tensor& x) { return exp(x * 2) * sin(x); };
  const Tensor want = grad({sum(grad({sum(plain(x))}, {x}, {}, {.create_graph = true})[0])}, {x})[0];
  CHECK(h.to_vector<double>() == want.to_vector<double>());
}

TEST_CASE("hooks may keep less: float16 in place of float64") {
  const Tensor x = leaf({0.1, 0.7});
  auto guard = saved_tensors_hooks([](const Tensor& t) { return t.to(kFloat16); },
                                   [](const Tensor& t) { return t.to(kFloat64); });
  const Tensor y = x * 1;  // not a leaf: leaves are kept as they are
  const double exact = 2 * 0.7, got = grad({sum(y * y)}, {x})[0].to_vector<double>()[1];
  CHECK(got != exact);
  CHECK(std::abs(got - exact) < 1e-3);
}

TEST_CASE("unpack must give what was packed") {
  const Tensor x = leaf({1, 2});
  Tensor y;
  {
    auto guard = saved_tensors_hooks([](const Tensor& t) { return t; }, [](const Tensor& t) { return sum(t); });
    y = sum(exp(x));
  }
  CHECK(mentions(error_of([&] { y.backward(); }), {"saved_tensor_hooks", "exp", "(2,)"}));
}

TEST_CASE("the innermost hooks count, and SaveOnCpu leaves what is there already") {
  const Tensor x = leaf({1, 2});
  int outer = 0, inner = 0;
  auto a = saved_tensors_hooks([&](const Tensor& t) { return ++outer, t; }, [](const Tensor& t) { return t; });
  {
    auto b = saved_tensors_hooks([&](const Tensor& t) { return ++inner, t; }, [](const Tensor& t) { return t; });
    exp(x);
  }
  CHECK(inner == 1);
  CHECK(outer == 0);
  SaveOnCpu host;
  sum(exp(x)).backward();
  CHECK(outer == 0);
}
