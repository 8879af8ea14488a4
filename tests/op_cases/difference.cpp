// The table of differences between the CPU and a device: for every op and dtype the largest one over its lines, on contiguous inputs, in
// units of the dtype's last place at |value| + the mean magnitude. Integers and bool: the largest difference itself.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "modes.h"
#include "place.h"

namespace op_cases {

static double last_place(DType t) { return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : t == kBFloat16 ? 0x1p-7 : 0; }

static double difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return INFINITY;
  const Array x = read(a), y = read(b);
  double sum = 0, worst = 0;
  for (const double v : x.v) sum += std::isfinite(v) ? std::abs(v) : 0;
  const double mean = x.v.empty() ? 0 : sum / double(x.v.size());
  for (size_t i = 0; i < x.v.size(); ++i) {
    if (x.v[i] == y.v[i] || (std::isnan(x.v[i]) && std::isnan(y.v[i]))) continue;
    const double gap = std::abs(x.v[i] - y.v[i]), unit = last_place(a.dtype()) * (std::abs(x.v[i]) + mean);
    worst = std::max(worst, std::isfinite(gap) ? (unit > 0 ? gap / unit : gap) : INFINITY);
  }
  return worst;
}

/// Of one line and dtype, over its sets of shapes; -1: the CPU does not take the dtype.
static double difference(const Case& c, DType dtype, Device device) {
  double worst = -1;
  for (const std::vector<Shape>& shapes : c.shapes) {
    List here, there;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const Array values = fill(c.values_of(k), shapes[k], dtype, k);
      const DType t = dtype_of_input(c.values_of(k), dtype);
      here.push_back(place(values, t, Layout::Contiguous, kCPU).view);
      there.push_back(place(values, t, Layout::Contiguous, device).view);
    }
    List wanted;
    try {
      manual_seed(7);
      wanted = c.call(here);
    } catch (const std::exception&) {
      continue;
    }
    manual_seed(7);
    const List got = c.call(there);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i].defined()) worst = std::max(worst, difference(wanted[i], got.at(i)));
  }
  return worst;
}

namespace {
constexpr double kMissing = -2;  // it throws on the device alone

struct Row {
  std::vector<double> worst = std::vector<double>(size_t(kNumDTypes), -1.0);
  std::string error;
  int lines = 0;  // that are still to come
};

struct Totals {
  int compared = 0, equal = 0, large = 0;
};

void print_row(const std::string& op, const Row& row, Totals& totals) {
  std::printf("%-28s", op.c_str());
  for (const double d : row.worst) {
    if (d == kMissing) std::printf("%9s", "error");
    else if (d < 0) std::printf("%9s", "");
    else std::printf("%9.3g", d);
    totals.compared += d >= 0 || d == kMissing, totals.equal += d == 0, totals.large += d == kMissing || d > 16;
  }
  std::printf("%s%s\n", row.error.empty() ? "" : "  ", row.error.substr(0, 100).c_str());
}

void compare(const Case& c, Row& row, Device device, Report& report) {
  for (int t = 0; t < kNumDTypes; ++t) {
    if (!contains(c.dtypes, DType(t))) continue;
    double& worst = row.worst[size_t(t)];
    report.at(c, std::string(name_of(DType(t))));
    const std::string text = outcome([&] { return worst = worst == kMissing ? kMissing : std::max(worst, difference(c, DType(t), device)), std::string(); });
    if (!text.empty()) worst = kMissing, row.error = row.error.empty() ? text : row.error;
    report.check_device(text);
  }
}
}  // namespace

/// A row is printed as soon as it is whole.
void print_differences(const std::vector<const Case*>& cases, const Settings& s, Report& report) {
  std::map<std::string, Row> rows;
  Totals totals;
  for (const Case* c : cases) ++rows[c->op].lines;
  std::printf("%-28s", "op");
  for (int t = 0; t < kNumDTypes; ++t) std::printf("%9.*s", int(name_of(DType(t)).size()), name_of(DType(t)).data());
  std::printf("\n");
  for (const Case* c : cases) {
    Row& row = rows[c->op];
    compare(*c, row, s.device, report);
    if (--row.lines == 0) print_row(c->op, row, totals);
  }
  std::printf("%d combinations of op and dtype compared, %d bitwise equal, %d above 16 or with an error\n", totals.compared, totals.equal, totals.large);
}

}  // namespace op_cases
