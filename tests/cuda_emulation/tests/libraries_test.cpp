// The stand-ins for cuBLASLt, cuBLAS and cuSOLVER: products and factors by column-major rules, and planted faults of callers.
#include <cublasLt.h>
#include <cusolverDn.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "../../variable.h"
#include "../library_call.h"
#include "arrays.h"

using namespace emulation_tests;
using tapir_tests::Variable;

namespace {

constexpr size_t kSpace = 1 << 17;

/// D = alpha op(A) op(B) + beta C of float32: what a caller sets up, each part open to be set wrong.
struct Product {
  int64_t m, n, k, lda, ldb, ldc, ldd;
  cublasOperation_t ta, tb;
  int batch;
  float alpha = 1, beta = 0;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t wish = nullptr;
  Array<float> A, B, C, D;
  Array<char> space{kSpace};
  cublasLtMatmulHeuristicResult_t found[8];
  int count = 0;

  Product(int64_t m, int64_t n, int64_t k, cublasOperation_t ta = CUBLAS_OP_N, cublasOperation_t tb = CUBLAS_OP_N,
          int batch = 1, int64_t gap = 0)
      : m(m), n(n), k(k), lda(rows_a(ta) + gap), ldb(rows_b(tb) + gap), ldc(m + gap), ldd(m + 2 * gap), ta(ta), tb(tb),
        batch(batch), A(numbers(size_t(stride(lda, ta == CUBLAS_OP_N ? k : m) * batch))),
        B(numbers(size_t(stride(ldb, tb == CUBLAS_OP_N ? n : k) * batch))), C(numbers(size_t(stride(ldc, n) * batch))),
        D(std::vector<float>(size_t(stride(ldd, n) * batch), 7)) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta), set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    a = layout(rows_a(ta), ta == CUBLAS_OP_N ? k : m, lda), b = layout(rows_b(tb), tb == CUBLAS_OP_N ? n : k, ldb);
    c = layout(m, n, ldc), d = layout(m, n, ldd);
    REQUIRE(cublasLtMatmulPreferenceCreate(&wish) == CUBLAS_STATUS_SUCCESS);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kSpace));
  }
  ~Product() {
    for (auto l : {a, b, c, d}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulPreferenceDestroy(wish), cublasLtMatmulDescDestroy(op), cublasLtDestroy(handle);
  }
  int64_t rows_a(cublasOperation_t t) const { return t == CUBLAS_OP_N ? m : k; }
  int64_t rows_b(cublasOperation_t t) const { return t == CUBLAS_OP_N ? k : n; }
  static int64_t stride(int64_t ld, int64_t columns) { return ld * columns + 3; }
  cublasLtMatrixLayout_t layout(int64_t rows, int64_t columns, int64_t ld) const {
    cublasLtMatrixLayout_t l = nullptr;
    const int64_t next = stride(ld, columns);
    REQUIRE(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, uint64_t(rows), uint64_t(columns), ld) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4) ==
            CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &next, 8) ==
            CUBLAS_STATUS_SUCCESS);
    return l;
  }
  template <class T> void set(cublasLtMatmulDescAttributes_t what, T value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(op, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  template <class T> void prefer(cublasLtMatmulPreferenceAttributes_t what, T value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  void epilogue(cublasLtEpilogue_t e, const void* vector) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, e), set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  }
  cublasStatus_t choose(int most = 8) {
    return cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, c, d, wish, most, found, &count);
  }
  cublasStatus_t run(int which = 0, size_t bytes = kSpace, cudaStream_t stream = nullptr) {
    return cublasLtMatmul(handle, op, &alpha, A.p, a, B.p, b, &beta, C.p, c, D.p, d, &found[which].algo, space.p, bytes,
                          stream);
  }
  cublasStatus_t choose_and_run() {
    const cublasStatus_t s = choose();
    return s == CUBLAS_STATUS_SUCCESS ? run() : s;
  }
  /// D by the definition; what lies between its columns stays.
  std::vector<float> expected(const std::vector<float>& bias = {}) const {
    const auto x = A.host(), y = B.host(), z = C.host();
    std::vector<float> r(D.n, 7);
    for (int64_t t = 0; t < batch; ++t)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p) {
            const int64_t ai = ta == CUBLAS_OP_N ? i + p * lda : p + i * lda,
                          bi = tb == CUBLAS_OP_N ? p + j * ldb : j + p * ldb;
            sum += double(x[size_t(t * stride(lda, ta == CUBLAS_OP_N ? k : m) + ai)]) *
                   double(y[size_t(t * stride(ldb, tb == CUBLAS_OP_N ? n : k) + bi)]);
          }
          sum = double(alpha) * sum + double(beta) * double(z[size_t(t * stride(ldc, n) + i + j * ldc)]);
          if (!bias.empty()) sum += double(bias[size_t(i)]);
          r[size_t(t * stride(ldd, n) + i + j * ldd)] = float(sum);
        }
    return r;
  }
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
bool is_near(const std::vector<float>& x, const std::vector<float>& y) {
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= 1e-4f)) return false;
  return x.size() == y.size();
}

}  // namespace

