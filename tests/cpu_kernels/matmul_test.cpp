#include "arrays.h"
#include "catch.h"

#include <cmath>
#include <limits>

#include <tapir/core/parallel.h>
#include <tapir/tapir.h>

using namespace tapir_tests;

namespace {

/// Compares with loops in double, element by element.
void compare(Array& out, const Array& a, const Array& b, const Array* bias, MatmulParams p) {
  const DType t = out.view.dtype;
  std::vector<double> expected;
  const int64_t batch = out.view.sizes[0], m = out.view.sizes[1], n = out.view.sizes[2], k = a.view.sizes[2];
  const TensorView wide = bias ? bias->view.expand(out.view.shape()) : TensorView();
  const std::vector<double> left = a.values(), right = b.values();
  const int64_t step_a = a.view.strides[2], step_b = b.view.strides[1];
  for (int64_t at = 0; at < batch; ++at)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        const double *x = left.data() + a.offset(at, i, 0), *y = right.data() + b.offset(at, 0, j);
        for (int64_t q = 0; q < k; ++q) sum += x[q * step_a] * y[q * step_b];
        sum *= p.alpha;
        if (p.beta != 0) sum += p.beta * out(at, i, j);
        if (bias) sum += read(t, wide.data, at * wide.strides[0] + i * wide.strides[1] + j * wide.strides[2]);
        if (is_integral(t)) sum = as_type(t, sum);
        expected.push_back(as_type(t, p.finish == MatmulFinish::Relu && sum < 0 ? 0 : sum));
      }
  cpu_table().matmul(
      cpu_context(),
      {.out = out.view, .a = a.view, .b = b.view, .bias = bias ? bias->view : TensorView(), .params = p});
  int64_t wrong = 0, e = 0;
  for (int64_t at = 0; at < batch; ++at)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j, ++e) wrong += out(at, i, j) != expected[size_t(e)];
  CAPTURE(name_of(t), batch, m, n, k, p.alpha, p.beta, int(p.finish), bias != nullptr);
  CHECK(wrong == 0);
}

struct Extents {
  int64_t batch, m, n, k;
};
const Extents extents[] = {{1, 1, 1, 1},    {1, 2, 3, 4},    {3, 5, 7, 9},    {1, 33, 65, 40},   {2, 40, 20, 70},
                           {1, 1, 150, 90}, {1, 130, 1, 70}, {4, 1, 33, 70},  {1, 200, 90, 300}, {2, 10, 32, 33},
                           {1, 18, 31, 16}, {1, 3, 37, 256}, {1, 7, 15, 257}, {3, 1, 130, 500},  {1, 1, 37, 1900}};

}  // namespace

TEST_CASE("matmul: every dtype, operands straight and transposed", "[isa]") {
  for (const DType t : all_dtypes)
    for (const Extents& e : extents)
      for (int form = 0; form < 8; ++form) {
        const auto order = [&](int bit) { return form & bit ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2}; };
        Array a(t, {e.batch, e.m, e.k}, order(1)), b(t, {e.batch, e.k, e.n}, order(2)),
            out(t, {e.batch, e.m, e.n}, order(4));
        a.random(1), b.random(2);
        out.fill(std::numeric_limits<double>::quiet_NaN());
        compare(out, a, b, nullptr, {});
      }
}

TEST_CASE("matmul: gaps, repeated rows and shared batches", "[isa]") {
  for (const DType t : {kFloat32, kFloat64, kBFloat16, kInt32})
    for (const Extents& e : extents)
      for (int form = 0; form < 6; ++form) {
        const int64_t gap = form % 2 ? 3 : 0;
        Array a(t, {e.batch, e.m, e.k}, {},
                form == 2   ? std::vector<int>{0}
                : form == 4 ? std::vector<int>{1}
                            : std::vector<int>{},
                gap);
        Array b(t, {e.batch, e.k, e.n}, {1, 2, 0},
                form >= 3   ? std::vector<int>{0}
                : form == 2 ? std::vector<int>{2}
                            : std::vector<int>{},
                gap);
        Array c(t, {e.batch, e.m, e.n}, form == 5 ? std::vector<int>{1, 2, 0} : std::vector<int>{}, {}, gap);
        a.random(3), b.random(4), c.random(5);
        compare(c, a, b, nullptr, {});
      }
}

