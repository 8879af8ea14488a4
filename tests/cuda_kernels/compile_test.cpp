// compile() on a device: the second run with the same addresses is captured as a graph, and what it computes is what eager code does.
#include <tapir/compile/passes/passes.h>
#include <tapir/compile/record/record.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/models/lstm_lm.h>
#include <tapir/quant/quantize.h>

#include <tapir/core/device_table.h>
#include <tapir/core/modes.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "../compile/steps.h"
#include "../compile/training.h"
#include "cuda.h"
#include "kernels.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

using Step = std::function<Tensor(const Tensor&, const Tensor&)>;
using Batch = std::function<std::pair<Tensor, Tensor>(int)>;

auto labels = [](int64_t n, int i, int64_t classes) { return remainder(arange(n) + i, classes).to(kInt64); };
const Batch rows = [](int i) { return std::pair(wave({6, 8}, 0.1 * (i + 1)), labels(6, i, 4)); };
Batch texts(int64_t n, int64_t length, int64_t words) {
  return [=](int i) {
    const Tensor all = remainder(arange(n * (length + 1)) * (2 * i + 3) + i, words).reshape({n, length + 1});
    return std::pair(all.narrow(1, 0, length), all.narrow(1, 1, length));
  };
}
const auto tokens_loss = [](const Tensor& scores, const Tensor& y) {
  return cross_entropy(flatten(scores, 0, 1), flatten(y));
};

/// How often a graph was launched, by explain().
int64_t launches(const std::string& text) {
  const size_t at = text.find("launched ");
  return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + 9);
}

/// What fused steps may differ by, with 16 bits inside: their weights' gradients are rounded once less (widen_products).
struct Bounds {
  double values = 1e-5, gradients = values;
};

/// Ten compiled steps leave what ten eager ones leave: bit by bit without fused calls, and nearly so with them. Most are launches, and
/// the program has the calls `named`.
template <class Net> void check_steps(
    std::function<Step(Net&)> make_step, const Batch& batch, std::function<Net()> make_net = [] { return Net(); },
    int at_least = 4, const std::vector<std::string>& named = {}, Bounds bounds = {}) {
  for (const bool fused : {false, true}) {
    std::vector<Tensor> left[2];
    uint64_t offset[2];
    size_t parameters = 0;
    for (int compiled : {0, 1}) {
      manual_seed(7);
      Net net = make_net();
      net.to(kCUDA);
      parameters = net.parameters().size();
      const Step plain = make_step(net);
      auto fast = compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); },
                          {.verify = 0, .fuse = fused, .background = false});
      for (int i = 0; i < 10; ++i) {
        const auto [x, y] = batch(i);
        const Tensor loss = compiled ? fast(x.cuda(), y.cuda()) : plain(x.cuda(), y.cuda());
        left[compiled].push_back(loss.detach().cpu());
        for (const Tensor& t : left_by(net)) left[compiled].push_back(t.defined() ? t.cpu() : t);
      }
      offset[compiled] = default_generator().offset();
      if (!compiled) continue;
      const std::string text = fast.explain();
      INFO(text.substr(0, 1500));
      CHECK(fast.programs() >= 1);
      CHECK(launches(text) >= at_least);
      for (const std::string& call : named) CHECK(contains(text, "  " + call + "("));
      if (!named.empty()) CHECK(!contains(text, "  norm(Batch): "));
    }
    CHECK(offset[0] == offset[1]);
    REQUIRE(left[0].size() == left[1].size());
    for (size_t i = 0; i < left[0].size(); ++i) {
      INFO("tensor " << i << " of " << left[0].size());
      const Tensor &a = left[0][i], &b = left[1][i];
      const size_t at = i % (left[0].size() / 10);  // of a step: the loss, parameters each with its gradient, buffers
      const bool gradient = at > 0 && at % 2 == 0 && at <= 2 * parameters;
      CHECK((fused         ? same_values(a, b, gradient ? bounds.gradients : bounds.values)
             : a.defined() ? same_bits(a, b)
                           : !b.defined()));
    }
  }
}
template <class Net, class Loss> std::function<Step(Net&)> with(Loss loss, bool clip = false) {
  return [=](Net& net) -> Step {
    auto opt = std::make_shared<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 3e-3});
    return [&net, loss, clip, opt](const Tensor& x, const Tensor& y) {
      opt->zero_grad();
      Tensor l = loss(net(x), y);
      l.backward();
      if (clip) optim::clip_grad_norm_(net.parameters(), 1.0);
      opt->step();
      return l;
    };
  };
}
const auto classes = [](const Tensor& scores, const Tensor& y) { return cross_entropy(scores, y); };

}  // namespace

TEST_CASE("cuda: compiled steps with dropout and clipping are as eager ones, and graphs") {
  NEEDS_CUDA
  check_steps<DropNet>(with<DropNet>(classes, true), rows);
}

