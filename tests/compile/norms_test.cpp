// Batch norms that take in additions and relus, and relus that go behind poolings.
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// A block of a residual net: relu(norm(conv(x))), then relu(norm(conv) + x).
struct Block : nn::Module {
  nn::Conv2d a, b;
  nn::BatchNorm2d first, second;
  bool in_place = false;
  Block(int64_t channels, const nn::BatchNormOptions& options, bool in_place)
      : a(channels, channels, 3, {.padding = 1, .bias = false}),
        b(channels, channels, 3, {.padding = 1, .bias = false}), first(channels, options), second(channels, options),
        in_place(in_place) {}
  Tensor forward(const Tensor& x) {
    Tensor h = first(a(x));
    h = second(b(in_place ? h.relu_() : relu(h)));
    return in_place ? h.add_(x).relu_() : relu(x + h);
  }
  TAPIR_FIELDS(a, b, first, second, in_place)
};
struct Net : nn::Module {
  nn::Conv2d stem;
  Block one, two;
  nn::Linear fc;
  Net(int64_t channels, const nn::BatchNormOptions& options, bool in_place)
      : stem(3, channels, 3, {.padding = 1}), one(channels, options, in_place), two(channels, options, in_place),
        fc(channels, 5) {}
  Tensor forward(const Tensor& x) { return fc(mean(two(one(stem(x))), {2, 3})); }
  TAPIR_FIELDS(stem, one, two, fc)
};

auto images = [](bool channels_last, DType dtype = kFloat32) {
  return [=](int i) {
    Tensor x = reshape(cos(arange(0., 4 * 3 * 64, 1., {.dtype = dtype}) * (i + 1)), {4, 3, 8, 8});
    return std::pair(channels_last ? x.to(kChannelsLast) : x, remainder(arange(4) + i, 5).to(kInt64));
  };
};
auto training = [](auto& net) {
  std::vector<Tensor> trained = net.parameters();
  std::erase_if(trained, [](const Tensor& p) { return !p.requires_grad(); });
  return [&net, opt = optim::SGD(trained, {.lr = 1e-2, .momentum = 0.9})](const Tensor& x, const Tensor& y) mutable {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt.step();
    return loss.detach();
  };
};
/// How often an entry is called in the program of a step, once it is replayed.
template <class E, class Step, class... A> int calls_of(Step& step, const A&... arguments) {
  for (int i = 0; i < 6; ++i) step(arguments...);
  REQUIRE(step.programs() == 1);
  const std::string text = step.explain(), name = entry::name_of(entry::id_of<E>);
  int count = 0;
  for (size_t at = 0; (at = text.find("  " + name + "(", at)) != std::string::npos; ++at)
    count += text.find(": ", at) < text.find('\n', at);
  return count;
}
template <class E, class Net> int calls_in(Net& net, const CompileOptions& options = {}) {
  auto plain = training(net);
  auto step = compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); }, options);
  const auto [x, y] = images(true)(0);
  return calls_of<E>(step, x, y);
}

}  // namespace

TEST_CASE("norms with relu: compiled training is eager's, and has the fused calls") {
  for (bool channels_last : {false, true})
    for (bool in_place : {false, true})
      for (int64_t channels : {6, 17}) {
        CAPTURE(channels_last, in_place, channels);
        check_compiled(
            [&] {
              Net net(channels, {}, in_place);
              if (channels_last) net.to(kChannelsLast);
              return net;
            },
            training, images(channels_last), 1e-5, 8);
      }
  if (!backend(kCPU).norm_relu) return;
  for (bool in_place : {false, true}) {
    Net net(6, {}, in_place);
    net.to(kChannelsLast);
    CHECK(calls_in<entry::NormRelu>(net) == 4);
    CHECK(calls_in<entry::NormReluBackward>(net) == 4);
    CHECK(calls_in<entry::Norm>(net) == 0);
    CHECK(calls_in<entry::NormRelu>(net, {.norms = false}) == 0);
  }
}

TEST_CASE("norms with relu: no affine, frozen weights, no momentum, statistics of their own, float64, eval") {
  const auto check = [](const nn::BatchNormOptions& options, auto prepare, DType dtype = kFloat32) {
    check_compiled(
        [&] {
          Net net(6, options, false);
          net.to(kChannelsLast);
          net.to(dtype);
          prepare(net);
          return net;
        },
        training, images(true, dtype), 1e-5, 8);
  };
  const auto nothing = [](Net&) {};
  check({.affine = false}, nothing);
  check({.track_running_stats = false}, nothing);
  check({}, nothing, kFloat64);
  check({}, [](Net& net) {
    for (nn::BatchNorm2d* norm : {&net.one.first, &net.two.second})
      norm->weight.requires_grad_(false), norm->bias.requires_grad_(false);
  });
  check({}, [](Net& net) { net.eval(); });
  check({}, [](Net& net) {
    net.eval();
    for (Tensor p : net.one.parameters()) p.requires_grad_(false);
  });
}

TEST_CASE("norms with relu: a cumulative average is not replayed wrongly") {
  for (int compiled : {0, 1}) {
    manual_seed(3);
    Net net(6, {.momentum = std::nullopt}, false);
    auto plain = training(net);
    auto step = compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); }, {.enabled = compiled == 1});
    static std::vector<Tensor> before;
    for (int i = 0; i < 8; ++i) {
      const auto [x, y] = images(false)(i);
      step(x, y);
    }
    const std::vector<Tensor> now = left_by(net);
    if (!compiled) before = now;
    else
      for (size_t i = 0; i < now.size(); ++i) CHECK(same_values(now[i], before[i]));
  }
}

