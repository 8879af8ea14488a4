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

void print_differences(const std::vector<const Case*>& cases, const Settings& s) {
  constexpr double kMissing = -2;  // it throws on the device alone
  std::map<std::string, std::vector<double>> rows;
  std::map<std::string, std::string> errors;
  for (const Case* c : cases) {
    std::vector<double>& row = rows.try_emplace(c->op, size_t(kNumDTypes), -1.0).first->second;
    for (int t = 0; t < kNumDTypes; ++t) {
      if (!contains(c->dtypes, DType(t))) continue;
      try {
        row[size_t(t)] = row[size_t(t)] == kMissing ? kMissing : std::max(row[size_t(t)], difference(*c, DType(t), s.device));
      } catch (const std::exception& e) {
        row[size_t(t)] = kMissing;
        errors.try_emplace(c->op, e.what());
      }
    }
  }
  std::printf("%-28s", "op");
  for (int t = 0; t < kNumDTypes; ++t) std::printf("%9.*s", int(name_of(DType(t)).size()), name_of(DType(t)).data());
  std::printf("\n");
  int compared = 0, equal = 0, large = 0;
  for (const auto& [op, row] : rows) {
    std::printf("%-28s", op.c_str());
    for (const double d : row) {
      if (d == kMissing) std::printf("%9s", "error");
      else if (d < 0) std::printf("%9s", "");
      else std::printf("%9.3g", d);
      compared += d >= 0 || d == kMissing, equal += d == 0, large += d == kMissing || d > 16;
    }
    std::printf("%s%s\n", errors.contains(op) ? "  " : "", errors.contains(op) ? errors[op].substr(0, 100).c_str() : "");
  }
  std::printf("%d combinations of op and dtype compared, %d bitwise equal, %d above 16 or with an error\n", compared, equal, large);
}

}  // namespace op_cases
