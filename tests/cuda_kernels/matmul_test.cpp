// cuda_kernels/matmul/matmul.cpp: every dtype and layout against the CPU.
#include <tapir/core/backend.h>
#include <tapir/core/device_table.h>
#include <tapir/core/modes.h>

#include "cuda.h"

using namespace tapir;

namespace {
constexpr DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8};

Tensor numbers(const Shape& shape, DType dtype) {
  return is_floating(dtype) ? randn(shape).to(dtype) : randint(dtype == kUInt8 ? 0 : -9, 10, shape).to(dtype);
}

/// f(operands) is the same on both devices; f also changes the operands' layout, which a copy between devices keeps only where dense.
template <class F> void same(F&& f, const std::vector<Tensor>& operands) {
  std::vector<Tensor> there;
  for (const Tensor& t : operands) there.push_back(t.to(kCUDA));
  const Tensor host = f(operands), device = f(there);
  REQUIRE(device.device() == kCUDA);
  REQUIRE(device.dtype() == host.dtype());
  REQUIRE(device.shape() == host.shape());
  const DType t = host.dtype();
  if (!is_floating(t)) {
    CHECK(equal(device.cpu(), host));
    return;
  }
  const double bound = t == kFloat64 ? 1e-12 : t == kFloat32 ? 1e-5 : t == kFloat16 ? 2e-3 : 2e-2;
  CHECK(allclose(device.cpu().to(kFloat64), host.to(kFloat64), {.rtol = bound, .atol = bound * 8}));
}
using List = std::vector<Tensor>;

/// How many products cuBLASLt has made.
int64_t library_products() {
  const std::string report = cuda::library_report();
  const size_t at = report.find("served: ", report.find("cuBLASLt"));
  return at == std::string::npos ? 0 : std::atoll(report.c_str() + at + 8);
}
}  // namespace

TEST_CASE("cuda matmul: every dtype and layout") {
  NEEDS_CUDA
  manual_seed(1);
  for (const DType t : kAll) {
    CAPTURE(std::string(name_of(t)));
    const List x = {numbers({33, 17}, t), numbers({17, 40}, t)};
    same([](const List& x) { return matmul(x[0], x[1]); }, x);
    same([](const List& x) { return matmul(x[1].t(), x[0].t()); }, x);
    same([](const List& x) { return matmul(x[0].slice(1, 0, 17, 2), x[1].slice(0, 1, 17, 2).slice(0, 0, 8)); },
         {numbers({33, 16}, t), numbers({17, 40}, t)});
    same([](const List& x) { return matmul(x[0].slice(0, 3, 4), x[1].slice(1, 5, 6)); }, x);
    same([](const List& x) { return matmul(x[0].select(0, 2), x[1]); }, x);
    same([](const List& x) { return matmul(x[0], x[1].select(1, 7)); }, x);
    for (const int64_t width : {32, 64})  // of one size and alignment, in rows of another length
      same([](const List& x) { return matmul(x[0].narrow(1, 0, 16), x[0].narrow(1, 0, 16).t()); },
           {numbers({4, width}, t)});
    const List batches = {numbers({3, 5, 7}, t), numbers({3, 7, 4}, t), numbers({7, 6}, t)};
    same([](const List& x) { return matmul(x[0], x[1]); }, batches);
    same([](const List& x) { return matmul(x[0], x[2]); }, batches);
    same([](const List& x) { return matmul(x[2].t(), x[1]); }, batches);
    same([](const List& x) { return matmul(x[1].transpose(1, 2), x[0].transpose(1, 2)); }, batches);
    same([](const List& x) { return matmul(x[0].transpose(0, 1).contiguous().transpose(0, 1), x[1]); }, batches);
    same([](const List& x) { return matmul(x[0].select(0, 0).slice(1, 0, 0), x[1].select(0, 0).slice(0, 0, 0)); },
         batches);
  }
}

