#include <algorithm>
#include <limits>

#include <tapir/compile/passes/passes.h>

#include "program_bits.h"
#include "random_steps.h"

using namespace tapir;
using namespace tapir_tests;
using ir::Program;

namespace {

template <class F> Program recorded(const Tensor& x, F f) {
  NoGrad guard;
  ir::Recording recording(std::array{x});
  const std::vector<Tensor> out = f(x);
  return recording.finish(out);
}
int64_t copies(const Program& p) { return std::count_if(p.calls.begin(), p.calls.end(), ir::is<entry::Copy>); }
/// How many copies of f's program are left.
template <class F> int64_t left(const Tensor& x, F f, void (*pass)(Program&)) {
  const Program program = recorded(x, f);
  Program changed = program;
  pass(changed);
  INFO(to_string(program) << "\nchanged\n" << to_string(changed));
  check_same_bits(program, changed);
  return copies(changed);
}
Tensor hard_numbers(DType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  return tensor({0.0, -0.0, inf, -inf, std::nan(""), 1e-41, 70000.0, 3e38, 1.0 / 3, -2.5, 65519.9, 1e300})
      .to(dtype)
      .reshape({3, 4});
}

}  // namespace

TEST_CASE("a copy of a copy reads the first one's operand where no number changes") {
  using Tensors = std::vector<Tensor>;
  const auto merge = [](const Tensor& x, auto f) { return left(x, f, ir::merge_casts); };
  for (DType narrow : {kBFloat16, kFloat16}) {
    const Tensor half = hard_numbers(narrow), x = hard_numbers(kFloat32);
    CHECK(merge(half, [](const Tensor& x) { return Tensors{x.to(kFloat32).t().contiguous()}; }) == 2);  // faster so
    CHECK(merge(half, [=](const Tensor& x) { return Tensors{x.to(kFloat32).to(narrow).t().contiguous()}; }) == 1);
    CHECK(merge(half, [=](const Tensor& x) { return Tensors{x.to(kFloat32).to(narrow)}; }) == 1);
    CHECK(merge(half, [](const Tensor& x) { return Tensors{x.to(kFloat32).to(kFloat64).to(kInt64)}; }) == 1);
    CHECK(merge(x, [=](const Tensor& x) { return Tensors{x.to(narrow).to(kFloat32)}; }) == 2);  // rounds
    CHECK(merge(x, [=](const Tensor& x) { return Tensors{x.to(kFloat64).to(narrow)}; }) == 1);
    CHECK(merge(x, [=](const Tensor& x) { return Tensors{x.t().contiguous().to(narrow)}; }) == 2);
  }
  const Tensor x = hard_numbers(kFloat32);
  CHECK(merge(x, [](const Tensor& x) { return Tensors{x.to(kInt64).to(kFloat32)}; }) == 2);
  CHECK(merge(x, [](const Tensor& x) {
          return Tensors{x.t().contiguous().flatten().view({2, 6}).t().contiguous()};
        }) == 2);
  CHECK(merge(x, [](const Tensor& x) { return Tensors{x.to(kFloat64).narrow(0, 1, 1).to(kFloat32)}; }) == 2);  // a part
  CHECK(merge(x, [](const Tensor& x) {
          const Tensor y = x.to(kFloat64);
          return Tensors{y, y.to(kFloat32)};
        }) == 2);
  Tensor state = hard_numbers(kFloat32);
  CHECK(merge(x, [&](const Tensor& x) {  // what is read first changes in between
          const Tensor y = state.to(kFloat64);
          state.add_(x);
          return Tensors{y.to(kFloat32)};
        }) == 2);
  CHECK(merge(zeros({0, 3}), [](const Tensor& x) { return Tensors{x.to(kFloat64).t().contiguous()}; }) <= 2);
  CHECK(merge(full({}, 2.5), [](const Tensor& x) { return Tensors{x.to(kFloat64).to(kBFloat16)}; }) == 1);
}