TEST_CASE("matmul: alpha, beta, bias and relu", "[isa]") {
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt8, kUInt8})
    for (const Extents& e : extents)
      for (int form = 0; form < 32; ++form) {
        MatmulParams p{.alpha = form & 1 ? 2.0 : 1.0,
                       .beta = form & 2 ? 3.0 : 0.0,
                       .finish = form & 4 ? MatmulFinish::Relu : MatmulFinish::None};
        Array a(t, {e.batch, e.m, e.k}), b(t, {e.batch, e.k, e.n}, {0, 2, 1}),
            out(t, {e.batch, e.m, e.n}, form & 16 ? std::vector<int>{0, 2, 1} : std::vector<int>{});
        a.random(6, -1, 1), b.random(7, -1, 1), out.random(8);
        if (p.beta == 0) out.fill(std::numeric_limits<double>::quiet_NaN());
        Array vector(t, {e.n}), full(t, {e.batch, e.m, e.n}), column(t, {e.m, 1});
        vector.random(9), full.random(10), column.random(11);
        const Array* biases[] = {nullptr, &vector, &full, &column};
        compare(out, a, b, biases[form / 8 % 4], p);
      }
}

TEST_CASE("matmul: zero sizes", "[isa]") {  // BI-101, BI-102
  for (const DType t : all_dtypes) {
    for (const Extents& e : {Extents{0, 2, 3, 4}, Extents{2, 0, 3, 4}, Extents{2, 2, 0, 4}}) {
      Array a(t, {e.batch, e.m, e.k}), b(t, {e.batch, e.k, e.n}), out(t, {e.batch, e.m, e.n});
      CHECK_NOTHROW(cpu_table().matmul(cpu_context(), {.out = out.view, .a = a.view, .b = b.view, .params = {}}));
    }
    for (const double beta : {0.0, 2.0}) {
      Array a(t, {2, 20, 0}), b(t, {2, 0, 40}), out(t, {2, 20, 40}), bias(t, {40});
      out.random(1, 0, 3), bias.random(2, 0, 3);
      if (beta == 0) out.fill(std::numeric_limits<double>::quiet_NaN());
      compare(out, a, b, nullptr, {.beta = beta});
      if (beta == 0) out.fill(std::numeric_limits<double>::quiet_NaN());
      compare(out, a, b, &bias, {.beta = beta});
    }
  }
}

TEST_CASE("matmul: NaN reaches the result, also through relu", "[isa]") {
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const int64_t size : {2, 40}) {
      Array a(t, {1, size, size}), b(t, {1, size, size}), out(t, {1, size, size});
      a.random(1), b.random(2);
      a.set(std::numeric_limits<double>::quiet_NaN(), 0, 1, 1);
      cpu_table().matmul(cpu_context(),
                         {.out = out.view, .a = a.view, .b = b.view, .params = {.finish = MatmulFinish::Relu}});
      for (int64_t j = 0; j < size; ++j) CHECK(std::isnan(out(0, 1, j)));
      CHECK(!std::isnan(out(0, 0, 0)));
    }
}

TEST_CASE("matmul: our own loops give the same bits for any number of threads", "[isa]") {
  const int before = get_num_threads();
  struct Case {
    DType t;
    int64_t m, n, k;
  };
  for (const auto [t, m, n, k] :
       {Case{kFloat64, 150, 120, 400}, Case{kInt32, 150, 120, 400}, Case{kFloat32, 1, 130, 3000},
        Case{kBFloat16, 1, 130, 3000}, Case{kFloat16, 1, 1500, 300}, Case{kFloat32, 1, 2000, 700}}) {
    CAPTURE(name_of(t), m, n, k);
    std::vector<char> first;
    for (const int threads : {1, 2, 3, 16}) {
      set_num_threads(threads);
      Array a(t, {1, m, k}), b(t, {1, k, n}), out(t, {1, m, n});
      for (int64_t i = 0; i < a.count; ++i) write(t, a.view.data, i, double(i % 97) / 7.0);
      for (int64_t i = 0; i < b.count; ++i) write(t, b.view.data, i, double(i % 89) / 11.0);
      cpu_table().matmul(cpu_context(), {.out = out.view, .a = a.view, .b = b.view, .params = {}});
      if (first.empty()) first = out.bytes;
      CHECK(first == out.bytes);
    }
  }
  set_num_threads(before);
}