TEST_CASE("cuda matmul: what is added") {
  NEEDS_CUDA
  manual_seed(2);
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32}) {
    CAPTURE(std::string(name_of(t)));
    const List x = {numbers({9, 12}, t), numbers({9, 6}, t), numbers({6, 12}, t), numbers({12}, t), numbers({9, 1}, t)};
    for (const double beta : {0., 1., 2.})
      for (const double alpha : {1., 3.}) {
        const AddmmOptions o{.beta = beta, .alpha = alpha};
        same([&](const List& x) { return addmm(x[0], x[1], x[2], o); }, x);
        same([&](const List& x) { return addmm(x[3], x[1], x[2], o); }, x);
        same([&](const List& x) { return addmm(x[4], x[1], x[2], o); }, x);
        same([&](const List& x) { return addmm(x[0].t(), x[2].t(), x[1].t(), o); }, x);
        same(
            [&](const List& x) {
              Tensor y = x[0].clone();
              return addmm_(y, x[1], x[2], o);
            },
            x);
      }
    same([](const List& x) { return linear(x[1], x[2].t(), x[3]); }, x);
    same([](const List& x) { return linear(x[1].view({3, 3, 6}), x[2].t(), x[3]); }, x);
    same([](const List& x) { return linear(x[1], x[2].t()); }, x);
    const List batches = {numbers({4, 5, 6}, t), numbers({4, 5, 3}, t), numbers({4, 3, 6}, t), numbers({5, 1}, t)};
    same([](const List& x) { return baddbmm(x[0], x[1], x[2], {.beta = 2, .alpha = 3}); }, batches);
    same([](const List& x) { return baddbmm(x[3], x[1], x[2]); }, batches);
  }
}

TEST_CASE("cuda matmul: NaN and infinity pass, gradients agree") {
  NEEDS_CUDA
  Tensor a = ones({4, 4}), b = ones({4, 4});
  a[1][2] = NAN, b[3][0] = INFINITY;
  const Tensor y = matmul(a.to(kCUDA), b.to(kCUDA)).cpu(), want = matmul(a, b);
  CHECK(equal(isnan(y), isnan(want)));
  CHECK(equal(isinf(y), isinf(want)));

  manual_seed(3);
  const List x = {randn({3, 5, 7}), randn({7, 4}), randn({4})};
  const auto gradient = [](size_t of) {
    return [of](const List& given) {
      List x;
      for (const Tensor& t : given) x.push_back(t.detach().clone().requires_grad_());
      square(linear(x[0], x[1].t(), x[2])).sum().backward();
      return x[of].grad();
    };
  };
  for (size_t i = 0; i < 3; ++i) same(gradient(i), x);
}

TEST_CASE("cuda matmul: linear_gelu and the gradients of linear, whose bias's comes with the weight's") {
  NEEDS_CUDA
  manual_seed(5);
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const int64_t out : {8, 5})  // the library's GELU wants multiples of 8
      for (const bool fused : {true, false}) {
        CAPTURE(std::string(name_of(t)), out, fused);
        const auto all = [fused](const List& given) {
          List x;
          for (const Tensor& g : given) x.push_back(g.detach().clone().requires_grad_());
          const Tensor y = fused ? linear_gelu(x[0], x[1], x[2]) : linear(x[0], x[1], x[2]);
          y.sum().backward();
          return cat({y.detach().flatten(), x[0].grad().flatten(), x[1].grad().flatten(), x[2].grad()}, 0);
        };
        const List x = {numbers({6, 7}, t), numbers({out, 7}, t), numbers({out}, t)};
        same(all, x);
        same(all, {x[0].unsqueeze(0), x[1], x[2]});
        same(all, {numbers({0, 7}, t), x[1], x[2]});
        same([](const List& x) { return linear_gelu(x[0], x[1], x[2]); }, x);
        same([](const List& x) { return linear_gelu(x[0], x[1]); }, x);
      }
  Tensor bad = ones({4, 8}, {.dtype = kFloat16});
  bad[1][2] = NAN;
  const Tensor w = ones({8, 8}, {.dtype = kFloat16});
  CHECK(equal(isnan(linear_gelu(bad.to(kCUDA), w.to(kCUDA))).cpu(), isnan(linear_gelu(bad, w))));
}

