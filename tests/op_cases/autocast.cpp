// Under autocast an op must equal, to the bit, the op on inputs that are cast by hand as its rule says; and every rule must have a
// case that shows it.
#include <tapir/amp/autocast.h>
#include <tapir/autograd/engine.h>

#include <algorithm>
#include <set>

#include "modes.h"
#include "name.h"
#include "place.h"

namespace op_cases {

static DType target_of(CastPolicy policy, DType lower, const List& x) {
  if (policy == CastPolicy::Lower) return lower;
  if (policy == CastPolicy::Float32) return kFloat32;
  for (const Tensor& t : x)
    if (t.dtype() == kFloat32) return kFloat32;
  return lower;
}
static bool is_cast(const Tensor& x) { return is_floating(x.dtype()) && x.dtype() != kFloat64; }

static std::string compare_bits(const List& got, const List& want) {
  if (got.size() != want.size()) return "another number of results";
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined() || !want[i].defined()) continue;
    if (got[i].dtype() != want[i].dtype()) return tapir::format("result {}: {}, expected {}", int64_t(i), got[i], want[i].dtype());
    if (!equal(nan_to_num(got[i]), nan_to_num(want[i]))) return tapir::format("result {} differs from the op on inputs cast by hand", int64_t(i));
  }
  return "";
}

/// Is `got` what the op gives without autocast?
static bool compare_plainly(const Case& c, const List& x, const List& got) {
  manual_seed(7);
  try {
    return compare_bits(got, c.call(x)).empty();
  } catch (const std::exception&) {
    return false;
  }
}
/// Inputs of float32, of the lower dtype, or of both in turn.
static std::string check_one(const Case& c, const std::vector<Shape>& shapes, CastPolicy policy, int which, const Settings& s, bool& shown) {
  const DType lower = AutocastRegion().dtype[int(s.device.type)];
  List x;
  bool mixed = false;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const DType t = which == 0 || (which == 2 && k % 2) ? kFloat32 : lower;
    x.push_back(place(fill(c.values_of(k), shapes[k], t, k), dtype_of_input(c.values_of(k), t), Layout::Contiguous, s.device).view);
    mixed |= which == 2 && k % 2 && is_cast(x[k]);
  }
  if (which == 2 && !mixed) return "";
  const DType target = target_of(policy, lower, x);
  List by_hand;
  bool changes = false;
  for (const Tensor& t : x) by_hand.push_back(is_cast(t) ? t.to(target) : t), changes |= is_cast(t) && t.dtype() != target;
  List got;
  manual_seed(7);
  {
    amp::Autocast autocast(s.device);
    got = c.call(x);
  }
  // A case that asks for a dtype is not cast; one of several calls may cast within.
  if (compare_plainly(c, x, got)) return "";
  if (!is_one_call(c)) return shown = true, "";
  manual_seed(7);
  std::string text = compare_bits(got, c.call(by_hand));
  shown |= text.empty() && changes;
  if (!text.empty() || !c.differentiable) return text;
  for (Tensor& t : x)
    if (is_cast(t)) t.requires_grad_();
  amp::Autocast autocast(s.device);
  const List again = c.call(x);
  if (!again[0].requires_grad() || !is_floating(again[0].dtype())) return text;
  again[0].sum().backward();
  for (const Tensor& t : x)
    if (t.grad().defined() && t.grad().dtype() != t.dtype()) return tapir::format("a gradient of {} for an input of {}", t.grad().dtype(), t.dtype());
  return text;
}

void check_autocast(const std::vector<const Case*>& cases, const Settings& s, Report& report) {
  std::set<std::string_view> rules, shown;
  const Case* last = nullptr;
  for (const Case* c : cases) {
    const CastPolicy policy = cast_rule(c->op).on(s.device.type);
    if (policy == CastPolicy::None || policy == CastPolicy::Plain || !contains(c->dtypes, kFloat32)) continue;
    rules.insert(c->op), last = c;
    report.at(*c);
    for (int which = 0; which < 3; ++which) {
      const std::string text = outcome([&] {
        bool some = false;
        std::string first;
        for (const std::vector<Shape>& shapes : c->shapes)
          if (first.empty()) first = check_one(*c, shapes, policy, which, s, some);
        if (some) shown.insert(c->op);
        return first;
      });
      if (policy == CastPolicy::Refused) report.add(*c, "refused", text.find("unsafe to autocast") != text.npos ? "" : "was not refused");
      else report.add(*c, which == 0 ? "float32" : which == 1 ? "lower" : "mixed", text);
    }
  }
  if (s.from > 0) return;  // the case that shows a rule may stand before
  for (const std::string_view rule : rules)
    if (const CastPolicy p = cast_rule(rule).on(s.device.type); !shown.contains(rule) && (p == CastPolicy::Lower || p == CastPolicy::Float32))
      report.add(*last, "rule", tapir::format("no case casts by the rule of {}", rule));
}

}  // namespace op_cases