TEST_CASE("cuBLASLt: products by the rules of column-major matrices") {
  for (const auto ta : {CUBLAS_OP_N, CUBLAS_OP_T})
    for (const auto tb : {CUBLAS_OP_N, CUBLAS_OP_T})
      for (const int batch : {1, 3})
        for (const int64_t gap : {0, 5}) {
          INFO("op " << int(ta) << int(tb) << ", batch " << batch << ", gap " << gap);
          Product p(5, 7, 4, ta, tb, batch, gap);
          REQUIRE(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
          CHECK(is_near(p.D.host(), p.expected()));
          p.alpha = -2, p.beta = 0.5f;
          CHECK(p.run() == CUBLAS_STATUS_SUCCESS);
          CHECK(is_near(p.D.host(), p.expected()));
          Array<float> bias(numbers(5));
          p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p);
          REQUIRE(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
          CHECK(is_near(p.D.host(), p.expected(bias.host())));
        }
  Product large(40, 40, 40);  // with a workspace
  REQUIRE(large.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  CHECK(large.found[0].workspaceSize > 0);
  CHECK(is_near(large.D.host(), large.expected()));
  CHECK(large.run(0, large.found[0].workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  large.space.p += 16;
  CHECK_FAULT("workspace aligned to 256", large.run());
  large.space.p -= 16;
}

TEST_CASE("cuBLASLt: epilogues") {
  Product p(8, 5, 6, CUBLAS_OP_T, CUBLAS_OP_N);
  Array<float> sums(5), aux(std::vector<float>(16 * 5, 7));
  p.epilogue(CUBLASLT_EPILOGUE_BGRADB, sums.p);
  REQUIRE(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  CHECK(is_near(p.D.host(), p.expected()));
  const auto b = p.B.host();
  std::vector<float> want(5, 0);
  for (size_t j = 0; j < 5; ++j)
    for (size_t i = 0; i < 6; ++i) want[j] += b[i + 6 * j];
  CHECK(is_near(sums.host(), want));
  Array<float> of_a(8);
  p.epilogue(CUBLASLT_EPILOGUE_BGRADA, of_a.p);
  REQUIRE(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  CHECK(is_near(p.D.host(), p.expected()));
  const auto a = p.A.host();  // (6, 8), transposed
  want.assign(8, 0);
  for (size_t j = 0; j < 8; ++j)
    for (size_t i = 0; i < 6; ++i) want[j] += a[i + 6 * j];
  CHECK(is_near(of_a.host(), want));

  Array<float> bias(numbers(8));
  p.epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.p);
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux.p));
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(16));
  REQUIRE(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  const auto before = p.expected(bias.host()), got = aux.host(), out = p.D.host();
  for (size_t j = 0; j < 5; ++j)
    for (size_t i = 0; i < 16; ++i) {
      if (i >= 8) {
        CHECK(got[i + 16 * j] == 7);
        continue;
      }
      const float x = before[i + 8 * j], gelu = 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
      CHECK(std::abs(got[i + 16 * j] - x) < 1e-4f);
      CHECK(std::abs(out[i + 8 * j] - gelu) < 1e-4f);
    }
}

TEST_CASE("cuBLASLt: planted leading dimensions, shapes, batches") {
  const auto with = [](auto&& plant) {
    Product p(5, 7, 4, CUBLAS_OP_N, CUBLAS_OP_T, 2);
    return fault_of([&] {
      plant(p);
      p.choose_and_run();
    });
  };
  const auto replace = [](cublasLtMatrixLayout_t& l, cublasLtMatrixLayout_t by) {
    cublasLtMatrixLayoutDestroy(l);
    l = by;
  };
  CHECK(with([](Product&) {}) == "");
  CHECK(contains(with([&](Product& p) { replace(p.a, p.layout(5, 4, 4)); }), "A: expected a leading dimension of 5"));
  CHECK(contains(with([&](Product& p) { replace(p.a, p.layout(5, 4, 40)); }), "touches the allocation"));
  CHECK(contains(with([&](Product& p) { replace(p.d, p.layout(5, 7, 9)); }), "touches the allocation"));
  CHECK(contains(with([&](Product& p) { replace(p.a, p.layout(4, 5, 5)); }), "op(A): expected 5 x 5, got 4 x 5"));
  CHECK(contains(with([&](Product& p) { p.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N); }), "op(B): expected 4 x 7"));
  CHECK(contains(with([&](Product& p) { replace(p.c, p.layout(7, 5, 7)); }), "C: expected 5 x 7, got 7 x 5"));
  CHECK(contains(with([&](Product& p) {
                   p.batch = 3;
                   replace(p.b, p.layout(7, 4, 7));
                 }),
                 "B: expected a batch of 2"));
  const auto stride = [](cublasLtMatrixLayout_t l, int64_t next) {
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &next, 8);
  };
  CHECK(with([&](Product& p) { stride(p.a, 0); }) == "");
  CHECK(contains(with([&](Product& p) { stride(p.d, 34); }), "overlap"));
  CHECK(contains(with([&](Product& p) { stride(p.d, 0); }), "overlap"));
  CHECK(contains(with([&](Product& p) { stride(p.b, 4000); }), "touches"));
  Product between(2, 7, 4, CUBLAS_OP_N, CUBLAS_OP_N, 2,
                  1);  // D's columns lie 4 apart, those of the second matrix between them
  stride(between.d, 2);
  REQUIRE(between.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  Product shifted(5, 7, 4, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1);  // a leading dimension that is only wrong
  replace(shifted.a, shifted.layout(5, 4, 5));
  REQUIRE(shifted.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  CHECK_FALSE(is_near(shifted.D.host(), shifted.expected()));
}

TEST_CASE("cuBLASLt: planted vectors and epilogues") {
  Array<float> bias(numbers(64)), aux(size_t(16 * 7));
  Product p(8, 7, 4);
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p + 1);
  CHECK_FAULT("the bias or its gradient: expected an address aligned to 16 bytes, got one to 4", p.choose());
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p);
  REQUIRE(p.choose() == CUBLAS_STATUS_SUCCESS);
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p + 2);
  CHECK_FAULT("expected an address aligned to 16 bytes", p.run());
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p + 4);
  CHECK_FAULT("chosen for addresses aligned to 256 bytes, got one to 16", p.run());
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p + 60);  // 4 of 8 elements are left
  CHECK_FAULT("touches the allocation", p.choose_and_run());
  p.epilogue(CUBLASLT_EPILOGUE_GELU_BIAS, bias.p);
  CHECK_FAULT("the algorithm was chosen for other descriptors", p.run());
  p.epilogue(CUBLASLT_EPILOGUE_GELU, bias.p);
  CHECK_FAULT("a bias is set that epilogue 32 does not look at", p.choose());
  p.epilogue(CUBLASLT_EPILOGUE_BIAS, nullptr);
  CHECK_FAULT("wants a pointer", p.choose());
  p.epilogue(CUBLASLT_EPILOGUE_RELU, nullptr);
  CHECK_FAULT("epilogue 2 is not one", p.choose());
  p.epilogue(CUBLASLT_EPILOGUE_GELU_AUX, nullptr);
  CHECK_FAULT("wants a pointer to the auxiliary matrix", p.choose());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux.p));
  for (const int64_t ld : {0, 4, 12}) {
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    CHECK_FAULT("the auxiliary matrix: expected a leading dimension of 8", p.choose());
  }
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(8));
  CHECK(p.choose_and_run() == CUBLAS_STATUS_SUCCESS);
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux.p + 1));
  CHECK_FAULT("the auxiliary matrix: expected an address aligned", p.choose());
  Product batch(8, 7, 4, CUBLAS_OP_N, CUBLAS_OP_N, 2);
  batch.epilogue(CUBLASLT_EPILOGUE_BGRADB, bias.p);
  CHECK_FAULT("for a batch of 2", batch.choose());
  Product type(8, 7, 4);
  type.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p), type.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_16F));
  CHECK_FAULT("a bias of D's type", type.choose());
  cublasLtMatmulDescDestroy(type.op);
  REQUIRE(cublasLtMatmulDescCreate(&type.op, CUBLAS_COMPUTE_64F, CUDA_R_64F) == CUBLAS_STATUS_SUCCESS);
  CHECK_FAULT("is not supported", type.choose());
  for (cublasLtMatrixLayout_t* l : {&type.a, &type.b, &type.c, &type.d}) {
    cublasLtMatrixLayoutDestroy(*l);
    REQUIRE(cublasLtMatrixLayoutCreate(l, CUDA_R_64F, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
  }
  CHECK(type.choose() == CUBLAS_STATUS_SUCCESS);
  type.epilogue(CUBLASLT_EPILOGUE_BIAS, bias.p);
  CHECK_FAULT("no epilogue is supported for CUDA_R_64F", type.choose());
  CHECK(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, "12345678", 8) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatrixLayoutSetAttribute(p.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, "12345678", 8) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK_FAULT("attribute 99", cublasLtMatmulDescSetAttribute(p.op, cublasLtMatmulDescAttributes_t(99), "1", 1));
}

namespace {
/// D (16 x 32, float32 or 16 bits) = A^T B of 8-bit floats, k = 16: set up as the library's page asks, each part open to be set wrong.
struct Float8Product {
  Product of{16, 32, 16, CUBLAS_OP_T, CUBLAS_OP_N};
  Array<uint8_t> a{std::vector<uint8_t>(256, 0x38)}, b{std::vector<uint8_t>(512, 0x40)};  // 1 and 2 in E4M3
  Array<float> scales{{0.5f, 0.25f}};
  Float8Product() {
    layout(of.a, CUDA_R_8F_E4M3, 16, 16, 16), layout(of.b, CUDA_R_8F_E4M3, 16, 32, 16);
    layout(of.c, CUDA_R_32F, 16, 32, 16), layout(of.d, CUDA_R_32F, 16, 32, 16);
    of.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scales.p));
    of.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scales.p + 1));
  }
  static void layout(cublasLtMatrixLayout_t& l, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld) {
    cublasLtMatrixLayoutDestroy(l);
    REQUIRE(cublasLtMatrixLayoutCreate(&l, type, rows, columns, ld) == CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t run() {
    if (const cublasStatus_t s = of.choose(); s != CUBLAS_STATUS_SUCCESS) return s;
    return cublasLtMatmul(of.handle, of.op, &of.alpha, a.p, of.a, b.p, of.b, &of.beta, of.D.p, of.c, of.D.p, of.d,
                          &of.found[0].algo, of.space.p, kSpace, nullptr);
  }
};
}  // namespace

