// Values at the edges, which PyTorch's users know.
#include "refused.h"

TEST_CASE("BI-365 softmax and logsumexp of huge and infinite numbers") {
  const Tensor far = tensor({1e30, -1e30});
  CHECK(values(softmax(far, 0)) == Values{1, 0});
  CHECK(logsumexp(far, 0).item() == far[0].item());
  CHECK(close(values(softmax(tensor({kInf, 1.0}), 0)), {kNan, kNan}));
  CHECK(close(values(softmax(tensor({-kInf, -kInf}), 0)), {kNan, kNan}));
  CHECK(values(logsumexp(tensor({-kInf, -kInf}), 0)) == Values{-kInf});
  CHECK(values(logsumexp(tensor({kInf, 1.0}), 0)) == Values{kInf});
}

TEST_CASE("BI-366 NaN is not swallowed") {
  const Tensor x = tensor({1.0, kNan, 3.0});
  CHECK(std::isnan(x.max().item()));
  CHECK(std::isnan(x.min().item()));
  CHECK(close(values(relu(x)), {1, kNan, 3}));
  CHECK(close(values(clamp(x, 0, 2)), {1, kNan, 2}));
  CHECK(close(values(maximum(x, zeros({3}))), {1, kNan, 3}));
  CHECK(close(values(fmax(x, zeros({3}))), {1, 0, 3}));
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    CHECK(std::isnan(max_pool2d(x.to(t).view({1, 1, 1, 3}), {1, 3}).item()));
    CHECK(std::isnan(x.to(t).max().item()));
    CHECK(std::isnan(amax(x.to(t).expand({40, 3}), {0, 1}).item()));
  }
}

TEST_CASE("BI-367 the first of equals, and the first NaN") {
  CHECK(argmax(tensor({1.0, 3.0, 3.0}), 0).item() == 1);
  CHECK(argmin(tensor({1.0, 0.0, 0.0}), 0).item() == 1);
  CHECK(argmax(tensor({1.0, kNan, 3.0, kNan}), 0).item() == 1);
  CHECK(argmin(tensor({1.0, kNan, 3.0, kNan}), 0).item() == 1);
  Tensor many = zeros({100000});
  many.slice(0, 31, 33).fill_(5);
  many.slice(0, 77777).fill_(5);
  CHECK(argmax(many, 0).item() == 31);
}

TEST_CASE("BI-368 cross entropy far from 0") {
  const Tensor label = zeros({1}, {.dtype = kInt64});
  CHECK(cross_entropy(tensor({{0.0, 1e4}}), label).item() == 1e4);
  CHECK(cross_entropy(tensor({{1e4, 0.0}}), label).item() == 0);
  CHECK(std::isnan(cross_entropy(tensor({{kNan, 0.0}}), label).item()));
  CHECK(std::isnan(cross_entropy(tensor({{kInf, 0.0}}), label).item()));
}

TEST_CASE("BI-369 BI-370 the edges of functions, and gradients there") {
  CHECK(log(tensor(0.0)).item() == -kInf);
  CHECK(std::isnan(sqrt(tensor(-1.0)).item()));
  CHECK((1 / tensor(0.0)).item() == kInf);
  CHECK(std::isnan((tensor(0.0) / 0.0).item()));
  CHECK(pow(tensor(0.0), -1).item() == kInf);
  CHECK(std::isnan(pow(tensor(-8.0), 1.0 / 3).item()));
  const auto slope = [](auto f) {
    Tensor x = tensor(0.0).requires_grad_();
    f(x).backward();
    return x.grad().item();
  };
  CHECK(slope([](const Tensor& x) { return sqrt(x); }) == kInf);
  CHECK(slope([](const Tensor& x) { return norm(x.view({1})); }) == 0);
  CHECK(slope([](const Tensor& x) { return pow(x, 0); }) == 0);
  CHECK(slope([](const Tensor& x) { return abs(x); }) == 0);
  CHECK(slope([](const Tensor& x) { return relu(x); }) == 0);
  CHECK(std::isnan(
      slope([](const Tensor& x) { return where(gt(x, 1), x * log(x), x * 2); })));  // 0 * -inf in the other branch
  CHECK(slope([](const Tensor& x) { return where(ge(x, 0), x * 2, x * 5); }) == 2);
}