TEST_CASE("cuda matmul: a bias and sums of rows begin anywhere in a flat buffer") {
  NEEDS_CUDA
  manual_seed(6);
  for (const DType t : {kFloat32, kFloat16, kBFloat16})
    for (const int64_t at : {0, 1, 2, 3, 8}) {
      CAPTURE(std::string(name_of(t)), at);
      const List x = {numbers({5, 6}, t), numbers({16, 6}, t), numbers({40}, t), numbers({2, 5, 6}, t),
                      numbers({2, 6, 16}, t)};
      const auto bias = [at](const List& x) { return x[2].slice(0, at, at + 16); };
      same([&](const List& x) { return linear(x[0], x[1], bias(x)); }, x);
      same([&](const List& x) { return linear(x[3], x[1], bias(x)); }, x);
      same([&](const List& x) { return linear_gelu(x[0], x[1], bias(x)); }, x);
      same([&](const List& x) { return addmm(bias(x), x[0], x[1].t(), {.alpha = 2}); }, x);
      same([&](const List& x) { return baddbmm(bias(x), x[3], x[4]); }, x);
      same([&](const List& x) { return linear(x[0], x[1].narrow(0, at, 8), x[2].narrow(0, at, 8)); }, x);
      for (const bool across : {false, true})  // or its transpose, as compile() may want it
        same(  // the sums of the first operand's rows, as the backward pass asks for them
            [&](const List& x) {
              const Tensor flat = zeros_like(x[2]), z = empty({5, 16}, {.dtype = t, .device = flat.device()});
              const Tensor y = across ? z.t() : empty({16, 5}, {.dtype = t, .device = flat.device()});
              backend(y).matmul(context(y),
                                {.out = y, .a = x[1], .b = x[0].t(), .aux = bias({y, y, flat}), .params = {}});
              return cat({y.flatten(), flat}, 0);
            },
            x);
      same(  // operands that begin there
          [&](const List& x) {
            return matmul(x[2].slice(0, at, at + 6).view({2, 3}), x[2].slice(0, at + 1, at + 16).view({5, 3}).t());
          },
          x);
    }
}

TEST_CASE("cuda matmul: few rows, or columns") {
  NEEDS_CUDA
  manual_seed(8);
  for (const DType t : {kFloat32, kFloat16, kBFloat16})
    for (const int64_t m : {1, 2, 3, 5, 8})
      for (const auto& [k, n] :
           std::vector<std::pair<int64_t, int64_t>>{{768, 48}, {1, 40}, {37, 33}, {300, 1601}, {2056, 64}}) {
        CAPTURE(std::string(name_of(t)), m, k, n);
        const Tensor scale = full({}, 0.2, {.dtype = t});
        const List x = {mul(numbers({m + 1, k + 3}, t), scale), mul(numbers({n + 1, k + 8}, t), scale),
                        mul(numbers({k + 1, n + 8}, t), scale), numbers({n}, t), numbers({m, n}, t)};
        for (const int64_t at : {0, 1}) {  // begins of rows
          const auto a = [&](const List& x) { return x[0].narrow(0, at, m).narrow(1, at, k); };
          const auto w = [&](const List& x) { return x[1].narrow(0, at, n).narrow(1, at, k); };  // (n, k): along k
          const auto b = [&](const List& x) { return x[2].narrow(0, at, k).narrow(1, at, n); };  // (k, n): along n
          same([&](const List& x) { return linear(a(x), w(x), x[3]); }, x);
          same([&](const List& x) { return linear(a(x), b(x).t(), x[3]); }, x);
          same([&](const List& x) { return linear_gelu(a(x), b(x).t(), x[3]); }, x);
          same([&](const List& x) { return linear_gelu(a(x), w(x)); }, x);
          same([&](const List& x) { return matmul(b(x).t(), a(x).t()); }, x);
          same([&](const List& x) { return matmul(w(x), a(x).t()); }, x);
          same([&](const List& x) { return addmm(x[4], a(x), b(x), {.beta = 2, .alpha = 0.5}); }, x);
          same([&](const List& x) { return addmm(x[4].select(1, 0).unsqueeze(1), a(x), w(x).t(), {.beta = 2}); }, x);
          same(
              [&](const List& x) {
                Tensor y = x[4].clone();
                return addmm_(y, a(x), w(x).t());
              },
              x);
          same([&](const List& x) { return matmul(x[0].narrow(0, 0, 1).expand({m, k + 3}).narrow(1, 0, k), b(x)); }, x);
        }
      }
  const int64_t products = library_products();
  const Tensor few = randn({3, 96}).to(kCUDA), wide = randn({40, 96}).to(kCUDA);
  (void)linear(few, wide), (void)matmul(wide, few.t());
  CHECK(library_products() == products);
  (void)linear(randn({3, 5000}).to(kCUDA), randn({40, 5000}).to(kCUDA));  // long sums for few blocks
  CHECK(library_products() == products + 1);
  Tensor bad = ones({2, 96});
  bad[1][95] = NAN, bad[0][3] = INFINITY;
  const Tensor w = full({40, 96}, 0.5), y = linear(bad.to(kCUDA), w.to(kCUDA)).cpu();
  CHECK(equal(isnan(y), isnan(linear(bad, w))));
  CHECK(equal(isinf(y), isinf(linear(bad, w))));
}

