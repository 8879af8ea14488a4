// What a wrong library is made of here: functions that take its place.
#include "../../cpu_kernels/self_check.h"

#include <dlfcn.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../stderr_of.h"
#include "arrays.h"
#include "catch.h"

using namespace tapir_tests;
using namespace tapir::cpu::dnn;

namespace {

std::atomic<int> calls{0};

/// A product by its definition, with a matrix's column stride as `column` gives it.
template <class Column> bool multiply(const Gemm& g, Column column, int64_t m) {
  ++calls;
  for (int64_t at = 0; at < g.batch; ++at)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        const int64_t to = at * g.out.batch + i * g.out.row + j * g.out.column;
        double sum = g.bias ? double(g.bias[j]) : 0;
        for (int64_t k = 0; k < g.k; ++k)
          sum += read(g.dtype, g.a.data, at * g.a.batch + i * g.a.row + k * column(g)) *
                 read(g.dtype, g.b.data, at * g.b.batch + k * g.b.row + j * g.b.column);
        if (g.beta != 0) sum += g.beta * read(g.dtype, g.out.data, to);
        write(g.dtype, g.out.data, to, sum);
      }
  return true;
}
bool right(Context&, const Gemm& g) {
  return multiply(
      g, [](const Gemm& p) { return p.a.column; }, g.m);
}
/// As oneDNN 3.7.2: one row is read as if its elements were neighbours.
bool wrong_row(Context&, const Gemm& g) {
  return multiply(
      g, [](const Gemm& p) { return p.m == 1 ? 1 : p.a.column; }, g.m);
}
/// Right, and writes one element too many.
bool writes_beside(Context& ctx, const Gemm& g) {
  right(ctx, g);
  write(g.dtype, g.out.data, g.batch * g.m * g.n * 7, 5);
  return true;
}
bool refuses(Context&, const Gemm&) { return ++calls, false; }

struct Small {  // a 2 x 2 product
  Array a{kFloat32, {2, 2}}, b{kFloat32, {2, 2}}, out{kFloat32, {2, 2}};
  Gemm gemm() {
    Gemm g;
    g.m = g.n = g.k = 2;
    g.a = {a.view.data, 0, 2, 1}, g.b = {b.view.data, 0, 2, 1}, g.out = {out.view.data, 0, 2, 1};
    a.random(1), b.random(2), out.fill(77);
    return g;
  }
};

}  // namespace

TEST_CASE("review 1: a library that is wrong about strided rows is not used, and says so once") {
  for (const DType t : {kFloat32, kBFloat16})
    for (const CheckedProduct::Product product : {wrong_row, writes_beside}) {
      CheckedProduct checked("Lib 1.2", t, product);
      Small small;
      const Gemm g = small.gemm();
      const std::string said = stderr_of([&] {
        for (int i = 0; i < 3; ++i) CHECK(!checked(cpu_context(), g));
      });
      CHECK(small.out(0, 0) == 77);  // nothing was computed
      const std::string head = "tapir: warning: Lib 1.2 multiplies " + std::string(name_of(t)) + " matrices wrongly";
      CHECK(said.starts_with(head));
      CHECK(said.find("tapir: warning", 1) == std::string::npos);
      if (product == wrong_row) CHECK(said.find("one row whose elements lie apart") != std::string::npos);
    }
}

TEST_CASE("review 1: a library that is right is used without a word, and checked once") {
  for (const DType t : {kFloat32, kBFloat16}) {
    CheckedProduct checked("Lib 1.2", t, right);
    Small small;
    const Gemm g = small.gemm();
    CHECK(stderr_of([&] { CHECK(checked(cpu_context(), g)); }).empty());
    CHECK(small.out(0, 0) == small.a(0, 0) * small.b(0, 0) + small.a(0, 1) * small.b(1, 0));
    const int before = calls;
    CHECK(checked(cpu_context(), g));
    CHECK(calls == before + 1);
  }
  CheckedProduct refused("Lib 1.2", kFloat32, refuses);  // what it does not compute, it is not wrong about
  Small small;
  CHECK(stderr_of([&] { CHECK(!refused(cpu_context(), small.gemm())); }).empty());
}

TEST_CASE("review 1: threads that come first at once are answered alike, after one check") {
  for (int round = 0; round < 20; ++round) {
    CheckedProduct checked("Lib 1.2", kFloat32, wrong_row);
    std::atomic<int> yes{0};
    calls = 0;
    const std::string said = stderr_of([&] {
      std::vector<std::thread> threads;
      for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
          Small small;
          const Gemm g = small.gemm();
          yes += checked(cpu_context(), g);
        });
      for (std::thread& t : threads) t.join();
    });
    CHECK(yes == 0);
    CHECK(calls == 1);  // the first problem is the one it is wrong about
    CHECK(said.find("tapir: warning", 1) == std::string::npos);
  }
}

TEST_CASE("review 1: the library that is built in is right, and used", "[isa]") {
  const bool built_in = dlsym(RTLD_DEFAULT, "dnnl_primitive_execute") != nullptr;
  for (const DType t : {kFloat32, kBFloat16}) {
    if (t == kBFloat16 && !has_bfloat16()) continue;
    Small small;
    Gemm g = small.gemm();
    Array a(t, {2, 2}), b(t, {2, 2}), out(t, {2, 2});
    g.dtype = t, g.a.data = a.view.data, g.b.data = b.view.data, g.out.data = out.view.data;
    CHECK(gemm(cpu_context(), g) == built_in);
  }
}