TEST_CASE("cuda: compiled steps with batch norm, autocast, a scaler, momentum and a schedule") {
  NEEDS_CUDA
  struct State {
    optim::SGD opt;
    optim::StepLR schedule{opt, 3, {.gamma = 0.5}};
    amp::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
    explicit State(std::vector<Tensor> p) : opt(std::move(p), {.lr = 1e-2, .momentum = 0.9}) {}
  };
  std::shared_ptr<State> state;
  const Batch images = [&](int i) {
    if (i > 0) state->schedule.step();  // between the steps
    const Tensor x = wave({4, 3, 8, 8}, 0.1 * (i + 1));
    return std::pair(i == 6 ? x * 1e30 : x,
                     labels(4, i, 5));  // its gradients are not finite: that step changes nothing
  };
  check_steps<PoolNet>(
      [&](PoolNet& net) -> Step {
        state = std::make_shared<State>(net.parameters());
        return [&net, &state](const Tensor& x, const Tensor& y) {
          state->opt.zero_grad();
          Tensor loss;
          {
            amp::Autocast autocast(kCUDA, {.dtype = kFloat16});
            loss = cross_entropy(net(x), y);
          }
          state->scaler.scale(loss).backward();
          state->scaler.step(state->opt);
          state->scaler.update();
          return loss;
        };
      },
      images, [] { return PoolNet(); }, 4, {},
      {.values = 5e-4, .gradients = 2});  // gradients are 1024 times as large or more
}

namespace {
struct ResidualNet : nn::Module {
  nn::Conv2d stem{3, 8, 3, {.padding = 1}}, a{8, 8, 3, {.padding = 1}}, b{8, 8, 3, {.padding = 1}};
  nn::BatchNorm2d first{8}, second{8};
  nn::Linear fc{8, 5};
  Tensor forward(const Tensor& x) {
    const Tensor h = stem(x);
    return fc(mean(relu(second(b(relu(first(a(h))))) + h), {2, 3}));
  }
  TAPIR_FIELDS(stem, a, b, first, second, fc)
};
}  // namespace

TEST_CASE("cuda: compiled residual blocks: batch norm, an addition and relu are one call") {
  NEEDS_CUDA
  for (const bool half : {false, true})
    for (const bool last : {false, true}) {
      CAPTURE(half, last);
      check_steps<ResidualNet>(
          [half](ResidualNet& net) -> Step {
            auto opt = std::make_shared<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-2, .momentum = 0.9});
            return [&net, half, opt](const Tensor& x, const Tensor& y) {
              opt->zero_grad();
              Tensor loss;
              {
                amp::Autocast autocast(kCUDA, {.dtype = kBFloat16, .enabled = half});
                loss = cross_entropy(net(x), y);
              }
              loss.backward();
              opt->step();
              return loss;
            };
          },
          [last](int i) {
            const Tensor x = wave({4, 3, 8, 8}, 0.1 * (i + 1));
            return std::pair(last ? x.to(kChannelsLast) : x, labels(4, i, 5));
          },
          [last] {
            ResidualNet net;
            if (last) net.to(kChannelsLast);
            return net;
          },
          4, {"norm_relu", "norm_relu_backward"}, half ? Bounds{4e-3} : Bounds{});
    }
}

TEST_CASE("review 6: cuda: one graph serves while OneCycleLR cycles the momentum") {
  NEEDS_CUDA
  const auto check = [](auto make) {
    std::shared_ptr<optim::OneCycleLR> schedule;
    const Batch batch = [&](int i) {
      if (i > 0) schedule->step();  // between the steps
      return rows(i);
    };
    check_steps<DropNet>(
        [&](DropNet& net) -> Step {
          auto opt = std::make_shared<decltype(make(net.parameters()))>(make(net.parameters()));
          schedule = std::make_shared<optim::OneCycleLR>(*opt, 0.05, optim::OneCycleLROptions{.total_steps = 12});
          return [&net, opt](const Tensor& x, const Tensor& y) {
            opt->zero_grad();
            Tensor loss = cross_entropy(net(x), y);
            loss.backward();
            opt->step();
            return loss;
          };
        },
        batch);
  };
  check([](auto p) { return optim::SGD(p, {.momentum = 0.9, .nesterov = true}); });
  check([](auto p) { return optim::AdamW(p); });
}

TEST_CASE("cuda: compiled steps of a transformer") {
  NEEDS_CUDA
  using Net = models::GPT2LMHeadModel;
  check_steps<Net>(with<Net>(tokens_loss, true), texts(2, 6, 11), [] {
    return Net({.vocab_size = 11, .n_positions = 6, .n_embd = 8, .n_layer = 1, .n_head = 2, .dropout = 0.1});
  });
}

namespace {
/// A step of GPT-2 under autocast.
std::function<Step(models::GPT2LMHeadModel&)> half_step(DType dtype, bool by_loss) {
  return [=](models::GPT2LMHeadModel& net) -> Step {
    // AdamW would make steps of one size of gradients that are nothing but rounding.
    auto opt = std::make_shared<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.1});
    return [&net, dtype, by_loss, opt](const Tensor& x, const Tensor& y) {
      opt->zero_grad();
      Tensor l;
      {
        amp::Autocast autocast(kCUDA, {.dtype = dtype});
        l = by_loss ? net.loss(x, y) : tokens_loss(net(x), y);
      }
      l.backward();
      opt->step();
      return l;
    };
  };
}
/// Kernel calls of such a step, compiled.
int64_t calls_of_gpt2(int64_t layers, bool by_loss) {
  models::GPT2LMHeadModel net(
      {.vocab_size = 40, .n_positions = 16, .n_embd = 32, .n_layer = layers, .n_head = 2, .dropout = 0});
  net.to(kCUDA);
  const Step plain = half_step(kBFloat16, by_loss)(net);
  auto fast =
      compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); }, {.verify = 0, .background = false});
  const auto [x, y] = texts(2, 16, 40)(0);
  for (int i = 0; i < 5; ++i) (void)fast(x.cuda(), y.cuda());
  INFO(fast.explain());
  REQUIRE(fast.programs() == 1);
  return fast.stats()[0].calls;
}
}  // namespace

