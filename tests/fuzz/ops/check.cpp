#include "check.h"

#include <tapir/core/allocator.h>
#include <tapir/core/modes.h>

#include <algorithm>
#include <cstdio>

#include "../../op_cases/name.h"

namespace ops_fuzz {

bool is_clear(const std::string& message) {
  // "expected", or PyTorch's own words, which stay where people search for them.
  static const char* const expectations[] = {
      "expect",        "must",    "should",       "has to",     "have to",         "need",     "require",
      "cannot",        "can't",   "only",         "at least",   "at most",         "range",    "invalid",
      "support",       "match",   "overflow",     "allow",      "multiple",        "fit",      "identical",
      "too many",      "smaller", "can not",      "restricted", "too small",       "less",     "divisible",
      "out of bounds", "exceeds", "inconsistent", "supposed",   "not implemented", "negative", "repeated",
      "more than",     "maximum", "multiply",     "divisor",    "undefined",       " < "};
  static const char* const values[] = {"got", "found", "float", "int", "bool", "undefined"};
  const size_t end = message.find("] ");
  if (message[0] != '[' || end == std::string::npos || message.find(' ') < end) return false;
  const auto has = [&](const char* word) { return message.find(word, end) != std::string::npos; };
  return std::any_of(std::begin(expectations), std::end(expectations), has) &&
         (message.find_first_of("0123456789", end) != std::string::npos ||
          std::any_of(std::begin(values), std::end(values), has));
}

bool all_own(const Call& call) {
  for (const Input& in : call.inputs)
    if (in.kind != Kind::Own) return false;
  return true;
}

/// After an error nothing is written; after a result only self is.
static std::string written(const Call& call, const Built& built, const Outcome& outcome) {
  const bool writes = call.form == Form::Twin || call.line->mutates;
  if (outcome.end == End::Result && call.line->mutates) return "";
  int self = -1;
  if (outcome.end == End::Result && writes) self = 0;
  if (const int k = built.changed(self); k >= 0)
    return "input " + std::to_string(k) + " was written by a call that gave " + name_of(outcome.end) +
           (outcome.message.empty() ? "" : ": " + outcome.message);
  return "";
}
/// Handles are what they were: a failed call in place leaves self's geometry.
static std::string moved(const Call& call, const List& before, const List& after, const Outcome& outcome) {
  for (size_t k = 0; k < before.size(); ++k) {
    if (outcome.end == End::Result && call.form == Form::Twin && k == 0) continue;
    if (before[k].defined() != after[k].defined())
      return "input " + std::to_string(k) + " is another tensor afterwards";
    if (before[k].defined() && !(before[k].shape() == after[k].shape()))
      return "input " + std::to_string(k) + " has another shape afterwards: " + after[k].shape().str();
  }
  return "";
}
static std::string unnamed(const Call& call, const Outcome& outcome) {
  if (outcome.end != End::ValueError && outcome.end != End::RuntimeError) return "";
  return op_cases::wrong_name(*call.line, outcome.message);
}
/// A plain calculation still works, and no mode has stayed behind.
static std::string unusable() {
  const Outcome outcome = outcome_of([] { return List{sum(add(ones({3}), 1))}; });
  if (outcome.end != End::Result || outcome.y[0].item<double>() != 6) return "after it sum(ones({3}) + 1) is not 6";
  if (!modes.grad || modes.inference || modes.deterministic || modes.autocast || modes.recorder || modes.saved_hooks)
    return "after it a mode is not what it was";
  return "";
}

static std::optional<Finding> compare(const Call& call, const Plan& plan, const Outcome& outcome, Counts& counts) {
  std::string text;
  if (plan.contiguous) {
    ++counts.contiguous;
    if (text = beside_contiguous(call, outcome); !text.empty()) return Finding{"contiguous", text};
  }
  if (plan.device) {
    ++counts.device;
    if (text = beside_device(call, outcome, *plan.device); !text.empty()) return Finding{"device", text};
  }
  if (outcome.end != End::Result) return {};
  bool compared = false;
  if (plan.reference &&
      (text = beside_reference(call, outcome, compared), counts.references += compared, !text.empty()))
    return Finding{"reference", text};
  compared = false;
  if (plan.compiled && (text = beside_compiled(call, compared), counts.compiled += compared, !text.empty()))
    return Finding{"compiled", text};
  compared = false;
  if (plan.gradient && (text = beside_differences(call, compared), counts.gradients += compared, !text.empty()))
    return Finding{"gradient", text};
  return {};
}

static std::optional<Finding> look(const Call& call, const Plan& plan, Counts& counts) {
  ++counts.calls;
  const Built built = build(call);
  const List given = built.x;
  List shapes_before;
  for (const Tensor& x : given)
    shapes_before.push_back(x.defined() ? alias(x, x.shape(), x.strides(), x.storage_offset()) : x);
  Outcome outcome = run(call, given);
  if (outcome.end == End::Strange) return Finding{"exception", outcome.message};
  if (outcome.end == End::InternalError) return Finding{"internal", outcome.message};
  if (std::string text = unnamed(call, outcome); !text.empty()) return Finding{"name", text};
  if (std::string text = written(call, built, outcome); !text.empty()) return Finding{"written", text};
  if (std::string text = moved(call, shapes_before, given, outcome); !text.empty()) return Finding{"handle", text};
  if (outcome.end != End::Result && counts.calls % 16 == 0)
    if (std::string text = unusable(); !text.empty()) return Finding{"unusable", text};
  counts.results += outcome.end == End::Result;
  counts.errors += outcome.end == End::ValueError;
  if (outcome.end == End::ValueError && !is_clear(outcome.message) && counts.unclear++ == 0)
    std::snprintf(counts.unclear_text, sizeof counts.unclear_text, "%s", outcome.message.c_str());
  bool ran = false;
  if (plan.backward && outcome.end == End::Result) {
    std::string text = after_backward(built, outcome, ran);
    counts.backward += ran;
    if (!text.empty()) return Finding{"backward", text};
  }
  return compare(call, plan, outcome, counts);
}

std::optional<Finding> examine(const Call& call, const Plan& plan, Counts& counts) {
  int64_t held = 0;
  Counts again;
  for (int i = 0; i < 3; ++i) {  // what a first call keeps for later ones is no loss
    const int64_t before = memory_stats().allocated;
    if (auto finding = look(call, plan, i ? again : counts)) return finding;
    held = memory_stats().allocated - before;
    if (held <= 0) return {};
  }
  return Finding{"memory", "each call leaves " + std::to_string(held) + " bytes behind"};
}

}  // namespace ops_fuzz