TEST_CASE("cuda matmul: large operands of 16 bits whose rows begin anywhere") {
  NEEDS_CUDA
  manual_seed(7);
  const auto within = [](const Tensor& t, int64_t at, int64_t rows, int64_t columns) {
    return t.slice(0, at, at + rows).slice(1, at, at + columns);
  };
  for (const DType t : {kFloat16, kBFloat16})
    for (const auto& [wide, k] : std::vector<std::pair<int64_t, int64_t>>{
             {264, 256}, {265, 256}, {264, 260}, {265, 261}})  // rows of the operands
      for (const int64_t at : {0, 1}) {
        CAPTURE(std::string(name_of(t)), wide, k, at);
        const Tensor scale = full({}, 0.1, {.dtype = t});
        const List x = {mul(numbers({402, wide}, t), scale), mul(numbers({301, wide}, t), scale), numbers({302}, t)};
        const auto a = [&](const List& x) { return within(x[0], at, 400, k); };  // (400, k)
        const auto b = [&](const List& x) { return within(x[1], at, 300, k); };  // (300, k)
        same([&](const List& x) { return linear(a(x), b(x), x[2].slice(0, at, at + 300)); }, x);
        same([&](const List& x) { return linear(b(x), a(x)); }, x);
        same([&](const List& x) { return matmul(a(x), b(x).t()).t(); }, x);
        same([&](const List& x) { return matmul(a(x).t(), matmul(a(x), b(x).t())); }, x);
        same([&](const List& x) { return matmul(b(x).t(), b(x)); }, x);
        same(
            [&](const List& x) {  // into rows that begin anywhere, and added to what is there
              const Tensor y = zeros({402, 305}, {.dtype = t, .device = x[0].device()});
              Tensor out = y.slice(0, at, at + 400).slice(1, at, at + 300);
              addmm_(out, a(x), b(x).t(), {.beta = 0});
              return addmm_(out, a(x), b(x).t(), {.alpha = 0.5}).contiguous();
            },
            x);
        same(
            [&](const List& given) {
              List x;
              for (const Tensor& g : given) x.push_back(g.detach().clone().requires_grad_());
              mul(linear(a(x), b(x), x[2].slice(0, at, at + 300)), 0.1).sum().backward();
              return cat({x[0].grad().flatten(), x[1].grad().flatten(), x[2].grad()}, 0);
            },
            x);
      }
}

TEST_CASE("cuda linear: rows of logits begin at multiples of 16 bytes") {
  NEEDS_CUDA
  manual_seed(3);
  const List x = {numbers({2, 130, 16}, kBFloat16), numbers({4099, 16}, kBFloat16)};
  const Tensor y = linear(x[0].to(kCUDA), x[1].to(kCUDA).requires_grad_());
  CHECK(linear(x[0].to(kCUDA), x[1].to(kCUDA)).is_contiguous());  // nothing is trained
  CHECK(y.shape() == Shape{2, 130, 4099});
  CHECK(y.strides() == Strides{130 * 4104, 4104, 1});
  CHECK(linear(x[0].to(kCUDA), x[1].slice(0, 0, 4095).to(kCUDA).requires_grad_()).is_contiguous());
  same([](const List& x) { return linear(x[0], x[1]).contiguous(); }, x);
  same(
      [](const List& given) {
        const Tensor a = given[0].detach().clone().requires_grad_(), w = given[1].detach().clone().requires_grad_();
        const Tensor target = full({260}, 4098, {.dtype = kInt64, .device = a.device()});
        cross_entropy(linear(a, w).view({260, 4099}), target, {.reduction = Reduction::Sum}).backward();
        return cat({a.grad().flatten(), w.grad().flatten()}, 0);
      },
      x);
}

