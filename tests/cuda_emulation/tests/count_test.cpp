// What TAPIR_EMULATED_COUNT counts, against counts by hand.
#include <dlfcn.h>
#include <tapir/tapir.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "../../catch.h"

using namespace tapir;

namespace {

struct Line {
  std::string text;
  double operator[](const std::string& key) const {
    const size_t at = text.find("\"" + key + "\": ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + key.size() + 4);
  }
  bool has(const std::string& word) const { return text.find(word) != std::string::npos; }
  double moved() const { return (*this)["memory_read"] + (*this)["memory_written"]; }
};
std::vector<Line> all_lines() {
  cuda::synchronize();
  std::vector<Line> lines;
  std::ifstream file(std::getenv("TAPIR_EMULATED_COUNT"));
  for (std::string text; std::getline(file, text);) lines.push_back({text});
  return lines;
}
/// What is queued by run(), without waits.
template <class F> std::vector<Line> lines_of(F&& run) {
  const size_t before = all_lines().size();
  run();
  std::vector<Line> lines = all_lines();
  lines.erase(lines.begin(), lines.begin() + long(before));
  std::erase_if(lines, [](const Line& l) { return l.has("\"wait\""); });
  return lines;
}
template <class F> Line line_of(F&& run) {
  const std::vector<Line> lines = lines_of(std::forward<F>(run));
  for (const Line& l : lines) UNSCOPED_INFO(l.text);
  REQUIRE(lines.size() == 1);
  return lines[0];
}
Tensor matrix(int64_t rows, int64_t columns) { return zeros({rows, columns}, {.device = kCUDA}); }

/// A function of counted.cu, in the plugin.
template <class F> F* counted(const char* name) {
  void* const plugin = dlopen(std::getenv("TAPIR_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(plugin != nullptr);
  return reinterpret_cast<F*>(dlsym(plugin, name));
}

}  // namespace

TEST_CASE("counts: an addition reads two operands and writes one, in whole sectors") {
  for (const int64_t n :
       {int64_t(1000), int64_t(1) << 16, int64_t(1) << 24}) {  // of the last one, a sample of blocks runs
    const Tensor a = matrix(1, n), b = matrix(1, n);
    const Line l = line_of([&] { add(a, b); });
    INFO(l.text);
    CHECK(l["read"] == 8.0 * double(n));
    CHECK(l["written"] == 4.0 * double(n));
    CHECK(l["sectors"] == 3.0 * double(n) / 8);
    CHECK(l["memory_read"] == l["read"]);
    CHECK(l["memory_written"] == l["written"]);
    CHECK(l["shared"] == 0);
    CHECK(l["sampled"] == (n <= 1 << 16 ? l["blocks"] : 32));
  }
}

TEST_CASE("counts: a copy, contiguous and transposed") {
  const int64_t rows = 96, columns = 64, n = rows * columns;
  Tensor x = matrix(rows, columns), y = matrix(rows, columns), z = matrix(columns, rows);
  const Line flat = line_of([&] { y.copy_(x); }), turned = line_of([&] { z.copy_(x.t()); });
  for (const Line& l : {flat, turned}) {
    INFO(l.text);
    CHECK(l["read"] == 4.0 * n);
    CHECK(l["written"] == 4.0 * n);
    CHECK(l["sectors"] == 2.0 * n / 8);
    CHECK(l.moved() == 8.0 * n);
  }
  CHECK(flat["shared"] == 0);
  CHECK(turned["shared"] == 2.0 * n / 32);  // into a tile and out of it, no two lanes in one bank
}

TEST_CASE("counts: layer_norm reads rows once, weight and bias in each row but from memory once") {
  const int64_t rows = 32, width = 768, n = rows * width;
  const Tensor x = matrix(rows, width), weight = ones({width}, {.device = kCUDA}),
               bias = zeros({width}, {.device = kCUDA});
  const Line l = line_of([&] { layer_norm(x, {width}, weight, bias); });
  INFO(l.text);
  CHECK(l["read"] == 4.0 * (n + 2 * n));
  CHECK(l["memory_read"] == 4.0 * (n + 2 * width));
  CHECK(l["written"] - 4.0 * n <= 8.0 * rows);  // mean and rstd
  CHECK(l["written"] >= 4.0 * n);
  CHECK(l["memory_written"] - 4.0 * n <= 8.0 * rows);
}

TEST_CASE("counts: a product is one call of the library, with its operations and each operand once") {
  const int64_t m = 64, k = 32, n = 48;
  const Tensor a = matrix(m, k), b = matrix(k, n);
  const Line l = line_of([&] { matmul(a, b); });
  INFO(l.text);
  CHECK(l.has("\"library\""));
  CHECK(l["operations"] == 2.0 * m * n * k);
  CHECK(l["read"] == 4.0 * (m * k + k * n));
  CHECK(l["written"] == 4.0 * m * n);
}

TEST_CASE("counts: a kernel that reads an operand twice, a gather, banks, a graph") {
  using Add = int(const float*, const float*, float*, int, bool);
  const int n = 4096;
  Tensor a = matrix(8, n), b = matrix(1, n), y = matrix(1, n);
  const float *pa = a.data<float>(), *pb = b.data<float>();
  float* const py = y.data<float>();
  const Line once = line_of([&] { counted<Add>("counted_add")(pa, pb, py, n, false); });
  const Line twice = line_of([&] { counted<Add>("counted_add")(pa, pb, py, n, true); });
  CHECK(once["read"] == 8.0 * n);
  CHECK(once["sectors"] == 3.0 * n / 8);
  CHECK(twice["read"] == 12.0 * n);
  CHECK(twice["sectors"] == 4.0 * n / 8);
  CHECK(twice["memory_read"] == 8.0 * n);  // the second time from the cache
  for (const int step : {2, 8}) {
    const Line l = line_of([&] { counted<int(const float*, float*, int, int)>("counted_gather")(pa, py, n, step); });
    CHECK(l["read"] == 4.0 * n);
    CHECK(l["memory_read"] == 4.0 * n * step);
    CHECK(l["sectors"] == n * step / 8.0 + n / 8.0);
  }
  for (const int step : {1, 2, 32}) {
    const Line l = line_of([&] { counted<int(float*, int)>("counted_banks")(py, step); });
    CHECK(l["shared"] == 2.0 * step);
  }
  const std::vector<Line> graph =
      lines_of([&] { counted<int(const float*, const float*, float*, int)>("counted_graph")(pa, pb, py, n); });
  REQUIRE(graph.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    CHECK(graph[i].has("\"kind\": \"graph\"") == (i % 3 == 0));
    CHECK(graph[i].has("\"graph\": true") == (i % 3 != 0));
    CHECK(graph[i]["read"] == (i % 3 ? 8.0 * n : 0.0));
  }
}