namespace {

/// Ways for a matrix to lie in memory: dense rows, rows with a gap, dense columns, columns with a gap, no two elements side by side,
/// rows that overlap, one row or column repeated.
constexpr int kForms = 8;
Tensor laid_out(int form, DType dtype, int64_t rows, int64_t columns, uint32_t seed) {
  const int64_t strides[kForms][2] = {{columns, 1},     {columns + 3, 1},       {1, rows}, {1, rows + 5},
                                      {2 * columns, 2}, {(columns + 1) / 2, 1}, {0, 1},    {1, 0}};
  const auto [row, column] = strides[form];
  const int64_t offset = form % 3, extent = offset + (rows - 1) * row + (columns - 1) * column + 1;
  std::vector<float> values(static_cast<size_t>(extent));
  for (float& v : values) seed = seed * 1664525u + 1013904223u, v = float(int((seed >> 16) % 7) - 3);
  return as_strided(tensor(values).to(dtype), {rows, columns}, {row, column}, offset);
}
std::vector<double> numbers(const Tensor& x) { return x.to(kFloat64).contiguous().to_vector<double>(); }
/// a b + c, in double; c may be empty.
std::vector<double> plain_loops(const Tensor& a, const Tensor& b, std::vector<double> c) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const std::vector<double> x = numbers(a), y = numbers(b);
  c.resize(size_t(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t q = 0; q < k; ++q)
      for (int64_t j = 0; j < n; ++j) c[size_t(i * n + j)] += x[size_t(i * k + q)] * y[size_t(q * n + j)];
  for (double& v : c) v = as_type(a.dtype(), v);
  return c;
}
/// f(m, n, k, form of a, form of b).
template <class F> void each_product(F&& f) {
  for (const int64_t m : {1, 2, 3, 16, 70})
    for (const int64_t n : {1, 2, 3, 16, 70})
      for (const int64_t k : {1, 2, 16, 70})
        for (int form = 0; form < kForms * kForms; ++form) f(m, n, k, form % kForms, form / kForms);
}

}  // namespace

TEST_CASE("review 1: products of any extents and strides equal the plain loops", "[isa]") {
  int64_t wrong = 0;
  each_product([&](int64_t m, int64_t n, int64_t k, int form_a, int form_b) {
    const DType t = (form_a + form_b) % 3 == 2 ? kBFloat16 : kFloat32;
    const Tensor a = laid_out(form_a, t, m, k, 1), b = laid_out(form_b, t, k, n, 2);
    if (numbers(matmul(a, b)) == plain_loops(a, b, {})) return;
    UNSCOPED_INFO("m " << m << ", n " << n << ", k " << k << ", forms " << form_a << " and " << form_b);
    ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("review 1: products are added into views of any strides, and beside them nothing is written", "[isa]") {
  int64_t wrong = 0;
  each_product([&](int64_t m, int64_t n, int64_t k, int form_a, int form_b) {
    const Tensor a = laid_out(form_a, kFloat32, m, k, 1), b = laid_out(form_b, kFloat32, k, n, 2);
    for (int form = 0; form < 5; ++form) {
      if ((form + form_a + 3 * form_b) % 5 > 1) continue;  // two of five: each meets each
      Tensor whole = zeros({3 * m * n + 5 * (m + n)});
      const Tensor view = laid_out(form, kFloat32, m, n, 3);
      Tensor out = as_strided(whole, {m, n}, {view.stride(0), view.stride(1)}, 2);
      const double before = whole.sum().item();
      out.copy_(view);
      const std::vector<double> want = plain_loops(a, b, numbers(out));
      addmm_(out, a, b);
      double sum = 0;
      for (const double v : want) sum += v;
      if (numbers(out) == want && whole.sum().item() - before == sum) continue;
      UNSCOPED_INFO("m " << m << ", n " << n << ", k " << k << ", forms " << form_a << ", " << form_b << ", " << form);
      ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16 products of an odd depth take in nothing that lies beside their operands", "[isa]") {
  for (const auto& [batch, m, k, n] : {std::tuple(2, 19, 1, 2), std::tuple(3, 5, 7, 16), std::tuple(1, 64, 33, 65)})
    for (const bool deterministic : {false, true})
      for (const bool turned : {false, true}) {
        INFO(batch << " " << m << " " << k << " " << n << (turned ? " turned" : ""));
        const ScopedMode<bool> mode(modes.deterministic, deterministic);
        const auto beside_infinity = [](const Shape& shape, const Strides& strides, int64_t size) {
          const Tensor memory = full({size}, INFINITY, {.dtype = kBFloat16});
          return as_strided(memory, shape, strides).fill_(1);
        };
        const int64_t row = k + 2, matrix = m * row + 3;
        const Tensor a = beside_infinity({batch, m, k}, {matrix, row, 1}, batch * matrix);
        const Tensor b = turned ? beside_infinity({batch, k, n}, {n * row, 1, row}, batch * n * row)
                                : beside_infinity({batch, k, n}, {k * (n + 3), n + 3, 1}, batch * k * (n + 3));
        CHECK(equal(matmul(a, b), full({batch, m, n}, double(k), {.dtype = kBFloat16})));
        CHECK(equal(matmul(a.select(0, 0), b.select(0, 0)), full({m, n}, double(k), {.dtype = kBFloat16})));
      }
}