TEST_CASE("cuBLASLt: products of 8-bit floats, and planted faults of them") {
  const auto with = [](auto&& plant) {
    Float8Product p;
    plant(p);
    return p.run();
  };
  {
    Float8Product p;
    REQUIRE(p.run() == CUBLAS_STATUS_SUCCESS);
    std::vector<float> d = p.of.D.host();
    d.resize(16 * 32);  // the rest is no part of the matrix
    CHECK(d == std::vector<float>(16 * 32, 4));
  }
  CHECK(with([](auto& p) { p.layout(p.of.b, CUDA_R_8F_E5M2, 16, 32, 16); }) == CUBLAS_STATUS_SUCCESS);
  CHECK(with([](auto& p) {
          p.layout(p.of.a, CUDA_R_8F_E5M2, 16, 16, 16), p.layout(p.of.b, CUDA_R_8F_E5M2, 16, 32, 16);
        }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](auto& p) { p.of.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](auto& p) { p.of.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(8)); }) ==
        CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](auto& p) { p.layout(p.of.a, CUDA_R_8F_E4M3, 8, 16, 8), p.layout(p.of.b, CUDA_R_8F_E4M3, 8, 32, 8); }) ==
        CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK_FAULT("expected a scale of A and of B",
              with([](auto& p) { p.of.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(nullptr)); }));
  const float host = 1;
  CHECK_FAULT("an address of the host",
              with([&](auto& p) { p.of.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(&host)); }));
  CHECK_FAULT("a bias of a result of 32 bits has 16",
              with([](auto& p) { p.of.epilogue(CUBLASLT_EPILOGUE_BIAS, p.of.C.p); }));
  CHECK_FAULT("is not one that this stand-in knows",
              with([](auto& p) { p.of.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU); }));
  CHECK_FAULT("alpha 1 and beta 0", with([](auto& p) { p.of.alpha = 2; }));
  CHECK_FAULT("expected one type", with([](auto& p) { p.layout(p.of.b, CUDA_R_16BF, 16, 32, 16); }));
  CHECK_FAULT("a matrix that is not of 8-bit floats", [] {
    Product p(8, 7, 4);
    p.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.C.p));
    p.choose();
  }());
}