TEST_CASE("cuda: compiled steps of a transformer under autocast") {
  NEEDS_CUDA
  using Net = models::GPT2LMHeadModel;
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const bool by_loss : {false, true}) {
      CAPTURE(std::string(name_of(dtype)), by_loss);
      check_steps<Net>(
          half_step(dtype, by_loss), texts(2, 16, 40),
          [] {
            return Net({.vocab_size = 40, .n_positions = 16, .n_embd = 32, .n_layer = 2, .n_head = 2, .dropout = 0.1});
          },
          4, {}, {dtype == kFloat16 ? 5e-4 : 4e-3});  // the rounding of numbers of about 1
    }
}

TEST_CASE("cuda: a layer of GPT-2 is 18 calls of a compiled step, both ways") {
  NEEDS_CUDA
  for (const bool by_loss : {false, true}) CHECK(calls_of_gpt2(3, by_loss) - calls_of_gpt2(2, by_loss) == 18);
}

namespace {
/// Scores of tokens that are decoded one by one, and the kernel calls of the program that did.
template <class Net> std::pair<std::vector<Tensor>, int64_t> decoded(Net& net, bool compiled) {
  NoGrad guard;
  models::KVCache cache = net.new_cache(1, 24);
  auto step = compile(
      [&](const Tensor& token) {
        NoGrad inside;
        return net(token, cache);
      },
      {.enabled = compiled, .verify = 0, .background = false});
  std::vector<Tensor> scores;
  for (int i = 0; i < 20; ++i)
    scores.push_back(step(full({1, 1}, (i * 7) % 40, {.dtype = kInt64, .device = kCUDA})).cpu());
  return {scores, compiled ? step.stats().at(0).calls : 0};
}
template <class Net> int64_t check_decoding(Net net, DType dtype) {
  net.to(kCUDA), net.eval();
  const auto [eager, none] = decoded(net, false);
  const auto [replayed, calls] = decoded(net, true);
  for (size_t i = 0; i < eager.size(); ++i) {
    CAPTURE(i);
    CHECK(max(abs(sub(replayed[i].to(kFloat32), eager[i].to(kFloat32)))).item() < (dtype == kFloat32 ? 1e-5 : 0.05));
  }
  return calls;
}
models::GPT2LMHeadModel small_gpt2(int64_t layers, DType dtype) {
  manual_seed(3);
  models::GPT2LMHeadModel net(
      {.vocab_size = 40, .n_positions = 24, .n_embd = 64, .n_layer = layers, .n_head = 2, .dropout = 0});
  net.to(dtype);
  return net;
}
models::LlamaForCausalLM small_llama(int64_t layers, DType dtype) {
  manual_seed(3);
  models::LlamaConfig c;
  c.vocab_size = 40, c.hidden_size = 64, c.intermediate_size = 96, c.num_hidden_layers = layers;
  c.num_attention_heads = 4, c.num_key_value_heads = 2, c.max_position_embeddings = 32;
  models::LlamaForCausalLM net(c);
  net.to(dtype);
  return net;
}
}  // namespace

TEST_CASE("cuda: decoding is one program whose norms are made by the products that read them") {
  NEEDS_CUDA
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    CAPTURE(std::string(name_of(dtype)));
    const int64_t one = check_decoding(small_gpt2(1, dtype), dtype), two = check_decoding(small_gpt2(2, dtype), dtype);
    CHECK(two - one == (dtype == kFloat32 ? 6 : 5));  // gelu stands by itself in float32
    check_decoding(small_llama(2, dtype), dtype);
    for (const int64_t bits : {8, 4}) {
      const auto quantized = [&](int64_t layers) {
        auto net = small_gpt2(layers, dtype);
        return quant::quantize_weights(net, {.bits = bits, .group = 32});
      };
      const int64_t less = check_decoding(quantized(1), dtype), more = check_decoding(quantized(2), dtype);
      CHECK(more - less == 5);
    }
  }
}

TEST_CASE("cuda: a full cache is told at the next wait behind a replay, and clear() makes it usable again") {
  NEEDS_CUDA
  NoGrad guard;
  auto net = small_gpt2(1, kFloat32);
  net.to(kCUDA), net.eval();
  models::KVCache cache = net.new_cache(1, 12);
  auto step = compile(
      [&](const Tensor& token) {
        NoGrad inside;
        return net(token, cache);
      },
      {.verify = 0, .background = false});
  const Tensor token = full({1, 1}, 4, {.dtype = kInt64, .device = kCUDA});
  std::vector<Tensor> scores;
  for (int i = 0; i < 12; ++i) scores.push_back(step(token).cpu());
  CHECK(launches(step.explain()) > 3);
  const std::string text = error_of([&] { (void)step(token).cpu(); });
  CAPTURE(text);
  CHECK(contains(text, "index_put"));
  CHECK(contains(text, "the index of a key, or their number, is 12, out of bounds for a dimension of size 12"));
  cache.clear();
  for (int i = 0; i < 12; ++i) CHECK(difference(step(token), scores[size_t(i)]) < 1e-5);
}