TEST_CASE("BI-371 BI-372 sums and variances that lose nothing") {
  const int64_t n = 1 << 16;
  const Tensor noise = arange(0, n, 1, {.dtype = kFloat64}).sub(double(n) / 2).div(double(n)), x = noise.add(1e4);
  const double wanted = var(x, 0).item();
  CHECK(std::abs(var(x.to(kFloat32), 0).item() / wanted - 1) < 1e-3);  // float32 holds 1e4 to 1e-3
  CHECK(mean(full({100000}, 1e8), 0).item() == 1e8);
  CHECK(sum(ones({(1 << 24) + 1}), 0).item() == 16777217.0 - 1);  // rounded to float32
  CHECK(sum(ones({(1 << 24) + 2}), 0).item() == 16777218.0);
  CHECK(sum(ones({10000}, {.dtype = kFloat16}), 0).item() == 10000);
  CHECK(std::isinf(sum(ones({100000}, {.dtype = kFloat16}), 0).item()));
  CHECK(mean(ones({100000}, {.dtype = kFloat16}), 0).item() == 1);
}

TEST_CASE("BI-373 BI-378 what does not fit") {
  CHECK(tensor(70000.0).to(kFloat16).item() == kInf);
  CHECK(tensor(1.00390625).to(kBFloat16).item() == 1);         // a tie goes to even
  CHECK(tensor(1.01171875).to(kBFloat16).item() == 1.015625);  // upwards, too
  const Tensor most = full({2}, std::numeric_limits<int64_t>::max());
  CHECK((most + 1).to_vector<int64_t>()[0] == std::numeric_limits<int64_t>::min());
  CHECK((most * 2).to_vector<int64_t>()[0] == -2);
  CHECK(sum(most).item<int64_t>() == -2);
}

TEST_CASE("BI-374 BI-375 floating point as the standard says") {
  const volatile double nothing = 0;
  CHECK(std::isnan(nothing / nothing));
  matmul(rand({64, 64}), rand({64, 64}));  // a library's turn
  const volatile float tiny = 1e-39f;
  CHECK(tiny * 1 != 0);
  CHECK((tensor(1e-39f) * 0.5).item() > 0);
}

TEST_CASE("BI-376 norms of constants") {
  const Tensor x = full({4, 3}, 2.0);
  CHECK(values(layer_norm(x, {3})) == Values(12, 0));
  CHECK(values(batch_norm(x, {}, {}, {}, {}, {.training = true})) == Values(12, 0));
  CHECK(std::isnan(values(layer_norm(x, {3}, {.eps = 0}))[0]));
}

TEST_CASE("BI-377 Adam with tiny and huge gradients") {
  for (const double g : {1e-30, 1e30}) {
    Tensor p = ones({3}).requires_grad_();
    optim::Adam adam({p}, {.lr = 0.1});
    for (int i = 0; i < 3; ++i) p.set_grad(full({3}, g)), adam.step();
    CHECK(isfinite(p).all().item<bool>());
  }
}

TEST_CASE("BI-379 the same numbers for any number of threads") {
  const int before = get_num_threads();
  const auto run = [](int threads) {
    set_num_threads(threads);
    manual_seed(3);
    const Tensor x = randn({300, 1000});
    return values(cat({sum(x).view({1}), sum(x, 0), softmax(x, 1).view({-1}), norm(x).view({1}),
                       cumsum(x, 0).view({-1}), var(x, 1)}));
  };
  const Values one = run(1);
  for (const int threads : {2, 3, 8}) CHECK(run(threads) == one);
  set_num_threads(before);
}

