// Tables: which op takes which dtype on the device, and how fast it is.
#include <chrono>
#include <cstdio>
#include <map>

#include "modes.h"
#include "place.h"

namespace op_cases {

static List inputs_of(const Case& c, const std::vector<Shape>& shapes, DType dtype, Device device) {
  List x;
  for (size_t k = 0; k < shapes.size(); ++k)
    x.push_back(place(fill(c.values_of(k), shapes[k], dtype, k), dtype_of_input(c.values_of(k), dtype), Layout::Contiguous, device).view);
  return x;
}

namespace {
struct Support {
  DTypes taken = 0, refused = 0, checked = 0;  // by some line of the op
};
}  // namespace

/// x: taken; o: by some of the op's lines; ?: taken, but no line says so, and then no value is checked; -: refused.
static void print_table(const std::map<std::string, Support>& table, Device device) {
  std::printf("\nsupport on %-10s", device.str().c_str());
  for (int i = 0; i < kNumDTypes; ++i) std::printf("%-9s", std::string(name_of(DType(i))).c_str());
  for (const auto& [op, s] : table) {
    std::printf("\n%-21s", op.c_str());
    for (int i = 0; i < kNumDTypes; ++i) {
      const bool taken = contains(s.taken, DType(i)), refused = contains(s.refused, DType(i));
      std::printf("%-9s", !taken ? "-" : !contains(s.checked, DType(i)) ? "?" : refused ? "o" : "x");
    }
  }
  std::printf("\n\n");
}

void print_support(const std::vector<const Case*>& cases, const Settings& s, Report& report) {
  std::map<std::string, Support> table;
  for (const Case* c : cases)
    for (int i = 0; i < kNumDTypes; ++i) {
      const DType dtype = DType(i);
      const std::string problem = outcome([&]() -> std::string {
        const List x = inputs_of(*c, c->shapes[0], dtype, s.device);
        Support& row = table[c->op];
        row.checked |= c->dtypes;
        try {
          manual_seed(7);
          c->call(x);
          row.taken |= 1u << i;
        } catch (const ValueError& e) {
          row.refused |= 1u << i;
          if (contains(c->dtypes, dtype)) return e.what();
        }
        return "";
      });
      report.add(*c, "support of " + std::string(name_of(dtype)), problem);
    }
  for (const auto& [op, row] : table)
    for (int i = 0; i < kNumDTypes; ++i)
      if (contains(row.taken & ~row.checked, DType(i))) report.skip();
  print_table(table, s.device);
}

void print_perf(const Case& c, const Settings& s) {
  using Clock = std::chrono::steady_clock;
  if (c.perf_shapes.empty() || !contains(c.dtypes, s.perf_dtype)) return;
  NoGrad guard;
  const List x = inputs_of(c, c.perf_shapes, s.perf_dtype, s.device);
  double best = 1e30, total = 0;
  List y;
  for (int n = 0; n < 3 || total < 0.2; ++n) {
    const auto start = Clock::now();
    y = c.call(x);
    if (!s.device.is_cpu() && y[0].numel()) y[0].flatten()[0].item();  // waits for the device
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    total += seconds;
    if (n > 0) best = std::min(best, seconds);
  }
  double bytes = 0;
  for (const List* list : {&x, static_cast<const List*>(&y)})
    for (const Tensor& t : *list) bytes += double(t.numel() * size_of(t.dtype()));
  std::printf("%-14s %-56s %-30s %-9s %10.4f ms %8.2f GB/s\n", c.op.c_str(), c.text.c_str(), text_of(c.perf_shapes).c_str(),
              std::string(name_of(s.perf_dtype)).c_str(), best * 1e3, bytes / best / 1e9);
}

}  // namespace op_cases