namespace {
/// Without gradients, what a function gives once it is replayed is what it gives eagerly.
void check_replayed(const char* what, const std::function<std::vector<Tensor>(const Tensor&)>& f, DType dtype) {
  CAPTURE(what, std::string(name_of(dtype)));
  NoGrad guard;
  auto fast = compile(
      [&](const Tensor& x) {
        NoGrad inside;
        return f(x);
      },
      {.verify = 0, .background = false});
  for (int i = 0; i < 5; ++i) {
    const Tensor x = wave({4, 64}, 0.1 * (i + 1)).to(dtype).cuda();
    const std::vector<Tensor> eager = f(x), replayed = fast(x);
    REQUIRE(eager.size() == replayed.size());
    for (size_t k = 0; k < eager.size(); ++k) {
      CAPTURE(i, k);
      CHECK(same_values(eager[k].cpu(), replayed[k].cpu(), dtype == kFloat32 ? 1e-5 : 2e-2));
    }
  }
  CHECK(fast.programs() == 1);
}
}  // namespace

TEST_CASE("cuda: what joins in a program, and what must not") {
  NEEDS_CUDA
  for (const DType t : {kFloat32, kBFloat16}) {
    const auto weight = [&](int64_t rows, int64_t columns, double step) {
      return mul(wave({rows, columns}, step), 0.2).to(t).cuda();
    };
    const Tensor w = weight(64, 40, 0.3), v = weight(64, 48, 0.7), a = weight(4, 64, 0.9),
                 scale = weight(1, 64, 0.2)[0] + 1;
    const auto norm = [&](const Tensor& x) { return layer_norm(x, {64}, scale); };
    check_replayed(
        "relu of a widened product",
        [&](const Tensor& x) {
          return std::vector{relu(matmul(x, w).to(kFloat32)), relu(matmul(x, v))};
        },
        t);
    check_replayed(
        "two products of a norm of a sum",
        [&](const Tensor& x) {
          const Tensor n = norm(x + a);
          return std::vector{matmul(n, w), matmul(n, v)};
        },
        t);
    check_replayed(
        "the sum and the norm are read again",
        [&](const Tensor& x) {
          const Tensor h = x + a, n = norm(h);
          return std::vector{matmul(n, w), h + n, n * 2};
        },
        t);
    check_replayed(
        "the sum changes before the product",
        [&](const Tensor& x) {
          Tensor h = x + a;
          const Tensor n = norm(h);
          h.mul_(2);
          const Tensor y = matmul(n, v);
          h.add_(1);
          return std::vector{y, h, matmul(h, w)};
        },
        t);
    check_replayed(
        "the norm is the result too",
        [&](const Tensor& x) {
          const Tensor n = rms_norm(x, {64}, scale);
          return std::vector{matmul(n, w), n, gelu(matmul(n, v), "tanh")};
        },
        t);
    check_replayed(
        "gelu and what it was applied to",
        [&](const Tensor& x) {
          const Tensor z = matmul(x, v), y = gelu(z, "tanh");
          return std::vector{y, z + y, gelu(z)};
        },
        t);
  }
}

TEST_CASE("cuda: casts of weights that nobody trains are made once, whatever else is cast") {
  NEEDS_CUDA
  NoGrad guard;
  const Tensor w = wave({64, 48}, 0.3).cuda(), v = wave({48, 40}, 0.7).cuda();
  auto f = compile(
      [&](const Tensor& x) {
        NoGrad inside;
        amp::Autocast autocast(kCUDA, {.dtype = kBFloat16});
        return matmul(matmul(x, w), v);
      },
      {.verify = 0, .background = false});
  for (int i = 0; i < 4; ++i) (void)f(wave({20, 64}, 0.1 * (i + 1)).cuda());
  CHECK(contains(f.explain(), "  the first 1 calls are of weights alone"));
}

TEST_CASE("cuda: compiled steps of a recurrent network") {
  NEEDS_CUDA
  using Net = models::LSTMLanguageModel;
  check_steps<Net>(with<Net>(tokens_loss, true), texts(3, 5, 11),
                   [] { return Net(11, 8, {.num_layers = 2, .dropout = 0.1, .tied = true}); });
}

namespace {
struct Recurrent : nn::Module {  // its kernels take scratch memory while products within them do
  nn::GRU gru{2, 24, {.batch_first = true, .bidirectional = true}};
  nn::Linear head{48, 4};
  Tensor forward(const Tensor& x) { return head(gru.forward(x.reshape({-1, 4, 2})).output.select(1, -1)); }
  TAPIR_FIELDS(gru, head)
};
}  // namespace

TEST_CASE("cuda: compiled steps of gated recurrent units") {
  NEEDS_CUDA
  check_steps<Recurrent>(with<Recurrent>(classes), rows);
}