TEST_CASE(
    "BI-380 deterministic mode: every operation has the same result twice, bit for bit, for any number of threads") {
  ScopedMode guard(modes.deterministic, true);
  const int before = get_num_threads();
  const auto run = [](int threads) {
    set_num_threads(threads);
    manual_seed(9);
    std::vector<Tensor> out;
    const auto through = [&](const auto& f, const Shape& shape) {  // what several threads add to one place
      Tensor x = randn(shape).requires_grad_();
      const Tensor y = f(x);
      y.backward(randn(y.shape()));
      out.push_back(y.detach().reshape(-1)), out.push_back(x.grad().reshape(-1));
    };
    const Tensor rows = randint(0, 7, {4000});
    through([&](const Tensor& x) { return index_add(zeros({7, 16}), 0, rows, x); }, {4000, 16});
    through(
        [&](const Tensor& x) {
          return scatter_add(zeros({7, 16}), 0, rows.view({-1, 1}).expand({4000, 16}), x);
        },
        {4000, 16});
    through([&](const Tensor& x) { return index_put(zeros({7}), {rows}, x, true); }, {4000});
    through([&](const Tensor& x) { return x.index_select(0, rows); }, {7, 16});
    through([&](const Tensor& x) { return embedding(rows, x); }, {7, 16});
    through([&](const Tensor& x) { return cumsum(x, 1); }, {64, 700});
    through([&](const Tensor& x) { return median(x, 1).first; }, {64, 700});
    through([&](const Tensor& x) { return kthvalue(x, 9, 1).first; }, {64, 700});
    through([&](const Tensor& x) { return max_pool2d(x, 3, {.stride = 2}); }, {2, 8, 33, 33});
    through([&](const Tensor& x) { return adaptive_avg_pool2d(x, {5, 7}); }, {2, 8, 33, 33});
    through([&](const Tensor& x) { return interpolate(x, {.size = {50, 20}, .mode = "bilinear"}); }, {2, 4, 33, 33});
    through([&](const Tensor& x) { return pad(x, {3, 4, 5, 6}, {.mode = "reflect"}); }, {2, 4, 33, 33});
    through([&](const Tensor& x) { return grid_sample(ones({2, 3, 9, 9}), tanh(x)); }, {2, 20, 20, 2});
    through([&](const Tensor& x) { return cross_entropy(x, rows.slice(0, 0, 500)); }, {500, 7});
    through([&](const Tensor& x) { return layer_norm(x, {64}); }, {500, 64});
    return values(cat(out, 0));
  };
  const Values one = run(1);
  for (const int threads : {1, 2, 5}) CHECK(run(threads) == one);
  set_num_threads(before);
}

TEST_CASE("BI-071 a NaN is the largest number, and the order is total") {
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor x = tensor({kNan, 2.0, kInf, kNan, -kInf, 2.0, -kNan}).to(t);
    const auto [up, places] = sort(x);
    CHECK(close(values(up), {-kInf, 2, 2, kInf, kNan, kNan, kNan}));
    CHECK(values(places) == Values{4, 1, 5, 2, 0, 3, 6});
    CHECK(values(argsort(x, 0, {.descending = true})) == Values{0, 3, 6, 2, 1, 5, 4});
    CHECK(close(values(topk(x, 4).first), {kNan, kNan, kNan, kInf}));
    CHECK(close(values(topk(x, 4, 0, {.largest = false}).first), {-kInf, 2, 2, kInf}));
    CHECK(kthvalue(x, 4).first.item() == kInf);
    CHECK(std::isnan(kthvalue(x, 5).first.item()));
    CHECK(std::isnan(median(x).item()));
    CHECK(median(x, 0).second.item() == 0);
    CHECK(nanmedian(x).item() == 2);
    const Tensor many = full({5000}, kNan, {.dtype = t});
    CHECK(values(argsort(many)) == values(arange(5000)));
    CHECK(unique(many).values.numel() == 5000);
  }
}

TEST_CASE("BI-100 bfloat16 on any CPU") {
  manual_seed(2);
  const Tensor a = randn({33, 70}).to(kBFloat16), b = randn({70, 17}).to(kBFloat16);
  const Tensor exact = matmul(a.to(kFloat64), b.to(kFloat64)), got = matmul(a, b);
  CHECK(got.dtype() == kBFloat16);
  CHECK(max(abs(got.to(kFloat64) - exact)).item() <= 0.01 * max(abs(exact)).item());
}