TEST_CASE("norms with relu: NaN, and sums that somebody else reads") {
  nn::BatchNorm2d norm(5);
  const auto both = [&](auto f, const Tensor& x) {
    auto fast = compile(f);
    for (int i = 0; i < 5; ++i) {
      const Tensor start = x.clone();
      const auto [a, b] = f(start);
      const auto [c, d] = fast(x);
      CHECK((same_values(c, a) && same_values(d, b)));
    }
    CHECK(fast.programs() == 1);
  };
  norm.eval();
  Tensor x = reshape(sin(arange(0., 2. * 5 * 12, 1., {.dtype = kFloat32})), {2, 5, 3, 4});
  x.select(0, 0).select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  NoGrad guard;
  both(
      [&](const Tensor& v) {
        Tensor h = norm(v);
        return std::pair(relu(h), h * 2);
      },
      x);
  both(
      [&](const Tensor& v) {
        Tensor h = norm(v) + v;
        return std::pair(relu(h), h);
      },
      x);
  both(
      [&](const Tensor& v) {
        Tensor h = relu(norm(v) + v);
        return std::pair(h, h.flatten());
      },
      x);
  both(
      [&](const Tensor& v) {
        Tensor h = norm(v);
        Tensor y = relu(h + h);
        return std::pair(y, v);
      },
      x);
  both(
      [&](const Tensor& v) {
        Tensor h = norm(v);
        Tensor w = v * 2;
        Tensor y = relu(w + h);
        w.mul_(3);
        return std::pair(y, w);
      },
      x);
}

namespace {
struct Pooled : nn::Module {
  nn::Conv2d conv, last;
  nn::Linear fc;
  int64_t window, stride, padding;
  Pooled(int64_t window, int64_t stride, int64_t padding)
      : conv(3, 8, 3, {.padding = 1}), last(8, 4, 3), fc(4, 5), window(window), stride(stride), padding(padding) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(relu(conv(x)), window, {.stride = Dims(stride), .padding = Dims(padding)});
    return fc(mean(last(h), {2, 3}));
  }
  TAPIR_FIELDS(conv, last, fc, window, stride, padding)
};
}  // namespace

TEST_CASE("relus behind poolings: compiled training is eager's") {
  for (bool channels_last : {false, true})
    for (const auto& [window, stride, padding] : {std::array<int64_t, 3>{2, 2, 0}, {3, 2, 1}, {2, 1, 0}}) {
      CAPTURE(channels_last, window, stride, padding);
      check_compiled(
          [&] {
            Pooled net(window, stride, padding);
            if (channels_last) net.to(kChannelsLast);
            return net;
          },
          training, images(channels_last), 1e-5, 8);
    }
  Pooled net(2, 2, 0);
  auto plain = training(net);
  const auto [x, y] = images(false)(0);
  for (bool on : {false, true}) {
    auto step = compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); }, {.pools = on});
    for (int i = 0; i < 6; ++i) step(x, y);
    const std::string text = step.explain();
    const std::string pooled = "float32 (4, 8, 4, 4)", whole = "float32 (4, 8, 8, 8)";
    const size_t relu = text.find("unary(Relu): ");
    REQUIRE(relu != std::string::npos);
    CHECK((text.substr(relu, text.find('\n', relu) - relu).find(on ? pooled : whole) != std::string::npos));
    const size_t grad = text.find("binary(ReluGrad): ");
    REQUIRE(grad != std::string::npos);
    CHECK((text.substr(grad, text.find('\n', grad) - grad).find(on ? pooled : whole) != std::string::npos));
  }
}

TEST_CASE("relus behind poolings: what else is read stays, and NaN") {
  NoGrad guard;
  Tensor x = reshape(sin(arange(0., 2. * 3 * 36, 1., {.dtype = kFloat32})), {2, 3, 6, 6});
  x.select(0, 0).select(0, 0).select(0, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto both = [&](auto f) {
    auto fast = compile(f);
    for (int i = 0; i < 5; ++i) {
      const auto [a, b] = f(x);
      const auto [c, d] = fast(x);
      CHECK((same_values(c, a) && same_values(d, b)));
    }
    CHECK(fast.programs() == 1);
  };
  both([](const Tensor& v) {
    const Tensor h = relu(v * 2);
    return std::pair(max_pool2d(h, 2), h);
  });
  both([](const Tensor& v) {
    const Tensor h = relu(v * 2);
    return std::pair(max_pool2d(h, 2), h + 1);
  });
  both([](const Tensor& v) { return std::pair(max_pool2d(relu(v * 2), 2), max_pool2d(relu(v * 3), 3)); });
}

TEST_CASE("relus behind poolings: a window of padding alone is -inf") {
  NoGrad guard;
  const auto both = [](const Tensor& x, auto f) {
    auto fast = compile(f);
    for (int i = 0; i < 5; ++i) CHECK(same_bits(fast(x), f(x)));
    CHECK(fast.programs() == 1);
    return f(x);
  };
  const Tensor y = both(reshape(tensor({-1.f, 2.f}), {1, 1, 2}), [](const Tensor& x) {
    return max_pool1d(relu(x * 2), 2, {.stride = 1, .padding = 1, .dilation = 3});
  });
  CHECK(y.item() == -std::numeric_limits<double>::infinity());
  both(reshape(sin(arange(0., 2. * 3 * 9, 1., {.dtype = kFloat32})), {2, 3, 3, 3}), [](const Tensor& x) {
    return max_pool2d(relu(x * 2), 2, {.stride = 1, .padding = 1, .dilation = {1, 4}});
  });
}