TEST_CASE("cuda: several signatures, each with its graph; gradients that accumulate") {
  NEEDS_CUDA
  check_steps<DropNet>(
      with<DropNet>(classes),
      [](int i) {
        const int64_t n = i % 2 ? 3 : 6;
        return std::pair(wave({n, 8}, 0.1 * (i + 1)), labels(n, i, 4));
      },
      [] { return DropNet(); }, 1);
  check_steps<DropNet>(
      [](DropNet& net) -> Step {
        auto opt = std::make_shared<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1e-2});
        return [&net, opt](const Tensor& x, const Tensor& y) {
          Tensor loss = cross_entropy(net(x), y);
          loss.backward();
          opt->step();
          return loss;
        };
      },
      rows);
}

TEST_CASE("cuda: what is kept of a graph's results and gradients is not overwritten") {
  NEEDS_CUDA
  manual_seed(3);
  nn::Linear net(4, 4);
  net.to(kCUDA);
  auto step = compile(
      [&](const Tensor& x) {
        net.zero_grad();
        Tensor y = net(x);
        sum(square(y)).backward();
        return y.detach();
      },
      {.verify = 0, .background = false});
  std::vector<Tensor> inputs, kept, expected, grads, grads_expected;
  for (int i = 0; i < 18; ++i) {
    inputs.push_back(wave({3, 4}, 0.2 * (i + 1)).cuda());
    kept.push_back(step(inputs.back()));
    expected.push_back(kept.back().cpu());
    if (i == 7) CHECK(launches(step.explain()) > 3);
    // A gradient that is kept keeps the program's memory: there is a new program, which counts from the start.
    if (i == 7 || i == 8) grads.push_back(net.weight.grad()), grads_expected.push_back(net.weight.grad().cpu());
  }
  INFO(step.explain());
  CHECK(launches(step.explain()) > 3);
  for (size_t i = 0; i < kept.size(); ++i) {
    CHECK(same_bits(kept[i].cpu(), expected[i]));
    NoGrad guard;
    CHECK(same_bits(kept[i].cpu(), net(inputs[i]).cpu()));
  }
  for (size_t i = 0; i < grads.size(); ++i) CHECK(same_bits(grads[i].cpu(), grads_expected[i]));
}

TEST_CASE("cuda: products write the parts of a gradient in 16 bits where their rows are aligned") {
  NEEDS_CUDA
  for (const int64_t width : {8, 16, 12}) {
    CAPTURE(width);
    const auto there = [](const Tensor& t) { return t.to(kBFloat16).to(kCUDA); };
    const Tensor x = there(randn({6, 3 * width})).requires_grad_(), b = there(randn({width, 8}));
    ir::Recording recording;
    Tensor y = zeros({}, {.dtype = kBFloat16, .device = kCUDA});
    for (const Tensor& part : chunk(mul(x, 1.0), 3, 1)) y = y + sum(matmul(part, b));
    const Tensor g = grad({y}, {x})[0];
    ir::Program p = recording.finish(std::array{g});
    const auto copies = [&] { return std::count_if(p.calls.begin(), p.calls.end(), ir::is<entry::Copy>); };
    const int64_t before = copies();
    ir::fold_layouts(p);
    CHECK(before - copies() == (width % 8 == 0 ? 3 : 0));
    ir::Memory memory = ir::copy_of_outside(p);
    CHECK(same_bits(interpret(p, memory)[0].cpu(), g.cpu()));
  }
}

TEST_CASE("cuda: launches of one graph give the same bits, whatever other memory does meanwhile") {
  NEEDS_CUDA
  manual_seed(4);
  DropNet net;
  net.to(kCUDA);
  net.eval();
  auto forward = compile(
      [&](const Tensor& x) {
        NoGrad guard;
        return softmax(net(x), 1);
      },
      {.verify = 0, .background = false});
  const Tensor x = wave({6, 8}, 0.3).cuda();
  const Tensor first = forward(x).cpu();
  for (int i = 0; i < 8; ++i) {
    std::vector<Tensor> others;
    for (int k = 0; k < 6; ++k) others.push_back(full({int64_t(64) << k}, 7.f, {.device = kCUDA}));
    CHECK(same_bits(forward(x).cpu(), first));
    others.clear();
    if (i % 3 == 2) cuda::empty_cache();
    const Tensor moved = x.clone();  // an argument may lie elsewhere each time
    CHECK(same_bits(forward(moved).cpu(), first));
  }
  CHECK(launches(forward.explain()) > 8);
}

TEST_CASE("cuda: an argument that is written is written in place") {
  NEEDS_CUDA
  auto grow = compile([](Tensor x) { x.mul_(2); }, {.verify = 0, .background = false});
  Tensor a = ones({5}, {.device = kCUDA}), b = ones({5}, {.device = kCUDA});
  for (int i = 0; i < 5; ++i) grow(a);
  grow(b);
  for (int i = 0; i < 3; ++i) grow(a);
  CHECK(same_bits(a.cpu(), full({5}, 256.f)));
  CHECK(same_bits(b.cpu(), full({5}, 2.f)));
}

