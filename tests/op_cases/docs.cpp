// What docs/ops.md says (tools/ops_page writes it): a line of JSON for each op, and the kernel calls that TAPIR_LOG=ops prints behind it.
#include <tapir/ops/autocast.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "modes.h"
#include "place.h"

namespace op_cases {

static List inputs_of(const Case& c, DType dtype, Device device) {
  List x;
  for (size_t k = 0; k < c.shapes[0].size(); ++k) {
    const DType own = dtype_of_input(c.values_of(k), dtype);
    x.push_back(place(fill(c.values_of(k), c.shapes[0][k], dtype, k), own, Layout::Contiguous, device).view);
  }
  return x;
}

/// Whether the op takes the dtype.
static bool takes(const Case& c, DType dtype, Device device) {
  try {
    c.call(inputs_of(c, dtype, device));
    return true;
  } catch (const ValueError&) {
    return false;
  }
}

/// Forward, and backward where finite differences check it, once, for the log; whether a gradient was recorded.
static bool run_both(const Case& c, Device device, bool wants_grad = true) {
  List x = inputs_of(c, kFloat64, device);
  for (size_t k = 0; k < x.size(); ++k)
    if (wants_grad && is_floating(x[k].dtype()) && !c.values_of(k).constant) x[k].requires_grad_();
  List results;
  try {
    results = c.call(x);
  } catch (const ValueError&) {  // what writes to its input takes no leaf
    if (c.differentiable || !wants_grad) throw;
    return run_both(c, device, false);
  }
  bool any = false;
  for (const Tensor& y : results) {
    if (!y.requires_grad()) continue;
    any = true;
    if (!c.differentiable) continue;
    const std::vector<double> ones(size_t(y.numel()), 1);  // made without a kernel
    y.backward(tensor(std::span(ones), y.shape()).to(y.dtype()), true);
  }
  return any;
}

void print_docs(const std::vector<const Case*>& cases, const Settings& s) {
  std::map<std::string, std::vector<const Case*>> ops;
  for (const Case* c : cases) ops[c->op].push_back(c);
  for (auto& [op, lines] : ops) {
    bool second = true;
    std::string twin;
    std::vector<std::string> all, some;
    for (int i = 0; i < kNumDTypes; ++i) {
      int taken = 0;
      for (const Case* c : lines) taken += takes(*c, DType(i), s.device);
      if (taken) (taken == int(lines.size()) ? all : some).push_back(std::string(name_of(DType(i))));
    }
    std::printf("calls of %s\n", op.c_str());
    bool any = false, unchecked = false;
    for (const Case* c : lines) {
      manual_seed(7);
      if (contains(c->dtypes, kFloat64)) (c->differentiable ? any : unchecked) |= run_both(*c, s.device);
      second &= c->second_order || !c->differentiable;
      if (c->twin_call) twin = c->twin_name;
    }
    const CastRule rule = cast_rule(op);
    const nlohmann::json line = {{"cpu_cast", int(rule.cpu)},
                                 {"cuda_cast", int(rule.cuda)},
                                 {"op", op},
                                 {"family", lines[0]->family},
                                 {"dtypes", all},
                                 {"some", some},
                                 {"first", any},
                                 {"unchecked", unchecked && !any},
                                 {"second", any && second},
                                 {"twin", twin},
                                 {"cases", lines.size()}};
    std::printf("%s\n", line.dump().c_str());
  }
}

}  // namespace op_cases