TEST_CASE("cuda matmul: how many pieces a product has") {
  NEEDS_CUDA
  const bool small = std::getenv("TAPIR_CUDA_PIECE") != nullptr;  // of the program that the next test case starts
  const Tensor a = randn({400, 261}).to(kBFloat16).to(kCUDA), b = randn({300, 261}).to(kBFloat16).to(kCUDA);
  const int64_t products = library_products();
  (void)linear(a, b);
  CHECK(library_products() == products + (small ? 4 : 1));
  const Tensor wide = randn({400, 264}).to(kBFloat16).to(kCUDA), right = randn({304, 264}).to(kBFloat16).to(kCUDA);
  const int64_t so_far = library_products();  // rows that begin well: 256 products, and 5
  (void)linear(wide.slice(1, 0, 261), right.slice(1, 0, 261));
  CHECK(library_products() == so_far + (small ? 2 : 1));
  const Tensor many =
      randn({24 * 128, 261}).to(kBFloat16);  // more pieces than a context holds blocks of scratch memory
  const int64_t before = library_products();
  const Tensor y = linear(many.to(kCUDA), b);
  CHECK(library_products() == before + (small ? 24 : 1));
  CHECK(allclose(y.cpu(), linear(many, b.cpu()), {.rtol = 2e-2, .atol = 2e-2}));
}

TEST_CASE("cuda matmul: such operands piece by piece") {
  NEEDS_CUDA
  CHECK(tapir_tests::run_alone("TAPIR_CUDA_PIECE=80000", "cuda matmul: how many pieces a product has") == 0);
  CHECK(tapir_tests::run_alone("TAPIR_CUDA_PIECE=80000",
                               "cuda matmul: large operands of 16 bits whose rows begin anywhere") == 0);
}

namespace {
/// What the emulated cuBLASLt refuses.
struct Refusing {
  explicit Refusing(const char* what) { setenv("TAPIR_EMULATED_BLAS", what, 1); }
  ~Refusing() { unsetenv("TAPIR_EMULATED_BLAS"); }
};
/// Sizes that no other test has: plans are kept.
List of_size(int64_t n, DType t) {
  return {numbers({n, 6}, t), numbers({n + 3, 6}, t), numbers({n + 3}, t), numbers({2, n, n}, t)};
}
void all_ways(const List& x) {
  same([](const List& x) { return linear(x[0], x[1], x[2]); }, x);
  same([](const List& x) { return linear_gelu(x[0], x[1], x[2]); }, x);
  same([](const List& x) { return bmm(x[3], x[3].transpose(1, 2)); }, x);
  same([](const List& x) { return baddbmm(x[3], x[3], x[3], {.beta = 2, .alpha = 0.5}); }, x);
  same(
      [](const List& given) {
        List x;
        for (const Tensor& g : given) x.push_back(g.detach().clone().requires_grad_());
        linear(x[0], x[1], x[2]).sum().backward();
        return cat({x[0].grad().flatten(), x[1].grad().flatten(), x[2].grad()}, 0);
      },
      x);
  same(
      [](const List& x) {  // sums of rows, beside a product that is written across
        const Tensor z = empty({x[0].size(0), x[1].size(0)}, {.dtype = x[0].dtype(), .device = x[0].device()});
        const Tensor y = z.t(), sums = empty_like(x[2]);
        backend(y).matmul(context(y), {.out = y, .a = x[1], .b = x[0].t(), .aux = sums, .params = {}});
        return cat({y.flatten(), sums}, 0);
      },
      x);
}
}  // namespace

TEST_CASE("cuda matmul: what the library refuses is done another way") {
  NEEDS_CUDA
  manual_seed(7);
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    CAPTURE(std::string(name_of(t)));
    {
      const Refusing refusing("refuse-epilogues");
      all_ways(of_size(13, t));
    }
    const Refusing refusing("refuse");
    all_ways(of_size(21, t));
  }
  if (!is_emulated()) return;
  // Each refused call stands in the report, with the library's words; what was served is counted.
  const std::string report = cuda::library_report();
  const size_t at = report.find(" x: matmul float32 (21, ");
  REQUIRE(at != std::string::npos);
  CHECK(contains(report.substr(at, report.find('\n', at) - at), "CUBLAS_STATUS_NOT_SUPPORTED"));
  for (const char* sums : {"sums of rows", "sums of columns"}) CHECK(contains(report, sums));  // were asked for
  const auto served = [] {
    const std::string text = cuda::library_report(), word = "served: ";
    return std::stoll(text.substr(text.find(word) + word.size()));
  };
  const Tensor a = ones({23, 23}, {.device = kCUDA});
  const int64_t before = served();
  (void)matmul(a, a), (void)matmul(a, a);
  CHECK(served() == before + 2);
}