TEST_CASE("cuda: random numbers of a graph go on from the generator, whoever moved it, and follow its seed") {
  NEEDS_CUDA
  const auto draw = [](const Tensor& x) {
    return std::pair(dropout(x, 0.5) + randn({7}, {.device = kCUDA}), randperm(9, {.device = kCUDA}));
  };
  auto fast = compile(draw, {.verify = 0, .background = false});
  const Tensor x = ones({7}, {.device = kCUDA});
  std::vector<Tensor> got[2];
  for (int compiled : {0, 1}) {
    manual_seed(5);
    for (int i = 0; i < 14; ++i) {
      if (i == 8) (void)rand({10});  // by another
      if (i == 11) manual_seed(6);
      const auto [a, b] = compiled ? fast(x) : draw(x);
      got[compiled].push_back(a.cpu()), got[compiled].push_back(b.cpu());
    }
  }
  for (size_t i = 0; i < got[0].size(); ++i) CHECK(same_bits(got[0][i], got[1][i]));
  INFO(fast.explain());
  CHECK(launches(fast.explain()) > 6);
}

TEST_CASE("cuda: labels out of range in a graph are told at the next wait, and it goes on") {
  NEEDS_CUDA
  auto loss =
      compile([](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); }, {.verify = 0, .background = false});
  const Tensor x = wave({2, 3}, 0.4).cuda(), good = tensor({1, 2}).to(kCUDA), bad = tensor({1, 9}).to(kCUDA);
  for (int i = 0; i < 6; ++i) loss(x, good);
  cuda::synchronize();
  REQUIRE(launches(loss.explain()) >= 1);
  for (int i = 0; i < 2; ++i) {
    const Tensor y = loss(x, bad);
    const std::string text = error_of([] { cuda::synchronize(); });
    INFO(text);
    CHECK(contains(text, "[cross_entropy] target 9 at position 1 is out of bounds"));
    CHECK(contains(text, "compile_test.cpp"));
    CHECK(error_of([] { cuda::synchronize(); }).empty());
    CHECK(same_bits(loss(x, good).cpu(), cross_entropy(x, good).cpu()));
  }
  (void)gather(x, 1, full({2, 1}, 5, {.dtype = kInt64, .device = kCUDA}));  // before the launch: the first is told
  (void)loss(x, bad);
  CHECK(contains(error_of([] { cuda::synchronize(); }), "5"));
}

TEST_CASE("cuda: a graph is launched on the stream of the call, one after the other") {
  NEEDS_CUDA
  Tensor total = zeros({64}, {.device = kCUDA});
  auto add = compile(
      [&](const Tensor& x) {
        const Tensor y = softmax(x, 0);
        total.add_(y);
        return y;
      },
      {.verify = 0, .rows = false, .background = false});
  const Tensor x = wave({64}, 0.1).cuda();
  cuda::synchronize();
  const cuda::Stream side = cuda::Stream();
  Tensor sum = zeros({64});
  for (int i = 0; i < 16; ++i) {
    const bool other = i >= 6 && i < 11;
    std::optional<cuda::StreamGuard> guard;
    if (other) guard.emplace(side);
    CHECK(same_bits(add(x).cpu(), softmax(x, 0).cpu()));
    cuda::synchronize();
    sum = sum + softmax(x, 0).cpu();
  }
  CHECK(same_bits(total.cpu(), sum));
  CHECK(launches(add.explain()) > 5);
}

TEST_CASE("cuda: numbers of the host are constants of the device; a mixed program runs as it is, with the reason") {
  NEEDS_CUDA
  auto scaled = compile(
      [](const Tensor& x) {
        Tensor weights = tensor({1.f, 2.f, 3.f}, {.device = kCUDA});
        Tensor sums = tensor({10.f, 20.f, 30.f}).to(kCUDA);
        sums.add_(x * weights);  // which is written: a copy of the constant
        return sums;
      },
      {.verify = 0, .background = false});
  const Tensor x = tensor({1.f, -1.f, 2.f}).to(kCUDA);
  for (int i = 0; i < 6; ++i) CHECK(same_bits(scaled(x).cpu(), tensor({11.f, 18.f, 36.f})));
  INFO(scaled.explain());
  CHECK(launches(scaled.explain()) > 1);

  const auto reason_of = [](auto&& f, auto&&... x) {
    auto step = compile(f, {.verify = 0, .background = false});
    std::vector<Tensor> got;
    for (int i = 0; i < 5; ++i) got.push_back(step(x...).cpu());
    for (const Tensor& y : got) CHECK(same_bits(y, f(x...).cpu()));
    CHECK(step.programs() == 0);
    return step.explain();
  };
  CHECK(contains(reason_of([](const Tensor& x) { return (x * 2).cpu(); }, x), "it copies between devices"));
  CHECK(contains(reason_of([](const Tensor& x) { return x.cuda() * 2; }, x.cpu()), "it copies between devices"));
  CHECK(contains(reason_of([](const Tensor& x) { return (arange(3) + 1).cuda() + x; }, x), "runs on"));
  auto read = compile([](const Tensor& x) { return x * x.sum().item<float>(); }, {.verify = 0, .background = false});
  CHECK(contains(error_of([&] { read(x); }), "host must read"));
  CHECK(same_bits((x * 2).cpu(), tensor({2.f, -2.f, 4.f})));
}

