#include "ops.h"

namespace conformance {

static ReduceOptions reduce_options(Args& a) { return {.keepdim = a.boolean("keepdim", false), .dtype = a.dtype()}; }

/// var(unbiased) and var(dim, unbiased, keepdim) and var(dim, correction, keepdim), told apart by kind.
struct VarArgs {
  Dims dims;
  VarOptions options;
  explicit VarArgs(Args& a) {
    const Value* first = a.positional.size() > 1 ? a.at(1) : nullptr;
    const bool flag = first && first->kind == Value::Kind::Bool;
    if (flag) options.correction = first->boolean ? 1 : 0;
    if (const Value* d = flag ? nullptr : first ? first : a.find("dim")) dims = dims_of(*d);
    for (size_t i = 2; i < a.positional.size(); ++i) {
      const Value* v = a.at(i);
      if (!v) continue;
      if (i == 2) options.correction = scalar_of(*v).to_double();
      else options.keepdim = scalar_of(*v).to_bool();
    }
    if (a.named.contains("unbiased")) options.correction = a.boolean("unbiased", true) ? 1 : 0;
    if (a.named.contains("correction")) options.correction = a.number("correction", 1);
    if (a.named.contains("keepdim")) options.keepdim = a.boolean("keepdim", false);
  }
};

/// max and min: of two tensors, along a dimension (values and indices), or of everything.
template <class Two, class Along, class All> static Results extreme(Args& a, Two&& two, Along&& along, All&& all) {
  const Value* second = a.positional.size() > 1 ? a.at(1) : a.has("other") ? a.find("other") : a.find("dim");
  const Tensor x = a.tensor("input");
  if (!second) return {all(x)};
  if (second->kind == Value::Kind::Tensor) return {two(x, second->tensor)};
  auto [values, indices] = along(x, scalar_of(*second).to_int(), a.boolean("keepdim", false));
  return {values, indices};
}

static std::optional<int64_t> optional_dim(Args& a) {
  const Value* v = a.find("dim");
  return v ? std::optional(scalar_of(*v).to_int()) : std::nullopt;
}

static Results both(Args& a, std::pair<Tensor, Tensor> (*f)(const Tensor&, const Dims&, const VarOptions&)) {
  const VarArgs v(a);
  auto [first, second] = f(a.tensor("input"), v.dims, v.options);
  return {first, second};
}

/// norm's p: a number, or "fro" for 2.
static Scalar order(Args& a, const char* name) {
  const Value* v = a.find(name);
  return !v || v->kind == Value::Kind::String ? Scalar(2) : scalar_of(*v);
}

/// any and all reduce nothing where they are given no dimensions.
static Results truth(Args& a, Tensor (*f)(const Tensor&, const Dims&, const KeepdimOptions&)) {
  const Value* dim = a.find("dim");
  const Tensor x = a.tensor("input");
  const bool keepdim = a.boolean("keepdim", false);
  if (dim && dim->kind == Value::Kind::List && dim->list.empty()) return {f(unsqueeze(x, -1), -1, {})};
  return {f(x, a.dims("dim"), {keepdim})};
}

static void bind_runs(std::map<std::string, Binding>& table) {
  table["cumprod"] = {[](Args& a) -> Results { return {cumprod(a.tensor("input"), a.integer("dim"), {a.dtype()})}; },
                      [](Tensor& self, Args& a) { cumprod_(self, a.integer("dim")); }};
  table["cummax"] = {[](Args& a) -> Results {
                       auto [values, indices] = cummax(a.tensor("input"), a.integer("dim"));
                       return {values, indices};
                     },
                     {}};
  table["cummin"] = {[](Args& a) -> Results {
                       auto [values, indices] = cummin(a.tensor("input"), a.integer("dim"));
                       return {values, indices};
                     },
                     {}};
  table["logcumsumexp"] = {[](Args& a) -> Results { return {logcumsumexp(a.tensor("input"), a.integer("dim"))}; }, {}};
  table["diff"] = {[](Args& a) -> Results {
                     const DiffOptions o{a.optional_tensor("prepend"), a.optional_tensor("append")};
                     return {diff(a.tensor("input"), a.integer("n", 1), a.integer("dim", -1), o)};
                   },
                   {}};
}

static bool sorts_down(Args& a) { return a.boolean("descending", false); }

static UniqueOptions unique_options(Args& a) {
  return {.return_inverse = a.boolean("return_inverse", false),
          .return_counts = a.boolean("return_counts", false),
          .dim = optional_dim(a)};
}
static Results unique_results(const Unique& u) {
  Results out{u.values};
  if (u.inverse.defined()) out.push_back(u.inverse);
  if (u.counts.defined()) out.push_back(u.counts);
  return out;
}
static Results pair_results(const std::pair<Tensor, Tensor>& p) { return {p.first, p.second}; }

static void bind_sorting(std::map<std::string, Binding>& table) {
  table["sort"] = {[](Args& a) {
                     const SortOptions o{.descending = sorts_down(a), .stable = a.boolean("stable", false)};
                     return pair_results(sort(a.tensor("input"), a.integer("dim", -1), o));
                   },
                   {}};
  table["argsort"] = {[](Args& a) -> Results {
                        const SortOptions o{.descending = sorts_down(a), .stable = a.boolean("stable", false)};
                        return {argsort(a.tensor("input"), a.integer("dim", -1), o)};
                      },
                      {}};
  table["mode"] = {[](Args& a) {
                     return pair_results(mode(a.tensor("input"), a.integer("dim", -1), {a.boolean("keepdim", false)}));
                   },
                   {}};
  for (const bool skip_nan : {false, true})
    table[skip_nan ? "nanquantile" : "quantile"] = {
        [skip_nan](Args& a) -> Results {
          const std::string between = a.text("interpolation", "linear");
          const QuantileOptions o{a.boolean("keepdim", false), between};
          return {(skip_nan ? nanquantile : quantile)(a.tensor("input"), a.operand("q"), optional_dim(a), o)};
        },
        {}};
  table["msort"] = {[](Args& a) -> Results { return {msort(a.tensor("input"))}; }, {}};
  table["topk"] = {[](Args& a) {
                     const TopkOptions o{.largest = a.boolean("largest", true), .sorted = a.boolean("sorted", true)};
                     return pair_results(topk(a.tensor("input"), a.integer("k"), a.integer("dim", -1), o));
                   },
                   {}};
  table["kthvalue"] = {[](Args& a) {
                         return pair_results(kthvalue(a.tensor("input"), a.integer("k"), a.integer("dim", -1),
                                                      {a.boolean("keepdim", false)}));
                       },
                       {}};
  table["median"] = {[](Args& a) {
                       const Tensor x = a.tensor("input");
                       const KeepdimOptions o{a.boolean("keepdim", false)};
                       return a.has("dim") ? pair_results(median(x, a.integer("dim"), o)) : Results{median(x)};
                     },
                     {}};
  table["nanmedian"] = {[](Args& a) {
                          const Tensor x = a.tensor("input");
                          const KeepdimOptions o{a.boolean("keepdim", false)};
                          return a.has("dim") ? pair_results(nanmedian(x, a.integer("dim"), o)) : Results{nanmedian(x)};
                        },
                        {}};
  table["unique"] = {[](Args& a) {
                       a.boolean("sorted", true);
                       return unique_results(unique(a.tensor("input"), unique_options(a)));
                     },
                     {}};
  table["unique_consecutive"] = {
      [](Args& a) { return unique_results(unique_consecutive(a.tensor("input"), unique_options(a))); }, {}};
}

void bind_reduction() {
  auto& table = bindings();
  bind_runs(table);
  bind_sorting(table);
  table["sum"] = {[](Args& a) -> Results {
                    const ReduceOptions o = reduce_options(a);
                    return {sum(a.tensor("input"), a.dims("dim"), o)};
                  },
                  {}};
  table["mean"] = {[](Args& a) -> Results { return {mean(a.tensor("input"), a.dims("dim"), reduce_options(a))}; }, {}};
  table["prod"] = {[](Args& a) -> Results {
                     const Value* second = a.positional.size() > 1 ? a.at(1) : nullptr;  // dim, of two overloads
                     const Dims dims = second ? dims_of(*second) : a.dims("dim");
                     const std::optional<DType> dtype = a.named.contains("dtype") ? a.dtype() : std::nullopt;
                     return {prod(a.tensor("input"), dims, {.keepdim = a.boolean("keepdim", false), .dtype = dtype})};
                   },
                   {}};
  table["amax"] = {
      [](Args& a) -> Results { return {amax(a.tensor("input"), a.dims("dim"), {a.boolean("keepdim", false)})}; }, {}};
  table["amin"] = {
      [](Args& a) -> Results { return {amin(a.tensor("input"), a.dims("dim"), {a.boolean("keepdim", false)})}; }, {}};
  table["max"] = {[](Args& a) {
                    return extreme(
                        a, [](auto& x, auto& y) { return maximum(x, y); },
                        [](auto& x, int64_t d, bool k) { return max(x, d, {k}); }, [](auto& x) { return max(x); });
                  },
                  {}};
  table["min"] = {[](Args& a) {
                    return extreme(
                        a, [](auto& x, auto& y) { return minimum(x, y); },
                        [](auto& x, int64_t d, bool k) { return min(x, d, {k}); }, [](auto& x) { return min(x); });
                  },
                  {}};
  table["argmax"] = {
      [](Args& a) -> Results { return {argmax(a.tensor("input"), optional_dim(a), {a.boolean("keepdim", false)})}; },
      {}};
  table["argmin"] = {
      [](Args& a) -> Results { return {argmin(a.tensor("input"), optional_dim(a), {a.boolean("keepdim", false)})}; },
      {}};
  table["any"] = {[](Args& a) { return truth(a, any); }, {}};
  table["all"] = {[](Args& a) { return truth(a, all); }, {}};
  table["var"] = {[](Args& a) -> Results {
                    const VarArgs v(a);
                    return {var(a.tensor("input"), v.dims, v.options)};
                  },
                  {}};
  table["std"] = {[](Args& a) -> Results {
                    const VarArgs v(a);
                    return {tapir::std(a.tensor("input"), v.dims, v.options)};
                  },
                  {}};
  table["var_mean"] = {[](Args& a) { return both(a, var_mean); }, {}};
  table["std_mean"] = {[](Args& a) { return both(a, std_mean); }, {}};
  table["norm"] = {[](Args& a) -> Results {
                     const Tensor x = a.tensor("input");
                     const Value* p = a.find("p");
                     const Dims dims = a.dims("dim");
                     if (p && p->text == "nuc")
                       return {linalg::matrix_norm(x, "nuc", dims.empty() ? Dims{0, 1} : dims, reduce_options(a))};
                     return {norm(x, order(a, "p"), dims, reduce_options(a))};
                   },
                   {}};
  table["linalg.vector_norm"] = {
      [](Args& a) -> Results {
        return {linalg::vector_norm(a.tensor("input"), order(a, "ord"), a.dims("dim"), reduce_options(a))};
      },
      {}};
  table["logsumexp"] = {
      [](Args& a) -> Results { return {logsumexp(a.tensor("input"), a.dims("dim"), {a.boolean("keepdim", false)})}; },
      {}};
  table["cumsum"] = {[](Args& a) -> Results { return {cumsum(a.tensor("input"), a.integer("dim"), {a.dtype()})}; },
                     [](Tensor& self, Args& a) { cumsum_(self, a.integer("dim")); }};
  table["nansum"] = {[](Args& a) -> Results { return {nansum(a.tensor("input"), a.dims("dim"), reduce_options(a))}; },
                     {}};
  table["nanmean"] = {[](Args& a) -> Results { return {nanmean(a.tensor("input"), a.dims("dim"), reduce_options(a))}; },
                      {}};
  table["count_nonzero"] = {[](Args& a) -> Results { return {count_nonzero(a.tensor("input"), a.dims("dim"))}; }, {}};
  table["trace"] = {[](Args& a) -> Results { return {trace(a.tensor("input"))}; }, {}};
  table["equal"] = {[](Args& a) -> Results { return {Scalar(equal(a.tensor("input"), a.tensor("other")))}; }, {}};
  table["aminmax"] = {[](Args& a) -> Results {
                        auto [least, largest] =
                            aminmax(a.tensor("input"), optional_dim(a), {a.boolean("keepdim", false)});
                        return {least, largest};
                      },
                      {}};
  table["bincount"] = {[](Args& a) -> Results {
                         const int64_t minlength = a.integer("minlength", 0);
                         return {bincount(a.tensor("input"), a.optional_tensor("weights"), minlength)};
                       },
                       {}};
  table["histc"] = {[](Args& a) -> Results {
                      const int64_t bins = a.integer("bins", 100);
                      return {histc(a.tensor("input"), bins, {a.number("min", 0), a.number("max", 0)})};
                    },
                    {}};
  table["softmin"] = {
      [](Args& a) -> Results { return {softmin(a.tensor("input"), a.integer("dim"), {.dtype = a.dtype()})}; }, {}};
  table["softmax"] = {
      [](Args& a) -> Results { return {softmax(a.tensor("input"), a.integer("dim"), {.dtype = a.dtype()})}; }, {}};
  table["log_softmax"] = {
      [](Args& a) -> Results { return {log_softmax(a.tensor("input"), a.integer("dim"), {.dtype = a.dtype()})}; }, {}};
}

}  // namespace conformance
