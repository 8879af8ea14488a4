#include "shrink.h"

#include <algorithm>

namespace ops_fuzz {

namespace {
/// Puts a contiguous layout over the shape, and cuts views that would stick out.
void lay_out(Input& in) { in.strides = contiguous_strides(in.shape), in.offset = 0; }

bool views_fit(const Call& call) {
  for (const Input& in : call.inputs) {
    if (in.kind != Kind::Same && in.kind != Kind::View) continue;
    const Input& of = call.inputs[size_t(in.of)];
    if (of.kind != Kind::Own || of.dtype != in.dtype) return false;
    if (in.kind == Kind::View && extent_of(in) > extent_of(of) + kSpare) return false;
  }
  return true;
}

/// Calls that are a little simpler.
class Simpler {
 public:
  explicit Simpler(const Call& call) : call_(call) {
    for (const auto& [k, value] : call.arguments)
      add([k = k](Call& c) { c.arguments.erase(k); }), smaller_argument(k, value);
    for (size_t k = 0; k < call.inputs.size(); ++k) of_input(k, call.inputs[k]);
    plain_dtype();
    dimensions();
  }
  std::vector<Call> calls;

 private:
  template <class F> void add(F change) {
    Call c = call_;
    change(c);
    if (views_fit(c)) calls.push_back(std::move(c));
  }
  /// As the table has it, of float32.
  void plain_dtype() {
    const auto plain = [&](size_t k) { return call_.line->values_of(k).dtype.value_or(kFloat32); };
    bool already = true;
    for (size_t k = 0; k < call_.inputs.size(); ++k) already &= call_.inputs[k].dtype == plain(k);
    if (!already)
      add([&](Call& c) {
        for (size_t k = 0; k < c.inputs.size(); ++k) c.inputs[k].dtype = plain(k);
      });
    for (size_t k = 0; k < call_.inputs.size(); ++k)
      if (call_.inputs[k].dtype != plain(k)) add([&](Call& c) { c.inputs[k].dtype = plain(k); });
  }
  void smaller_argument(int k, const Argument& value) {
    const auto* i = std::get_if<int64_t>(&value);
    if (!i || (*i >= -1 && *i <= 1)) return;
    for (const int64_t n : {int64_t(0), int64_t(1), int64_t(-1), int64_t(1) << 40, *i / 2})
      if (std::abs(double(n)) < std::abs(double(*i))) add([=](Call& c) { c.arguments[k] = n; });
  }
  void of_input(size_t k, const Input& in) {
    const auto change = [&](auto f) { add([&](Call& c) { f(c.inputs[k]); }); };
    if (in.kind == Kind::Same || in.kind == Kind::View)
      add([&](Call& c) {
        const Input of = c.inputs[size_t(in.of)];
        c.inputs[k] = of, c.inputs[k].shape = in.shape, lay_out(c.inputs[k]);
      });
    if (in.kind != Kind::Own && in.kind != Kind::View) return;
    if (in.grad) change([](Input& i) { i.grad = false; });
    if (!is_contiguous(in)) change(lay_out);
    if (in.offset) change([](Input& i) { i.offset = 0; });
    if (in.fill != Fill::Case) change([](Input& i) { i.fill = Fill::Case; });
    if (in.fill == Fill::Special || in.fill == Fill::Extreme)
      for (uint32_t seed = 0; seed < 4; ++seed)
        if (in.seed > seed) change([=](Input& i) { i.seed = seed; });
    for (const Fill fill : {Fill::Zero, Fill::Small})
      if (in.fill > fill) change([=](Input& i) { i.fill = fill; });
    if (in.seed) change([](Input& i) { i.seed = 0; });
  }
  /// One dimension less or shorter, in one input or in all that have it.
  void dimensions() {
    for (size_t k = 0; k <= call_.inputs.size(); ++k)
      for (int64_t d = 0; d < 16; ++d)
        for (const int64_t n : {int64_t(-1), int64_t(1), int64_t(0), int64_t(2), int64_t(-2)}) cut(k, d, n);
  }
  /// n: the new extent; -1: the dimension goes; -2: half of it. k behind the last input: of all of them. d counts from the end.
  void cut(size_t k, int64_t d, int64_t n) {
    bool any = false;
    Call c = call_;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      Input& in = c.inputs[i];
      const int64_t at = in.shape.size() - 1 - d;
      if ((k < c.inputs.size() && i != k) || at < 0 || (in.kind != Kind::Own && in.kind != Kind::View)) continue;
      const int64_t extent = n == -2 ? in.shape[at] / 2 : n;
      if (extent >= in.shape[at]) continue;
      const bool contiguous = is_contiguous(in);
      if (n == -1) in.shape.erase(at), in.strides.erase(at);
      else in.shape[at] = extent;
      if (contiguous) lay_out(in);
      any = true;
    }
    if (any && views_fit(c)) calls.push_back(std::move(c));
  }
  const Call& call_;
};
}  // namespace

Call shrink(const Call& call, const std::function<bool(const Call&)>& bad, int tries) {
  Call best = call;
  for (bool better = true; better && tries > 0;) {
    better = false;
    for (Call& c : Simpler(best).calls) {
      if (tries-- <= 0) break;
      if (!bad(c)) continue;
      best = std::move(c), better = true;
      break;
    }
  }
  return best;
}

}  // namespace ops_fuzz