TEST_CASE(
    "cuda: what waits for the device inside is run call by call, and explain() says why; graphs can be switched off") {
  NEEDS_CUDA
  const auto solve = [](const Tensor& a) { return linalg::cholesky(a) + 1; };
  auto fast = compile(solve, {.verify = 0, .background = false});
  const Tensor a = tensor({4.f, 2.f, 2.f, 3.f}).reshape({2, 2}).to(kCUDA);
  for (int i = 0; i < 8; ++i) CHECK(same_bits(fast(a).cpu(), solve(a).cpu()));
  INFO(fast.explain());
  CHECK(fast.programs() == 1);
  CHECK(contains(fast.explain(), "no graph, launched 0 times"));
  CHECK(contains(fast.explain(), "because"));

  setenv("TAPIR_CUDA_GRAPHS", "0", 1);
  auto off = compile([](const Tensor& x) { return relu(x) * 2; }, {.verify = 0, .background = false});
  for (int i = 0; i < 6; ++i) CHECK(same_bits(off(a).cpu(), (relu(a) * 2).cpu()));
  CHECK(contains(off.explain(), "because TAPIR_CUDA_GRAPHS=0"));
  unsetenv("TAPIR_CUDA_GRAPHS");
}

namespace {

/// A graph that has all places for bad values that graphs may have.
void* take_all_places(const Tensor& x, const Tensor& index, Tensor& y) {
  const DeviceTable& table = *backend(kCUDA).device;
  const char* why = "";
  {
    ScopedMode<void*> stream(modes.streams[0], table.begin_capture(kCUDA));
    const std::string full = message_of<ValueError>([&] {
      for (int i = 0; i < 100'000; ++i) backend(kCUDA).gather(context(kCUDA), {y, x, index, {0}});
    });
    CHECK(contains(full, "expected at most"));
  }
  return table.end_capture(kCUDA, true, why);
}

}  // namespace

TEST_CASE("cuda: captures that fail now and then are tried again") {
  NEEDS_CUDA
  const Tensor x = wave({32}, 0.2).cuda(), index = arange(32, {.device = kCUDA});
  Tensor y = empty_like(x);
  auto step = compile(
      [&](const Tensor& x) {
        NoGrad guard;
        return dropout(gather(x, 0, index), 0.5, true) + 1;
      },
      {.verify = 0, .background = false});
  for (int k = 0; k < 6; ++k) (void)step(x);
  REQUIRE(launches(step.explain()) >= 1);
  for (uint64_t i = 0; i < 5; ++i) {
    manual_seed(10 + i);
    (void)step(x);  // without its graph, which knows another seed
    void* const held = take_all_places(x, index, y);
    REQUIRE(held);
    for (int k = 0; k < 2; ++k) (void)step(x);
    INFO(step.explain());
    CHECK(contains(step.explain(), "because"));
    backend(kCUDA).device->destroy_graph(kCUDA, held);
    const int64_t before = launches(step.explain());
    for (int k = 0; k < 4; ++k) (void)step(x);
    CHECK(launches(step.explain()) > before);
  }
}

TEST_CASE("cuda: captures that others spoil are tried again") {
  NEEDS_CUDA
  const DeviceTable& table = *backend(kCUDA).device;
  const char* why = "";
  void* const stream = table.begin_capture(kCUDA);  // which the next capture uses too
  (void)table.end_capture(kCUDA, false, why);
  auto step = compile(
      [](const Tensor& x) {
        NoGrad guard;
        Tensor y = x;
        for (int i = 0; i < 20; ++i) y = softmax(y, 0) + i;
        return dropout(y, 0.5, true);
      },
      {.verify = 0, .background = false});
  std::atomic<bool> stop{false};
  std::atomic<int> spoilt{0};
  std::thread other([&] {
    while (!stop) {
      spoilt += !message_of<RuntimeError>([&] { (void)table.query_stream(kCUDA, stream); }).empty();
      std::this_thread::yield();
    }
  });
  const Tensor x = wave({32}, 0.2).cuda();
  for (uint64_t i = 0; i < 1000 && (i < 30 || spoilt < 20); ++i) {
    if (i % 2 == 0) manual_seed(i);  // another graph
    (void)step(x);
  }
  stop = true;
  other.join();
  INFO(spoilt << " spoilt; " << step.explain());
  for (int i = 0; i < 4; ++i) (void)step(x);
  CHECK(contains(step.explain(), "one graph"));
}

TEST_CASE("cuda: switches that kernels read are asked again by compiled programs") {
  NEEDS_CUDA
  namespace switches = backends::cuda;
  const Tensor x = wave({4, 8}, 0.1).cuda(), w = wave({8, 8}, 0.2).cuda();
  const std::pair<bool (*)(), void (*)(bool)> all[] = {{switches::matmul_allow_tf32, switches::set_matmul_allow_tf32},
                                                       {switches::cudnn_allow_tf32, switches::set_cudnn_allow_tf32},
                                                       {switches::cudnn_benchmark, switches::set_cudnn_benchmark}};
  for (const auto& [get, set] : all) {
    auto step = compile(
        [&](const Tensor& x) {
          NoGrad guard;
          return relu(matmul(x, w));
        },
        {.verify = 0, .background = false});
    for (int i = 0; i < 6; ++i) (void)step(x);
    const int64_t before = launches(step.explain());
    CHECK(before >= 1);
    set(get());  // as it was
    (void)step(x);
    CHECK(launches(step.explain()) == before + 1);
    set(!get());
    (void)step(x);
    CHECK(launches(step.explain()) <= before + 1);  // not by the old graph
    set(!get());
  }
}

TEST_CASE("cuda: rows that are summed are fused where that is asked for") {
  NEEDS_CUDA
  for (const DType type : {kFloat32, kFloat16})
    for (const int64_t n : {40, 37, 2048}) {  // a warp's, with a rest, a block's
      const Tensor x = wave({6, n}, 0.01).to(type).cuda();
      const auto f = [](const Tensor& x) {
        NoGrad guard;
        const Tensor centred = x - mean(x, -1, {.keepdim = true});
        return std::tuple(centred * 2, sum(square(centred) * 0.01, -1) + 1, amax(x * -2, -1));
      };
      auto fast = compile(f, {.verify = 0, .rows = true, .background = false});
      INFO(name_of(type) << " " << n);
      for (int i = 0; i < 4; ++i) {
        const auto got = fast(x), expected = f(x);
        const double tolerance = type == kFloat32 ? 1e-5 : 2e-3;
        CHECK(same_values(std::get<0>(got).cpu(), std::get<0>(expected).cpu(), tolerance));
        CHECK(same_values(std::get<1>(got).cpu(), std::get<1>(expected).cpu(), tolerance));
        CHECK(same_values(std::get<2>(got).cpu(), std::get<2>(expected).cpu(), tolerance));
      }
      const std::string text = fast.explain();
      INFO(text);
      CHECK((contains(text, " Sum") && contains(text, "fused(")));
      CHECK(launches(text) >= 1);
    }
}

TEST_CASE("cuda: while a profiler looks, runs are call by call, and it sees the kernels") {
  NEEDS_CUDA
  auto f = compile([](const Tensor& x) { return tanh(x) + 1; }, {.verify = 0, .background = false});
  const Tensor x = wave({32}, 0.2).cuda();
  const Tensor expected = (tanh(x) + 1).cpu();
  for (int i = 0; i < 6; ++i) CHECK(same_bits(f(x).cpu(), expected));
  const int64_t before = launches(f.explain());
  CHECK(before >= 1);
  {
    profiler::Profile profile;
    CHECK(same_bits(f(x).cpu(), expected));
  }
  CHECK(launches(f.explain()) == before);
  CHECK(same_bits(f(x).cpu(), expected));
  CHECK(launches(f.explain()) == before + 1);
}

TEST_CASE("cuda: compiled steps under other orders of blocks and threads") {
  NEEDS_CUDA
  if (!is_emulated()) SKIP_TEST("the emulation alone has other orders");
  for (const char* seed : {"1", "2"})
    CHECK(run_alone(std::string("TAPIR_EMULATED_SEED=") + seed,
                    "cuda: compiled steps with dropout and clipping are as eager ones, and graphs") == 0);
}

TEST_CASE("compile on a device: a checked call runs as it is, and the graph is captured anew") {
  NEEDS_CUDA
  Tensor w = ones({64}, {.device = kCUDA}).requires_grad_();
  optim::SGD opt({w}, {.lr = 0.1});
  int calls = 0;
  auto step = compile(
      [&](const Tensor& x) {
        ++calls;
        opt.zero_grad();
        Tensor loss = sum(square(w * x));
        loss.backward();
        opt.step();
        return loss;
      },
      {.verify = 0.2, .background = false});
  Tensor v = ones({64});
  const Tensor x = full({64}, 0.5), on_device = x.cuda();
  for (int i = 0; i < 40; ++i) {
    CHECK(same_values(step(on_device).cpu(), sum(square(v * x))));
    v = v - 0.1 * 2 * v * x * x;
    CHECK(same_values(w.detach().cpu(), v));
  }
  CHECK(calls > 5);
  CHECK(calls < 30);
  CHECK(step.programs() == 1);
  CHECK(launches(step.explain()) > 3);
}

TEST_CASE("compile on a device: a model in an ordinary loop is two programs, which are graphs") {
  NEEDS_CUDA
  std::vector<Tensor> left[2];
  for (const bool compiled : {false, true}) {
    manual_seed(7);
    nn::Sequential net(nn::Linear(8, 16), nn::GELU(), nn::Dropout(0.2), nn::Linear(16, 4));
    net.to(kCUDA);
    optim::AdamW opt(net.parameters(), {.lr = 0.01});
    auto fast = compile(net, {.enabled = compiled, .verify = 0, .background = false});
    for (int i = 0; i < 10; ++i) {
      const auto [x, y] = rows(i);
      opt.zero_grad();
      Tensor loss = cross_entropy(fast.forward(x.cuda()), y.cuda());
      loss.backward();
      opt.step();
      left[compiled].push_back(loss.detach().cpu());
      for (const Tensor& t : left_by(net)) left[compiled].push_back(t.defined() ? t.cpu() : t);
    }
    if (!compiled) continue;
    const std::string text = fast.explain();
    INFO(text.substr(0, 3000));
    CHECK(fast.stats().size() == 2);
    CHECK(launches(text) >= 4);
    CHECK(launches(text.substr(text.find("backward:"))) >= 4);
  }
  REQUIRE(left[0].size() == left[1].size());
  for (size_t i = 0; i < left[0].size(); ++i) CHECK(same_values(left[0][i], left[1][i]));
}