TEST_CASE("products and attention write the order that they are copied into") {
  using Tensors = std::vector<Tensor>;
  const auto fold = [](const Tensor& x, auto f) { return left(x, f, ir::fold_layouts); };
  manual_seed(4);
  const Tensor x = randn({5, 7}), w = randn({7, 3}), q = randn({2, 3, 4, 8}), many = randn({4, 7, 3});
  CHECK(fold(x, [&](const Tensor& x) { return Tensors{matmul(x, w).t().contiguous()}; }) == 0);
  CHECK(fold(randn({4, 5, 7}), [&](const Tensor& x) {
          return Tensors{permute(matmul(x, many), {2, 0, 1}).contiguous()};
        }) == 0);
  CHECK(fold(x, [&](const Tensor& x) {  // somebody else reads it
          const Tensor y = matmul(x, w);
          return Tensors{y.t().contiguous(), sum(y, 0)};
        }) == 1);
  CHECK(fold(x, [&](const Tensor& x) { return Tensors{matmul(x, w).narrow(0, 0, 2).t().contiguous()}; }) ==
        1);  // a part
  CHECK(fold(x, [&](const Tensor& x) { return Tensors{matmul(x, w).t().to(kFloat64).contiguous()}; }) >= 1);
  const auto heads = [](const Tensor& q) {
    return transpose(scaled_dot_product_attention(q, q, q), 1, 2).reshape({2, 4, 24});
  };
  CHECK(fold(q, [&](const Tensor& q) { return Tensors{heads(q)}; }) == 0);
  CHECK(fold(q, [&](const Tensor& q) { return Tensors{heads(q) * 2}; }) == 0);
}

TEST_CASE("attention whose backward reads the result in its new order") {
  const auto batch = [](int i) {
    return std::pair(cos(arange(0., 3. * 6 * 8, 1., {.dtype = kFloat32}) + i).reshape({3, 6, 8}), Tensor());
  };
  for (bool bf16 : {false, true})
    for (bool on : {false, true})
      check_compiled([] { return nn::Linear(8, 24); },
                     [bf16](nn::Linear& net) {
                       return [&net, bf16, opt = optim::SGD(net.parameters(), {.lr = 0.1})](const Tensor& x,
                                                                                            const Tensor&) mutable {
                         opt.zero_grad();
                         Tensor loss;
                         {
                           amp::Autocast autocast(kCPU, {.dtype = kBFloat16, .enabled = bf16});
                           const Tensor h = net(x).reshape({3, 6, 3, 2, 4});
                           const auto part = [&](int64_t k) { return transpose(h.select(2, k), 1, 2); };
                           const Tensor y = scaled_dot_product_attention(part(0), part(1), part(2));
                           loss = mean(square(transpose(y, 1, 2).reshape({3, 6, 8}).to(kFloat32) - x));
                         }
                         loss.backward();
                         opt.step();
                         return loss;
                       };
                     },
                     batch, bf16 ? 1e-2 : 1e-5, 10, {.casts = on, .layouts = on});
}

TEST_CASE("random programs without casts of casts give the same bits") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("program " << seed);
    const Program program = recorded_program(seed);
    Program changed = program;
    ir::merge_casts(changed);
    check_same_bits(program, changed);
  }
}

TEST_CASE("epilogues: a product of integers keeps its relu as a call") {
  const Tensor w = remainder(arange(24), 7).reshape({6, 4}) - 3;
  for (const DType t : {kInt64, kInt32, kInt8, kUInt8}) {
    CAPTURE(name_of(t));
    auto f = compile([&](const Tensor& x) { return relu(matmul(x, w.to(t))); }, {.verify = 0});
    for (int i = 0; i < 5; ++i) {
      const Tensor x = remainder(arange(18) * (i + 2), 5).reshape({3, 6}).to(t);
      CHECK(equal(f(x), relu(matmul(x, w.to(t)))));
    }
    CHECK(f.programs() == 1);
    CHECK(f.explain().find("unary(Relu)") != std::string::npos);
  }
}