TEST_CASE("cuBLASLt: algorithms belong to descriptors and alignments, and survive as text") {
  Product p(8, 7, 4), other(8, 7, 4, CUBLAS_OP_N, CUBLAS_OP_N, 1, 2);
  p.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(16));
  REQUIRE(p.choose() == CUBLAS_STATUS_SUCCESS);
  CHECK(p.count == 4);
  CHECK(p.found[3].state == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(p.run(1) == CUBLAS_STATUS_SUCCESS);
  CHECK(is_near(p.D.host(), p.expected()));
  CHECK(p.run(2) == CUBLAS_STATUS_NOT_SUPPORTED);  // one that says so only when it is run
  p.A.p += 1;
  CHECK_FAULT("A: the algorithm was chosen for addresses aligned to 16 bytes, got one to 4", p.run());
  p.A.p -= 1;
  std::swap(p.found[0], other.found[0]);
  CHECK_FAULT("chosen for other descriptors", other.run());
  CHECK_FAULT("expected an algorithm", p.run());

  cublasLtMatmulHeuristicResult_t result{};
  const auto check = [&](Product& of, const cublasLtMatmulAlgo_t& algo) {
    return cublasLtMatmulAlgoCheck(of.handle, of.op, of.a, of.b, of.c, of.d, &algo, &result);
  };
  cublasLtMatmulAlgo_t copy = other.found[0].algo;
  CHECK(check(p, copy) == CUBLAS_STATUS_SUCCESS);
  CHECK(check(other, copy) == CUBLAS_STATUS_INVALID_VALUE);
  copy.data[2] += 1;
  CHECK(check(p, copy) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(p.choose(0) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(p.choose(1) == CUBLAS_STATUS_SUCCESS);
  CHECK(p.count == 1);
  {
    const Variable refuse("TAPIR_EMULATED_BLAS", "refuse-epilogues");
    CHECK(p.choose() == CUBLAS_STATUS_SUCCESS);
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
    CHECK(p.choose() == CUBLAS_STATUS_NOT_SUPPORTED);
    const Variable all("TAPIR_EMULATED_BLAS", "refuse");
    CHECK(other.choose() == CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

TEST_CASE("cuBLASLt: devices, streams, captures, host memory, operands that overlap") {
  Product p(8, 7, 4);
  REQUIRE(p.choose() == CUBLAS_STATUS_SUCCESS);
  {
    NewStream here;
    CHECK(p.run(0, kSpace, here) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cudaStreamSynchronize(here) == cudaSuccess);
    p.D.set(std::vector<float>(p.D.n, 7));
    REQUIRE(cudaStreamBeginCapture(here, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(p.run(0, kSpace, here) == CUBLAS_STATUS_SUCCESS);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaStreamEndCapture(here, &graph) == cudaSuccess);
    CHECK(p.D.host() == std::vector<float>(p.D.n, 7));
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(exec, here) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(here) == cudaSuccess);
    CHECK(is_near(p.D.host(), p.expected()));
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  }
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  {
    NewStream there;
    CHECK_FAULT("the handle is of device 0", p.run());
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK_FAULT("expected a stream of device 0", p.run(0, kSpace, there));
  }
  float* const real = p.A.p;
  std::vector<float> host(size_t(1024));
  p.A.p = reinterpret_cast<float*>((uintptr_t(host.data()) + 255) / 256 * 256);
  CHECK_FAULT("an address of the host", p.run());
  p.A.p = p.D.p;
  CHECK_FAULT("D lies on A or B", p.run());
  p.A.p = real;
  CHECK(cublasLtMatmul(nullptr, p.op, &p.alpha, p.A.p, p.a, p.B.p, p.b, &p.beta, p.C.p, p.c, p.D.p, p.d,
                       &p.found[0].algo, nullptr, 0, nullptr) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(cublasLtMatrixLayoutDestroy(p.a) == CUBLAS_STATUS_SUCCESS);
  CHECK_FAULT("expected a live descriptor", p.run());
  p.a = nullptr;
}

namespace {
struct Solver {
  cusolverDnHandle_t h = nullptr;
  cublasHandle_t blas = nullptr;
  Solver() {
    REQUIRE(cusolverDnCreate(&h) == CUSOLVER_STATUS_SUCCESS);
    REQUIRE(cublasCreate(&blas) == CUBLAS_STATUS_SUCCESS);
  }
  ~Solver() { cusolverDnDestroy(h), cublasDestroy(blas); }
};
using Doubles = std::vector<double>;
bool is_near(const Doubles& x, const Doubles& y) {
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= 1e-12)) return false;
  return x.size() == y.size();
}
}  // namespace

TEST_CASE("cuSOLVER: factors in place, by LAPACK's rules") {
  const Solver s;
  int size = 0;
  Array<int> info(2), pivots(3);
  {
    Array<double> a(Doubles{4, 2, -1, 99, 5, -1}),
        space(64);  // 2 x 2, leading dimension 3; the upper triangle is not looked at
    REQUIRE(cusolverDnDpotrf_bufferSize(s.h, CUBLAS_FILL_MODE_LOWER, 2, a.p, 3, &size) == CUSOLVER_STATUS_SUCCESS);
    CHECK(cusolverDnDpotrf(s.h, CUBLAS_FILL_MODE_LOWER, 2, a.p, 3, space.p, size, info.p) == CUSOLVER_STATUS_SUCCESS);
    CHECK(is_near(a.host(), {2, 1, -1, 99, 2, -1}));
    CHECK(info.host()[0] == 0);
    CHECK(std::isnan(space.host()[0]));
    CHECK_FAULT("as its _bufferSize says",
                cusolverDnDpotrf(s.h, CUBLAS_FILL_MODE_LOWER, 2, a.p, 3, space.p, size - 1, info.p));
    CHECK(cusolverDnDpotrf(s.h, CUBLAS_FILL_MODE_LOWER, 2, a.p, 1, space.p, size, info.p) ==
          CUSOLVER_STATUS_INVALID_VALUE);
    CHECK_FAULT("touches the allocation",
                cusolverDnDpotrf(s.h, CUBLAS_FILL_MODE_LOWER, 2, a.p, 5, space.p, size, info.p));
  }
  {
    Array<double> a(Doubles{1, 3, 2, 4, 4, 2}), space(64);  // columns (1, 3, 2) and (4, 4, 2)
    REQUIRE(cusolverDnDgetrf_bufferSize(s.h, 3, 2, a.p, 3, &size) == CUSOLVER_STATUS_SUCCESS);
    CHECK(cusolverDnDgetrf(s.h, 3, 2, a.p, 3, space.p, pivots.p, info.p) == CUSOLVER_STATUS_SUCCESS);
    CHECK(is_near(a.host(), {3, 1. / 3, 2. / 3, 4, 8. / 3, -0.25}));
    CHECK(pivots.host()[0] == 2);  // counted from 1
    CHECK(pivots.host()[1] == 2);
    Array<double> none(1);
    CHECK_FAULT("touches the allocation", cusolverDnDgetrf(s.h, 3, 2, a.p, 3, none.p, pivots.p, info.p));
  }
  Array<double> x(Doubles{1, 2, 2, 3, 0, 1}), tau(2), space(64);  // 3 x 2
  REQUIRE(cusolverDnDgeqrf_bufferSize(s.h, 3, 2, x.p, 3, &size) == CUSOLVER_STATUS_SUCCESS);
  CHECK(cusolverDnDgeqrf(s.h, 3, 2, x.p, 3, tau.p, space.p, size, info.p) == CUSOLVER_STATUS_SUCCESS);
  const auto r = x.host();
  CHECK(std::abs(r[0] + 3) < 1e-12);
  REQUIRE(cusolverDnDorgqr_bufferSize(s.h, 3, 2, 2, x.p, 3, tau.p, &size) == CUSOLVER_STATUS_SUCCESS);
  CHECK(cusolverDnDorgqr(s.h, 3, 2, 2, x.p, 3, tau.p, space.p, size, info.p) == CUSOLVER_STATUS_SUCCESS);
  const auto q = x.host();
  CHECK(is_near(Doubles{q[0] * r[0], q[1] * r[0], q[2] * r[0], q[0] * r[3] + q[3] * r[4], q[1] * r[3] + q[4] * r[4],
                        q[2] * r[3] + q[5] * r[4]},
                {1, 2, 2, 3, 0, 1}));
  CHECK(cusolverDnDorgqr(s.h, 2, 3, 2, x.p, 3, tau.p, space.p, 64, info.p) == CUSOLVER_STATUS_INVALID_VALUE);
}

TEST_CASE("cuSOLVER: eigenvalues, singular values") {
  const Solver s;
  int size = 0;
  Array<double> a(Doubles{2, 99, 1, 2}), w(2), space(128), rest(2), u(9), vt(4);
  Array<int> info(1);
  REQUIRE(cusolverDnDsyevd_bufferSize(s.h, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, 2, a.p, 2, w.p, &size) ==
          CUSOLVER_STATUS_SUCCESS);
  CHECK(cusolverDnDsyevd(s.h, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, 2, a.p, 2, w.p, space.p, size,
                         info.p) == CUSOLVER_STATUS_SUCCESS);
  CHECK(is_near(w.host(), {1, 3}));
  const auto v = a.host();
  CHECK(std::abs(v[0] + v[1]) < 1e-12);  // (1, -1) and (1, 1), each a column
  CHECK(std::abs(v[2] - v[3]) < 1e-12);
  CHECK(cusolverDnDsyevd(s.h, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_UPPER, 2, a.p, 2, w.p, space.p, size,
                         info.p) == CUSOLVER_STATUS_SUCCESS);
  CHECK(std::isnan(a.host()[0]));  // lost

  Array<double> x(Doubles{3, 0, 0, 0, 0, 4});  // 3 x 2: (3, 0, 0), (0, 0, 4)
  REQUIRE(cusolverDnDgesvd_bufferSize(s.h, 3, 2, &size) == CUSOLVER_STATUS_SUCCESS);
  CHECK(cusolverDnDgesvd(s.h, 'A', 'A', 3, 2, x.p, 3, w.p, u.p, 3, vt.p, 2, space.p, size, rest.p, info.p) ==
        CUSOLVER_STATUS_SUCCESS);
  CHECK(is_near(w.host(), {4, 3}));
  CHECK(std::isnan(x.host()[0]));
  const auto left = u.host(), right = vt.host();
  CHECK(std::abs(left[2] * right[2] - 1) < 1e-12);  // the larger one: row 3 of u's first column, v^T's (1, 2)
  CHECK(cusolverDnDgesvd_bufferSize(s.h, 2, 3, &size) == CUSOLVER_STATUS_INVALID_VALUE);
  CHECK(cusolverDnDgesvd(s.h, 'N', 'N', 2, 3, x.p, 2, w.p, nullptr, 2, nullptr, 3, space.p, 128, rest.p, info.p) ==
        CUSOLVER_STATUS_INVALID_VALUE);
  CHECK(cusolverDnDgesvd(s.h, 'N', 'N', 3, 2, x.p, 3, w.p, nullptr, 1, nullptr, 2, space.p, size, rest.p, info.p) ==
        CUSOLVER_STATUS_INVALID_VALUE);  // the leading dimension counts though there is no u
}

TEST_CASE("cuBLAS, cuSOLVER: batches, whose addresses lie in device memory") {
  const Solver s;
  Array<double> a(Doubles{4, 2, 2, 5, 0, 1, 1, 0}), b(Doubles{2, 9, 1, 3});
  const std::vector<double*> at{a.p, a.p + 4}, right{b.p, b.p + 2};
  Array<double*> list(at), rights(right);
  Array<int> pivots(4), info(2);
  CHECK(cusolverDnDpotrfBatched(s.h, CUBLAS_FILL_MODE_UPPER, 2, list.p, 2, info.p, 2) == CUSOLVER_STATUS_SUCCESS);
  const auto factor = a.host();
  CHECK(factor[0] == 2);
  CHECK(std::isnan(factor[1]));  // the other triangle is work space
  CHECK(factor[2] == 1);
  CHECK(factor[3] == 2);
  CHECK(info.host() == std::vector<int>{0, 1});  // the first minor of the second matrix is 0
  const double two = 2;
  CHECK(cublasDtrsmBatched(s.blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, 2, 1,
                           &two, list.p, 2, rights.p, 2, 1) == CUBLAS_STATUS_SUCCESS);
  CHECK(is_near(b.host(), {2, 8, 1, 3}));
  a.set({0, 1, 1, 0, 1, 2, 2, 4});
  CHECK(cublasDgetrfBatched(s.blas, 2, list.p, 2, pivots.p, info.p, 2) == CUBLAS_STATUS_SUCCESS);
  CHECK(pivots.host() == std::vector<int>{2, 2, 2, 2});
  CHECK(info.host() == std::vector<int>{0, 2});
  CHECK(is_near(a.host(), {1, 0, 0, 1, 2, 0.5, 4, 0}));
  CHECK_FAULT("an address of the host", cublasDgetrfBatched(s.blas, 2, at.data(), 2, pivots.p, info.p, 2));
  CHECK_FAULT("touches", cublasDgetrfBatched(s.blas, 2, list.p, 2, pivots.p, info.p, 3));
  CHECK(cublasDgetrfBatched(s.blas, 2, list.p, 1, pivots.p, info.p, 2) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK_FAULT("of another device", cublasDgetrfBatched(s.blas, 2, list.p, 2, pivots.p, info.p, 2));
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  NewStream stream;
  REQUIRE(cublasSetStream(s.blas, stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasDgetrfBatched(s.blas, 2, list.p, 2, pivots.p, info.p, 2) == CUBLAS_STATUS_SUCCESS);
  NewStream other;
  CHECK_FAULT("no event or synchronization orders the two",
              cudaMemcpyAsync(pivots.p, info.p, 8, cudaMemcpyDeviceToDevice, other));
}