TEST_CASE(
    "cuda matmul: proposals are tried where that is asked for, and the fastest is kept for other devices and runs") {
  NEEDS_CUDA
  manual_seed(8);
  backends::cuda::set_cudnn_benchmark(true);
  for (const DType t : {kFloat32, kFloat64, kBFloat16}) {
    CAPTURE(std::string(name_of(t)));
    all_ways(of_size(29, t)), all_ways(of_size(37, t));
    if (cuda::device_count() < 2) continue;
    const List x = of_size(37, t);
    const Device there("cuda:1");
    const auto product = [&](Device d) {
      const Tensor a = x[3].to(d), y = empty_like(a);
      const int64_t before = cuda::synchronizations();
      backend(y).matmul(context(y), {.out = y, .a = a, .b = a, .params = {}});
      const int64_t waits = cuda::synchronizations() - before;
      CHECK(equal(y.cpu(), matmul(x[3].to(kCUDA), x[3].to(kCUDA)).cpu()));
      return waits;
    };
    product(kCUDA);
    CHECK(product(there) == 0);  // read as text, not tried again
  }
  backends::cuda::set_cudnn_benchmark(false);
}

TEST_CASE("cuda matmul: without room for trials the first proposal serves") {
  NEEDS_CUDA
  manual_seed(10);
  const List x = of_size(47, kFloat32), there = {x[0].to(kCUDA), x[1].to(kCUDA)};
  cuda::empty_cache();
  const auto total = double(cuda::mem_get_info().total);
  cuda::set_per_process_memory_fraction(double(cuda::memory_reserved() + (int64_t(8) << 20)) / total);
  backends::cuda::set_cudnn_benchmark(true);
  const Tensor y = linear(there[0], there[1]);
  backends::cuda::set_cudnn_benchmark(false);
  cuda::set_per_process_memory_fraction(1);
  CHECK(allclose(y.cpu(), linear(x[0], x[1]), {.rtol = 1e-5, .atol = 1e-5}));
}

TEST_CASE("cuda matmul: while a graph is captured nothing is tried") {
  NEEDS_CUDA
  manual_seed(9);
  backends::cuda::set_cudnn_benchmark(true);
  const DeviceTable& table = *backend(kCUDA).device;
  const Tensor x = randn({19, 19}), a = x.to(kCUDA), y = zeros_like(a);
  (void)matmul(a, a.select(0, 0));  // makes the library's handle
  (void)context(kCUDA);             // what the last kernel needed is given back
  (void)empty({int64_t(64) << 20},
              {.dtype = kUInt8, .device = kCUDA});  // room that the library may want, kept by the allocator
  const char* why = "";
  std::string refused;
  {
    ScopedMode<void*> stream(modes.streams[0], table.begin_capture(kCUDA));
    refused = error_of([&] { backend(kCUDA).matmul(context(kCUDA), {.out = y, .a = a, .b = a, .params = {}}); });
  }
  if (contains(refused, "[allocate]")) {  // TAPIR_CUDA_ALLOCATOR=direct keeps nothing
    (void)table.end_capture(kCUDA, false, why);
    return backends::cuda::set_cudnn_benchmark(false);
  }
  CHECK(refused == "");
  void* const graph = table.end_capture(kCUDA, true, why);
  CHECK(std::string(why) == "");
  REQUIRE(graph);
  CHECK(all(eq(y, 0)).item<bool>());
  table.launch_graph(kCUDA, graph, current_stream(kCUDA));
  table.destroy_graph(kCUDA, graph);
  CHECK(allclose(y.cpu(), matmul(x, x), {.rtol = 1e-5, .atol = 1e-5}));
  backends::cuda::set_cudnn_benchmark(false);
}

TEST_CASE("cuda matmul: TF32 only where it is asked for") {
  NEEDS_CUDA
  CHECK_FALSE(backends::cuda::matmul_allow_tf32());
  manual_seed(4);
  const Tensor a = randn({256, 256}), b = randn({256, 256}), want = matmul(a.to(kFloat64), b.to(kFloat64));
  const auto error = [&] {
    return abs(matmul(a.to(kCUDA), b.to(kCUDA)).cpu().to(kFloat64) - want).max().item<double>();
  };
  const double exact = error();
  CHECK(exact < 1e-4);
  backends::cuda::set_matmul_allow_tf32(true);
  CHECK(error() < 0.1);
  CHECK(error() > 4 * exact);  // and there it is taken
  backends::cuda::set_matmul_allow_tf32(false);
  CHECK(error() == exact);
}
