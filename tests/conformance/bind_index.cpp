#include "ops.h"

namespace conformance {

static Index index_item(const Value& v) {
  const auto bound = [](const Value& x) { return x.none() ? std::nullopt : std::optional(scalar_of(x).to_int()); };
  switch (v.kind) {
    case Value::Kind::None: return None;
    case Value::Kind::Bool: return v.boolean;
    case Value::Kind::Int: return v.integer;
    case Value::Kind::Ellipsis: return Ellipsis;
    case Value::Kind::Tensor: return v.tensor;
    case Value::Kind::Slice: return Slice(bound(v.list[0]), bound(v.list[1]), bound(v.list[2]).value_or(1));
    case Value::Kind::List: {  // a list of integers or bools is a tensor
      std::vector<int64_t> values;
      bool flags = !v.list.empty();
      for (const Value& x : v.list) values.push_back(scalar_of(x).to_int()), flags &= x.kind == Value::Kind::Bool;
      return tensor(values, {.dtype = flags ? kBool : kInt64});
    }
    default: throw Refused("an index of an unknown kind");
  }
}

/// The tensors of index_put's `indices`; null: a whole dimension.
static std::vector<Tensor> index_list(Args& a) {
  std::vector<Tensor> out;
  for (const Value& v : a.items("indices")) out.push_back(v.kind == Value::Kind::Tensor ? v.tensor : Tensor());
  return out;
}

static std::string_view reduction_of(Args& a) {
  static const char* const names[] = {"", "add", "multiply", "sum", "prod", "mean", "amax", "amin"};
  const std::string given = a.text("reduce", "");
  for (const char* name : names)
    if (given == name) return name;
  throw Refused("a reduction of an unknown kind: " + given);
}
static Operand scattered(Args& a) { return a.operand(a.has("src") ? "src" : "value"); }

static void bind_scatter(std::map<std::string, Binding>& table) {
  table["scatter"] = {
      [](Args& a) -> Results {
        return {scatter(a.tensor("input"), a.integer("dim"), a.tensor("index"), scattered(a), reduction_of(a))};
      },
      [](Tensor& self, Args& a) {
        scatter_(self, a.integer("dim"), a.tensor("index"), scattered(a), reduction_of(a));
      }};
  table["scatter_reduce"] = {
      [](Args& a) -> Results {
        return {scatter_reduce(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("src"), reduction_of(a),
                               {a.boolean("include_self", true)})};
      },
      [](Tensor& self, Args& a) {
        scatter_reduce_(self, a.integer("dim"), a.tensor("index"), a.tensor("src"), reduction_of(a),
                        {a.boolean("include_self", true)});
      }};
  table["index_reduce"] = {
      [](Args& a) -> Results {
        return {index_reduce(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("source"),
                             reduction_of(a), {a.boolean("include_self", true)})};
      },
      [](Tensor& self, Args& a) {
        index_reduce_(self, a.integer("dim"), a.tensor("index"), a.tensor("source"), reduction_of(a),
                      {a.boolean("include_self", true)});
      }};
  table["index_add"] = {[](Args& a) -> Results {
                          return {index_add(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("source"),
                                            a.scalar("alpha", 1))};
                        },
                        [](Tensor& self, Args& a) {
                          index_add_(self, a.integer("dim"), a.tensor("index"), a.tensor("source"),
                                     a.scalar("alpha", 1));
                        }};
  table["index_copy"] = {
      [](Args& a) -> Results {
        return {index_copy(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("source"))};
      },
      [](Tensor& self, Args& a) { index_copy_(self, a.integer("dim"), a.tensor("index"), a.tensor("source")); }};
  table["index_fill"] = {
      [](Args& a) -> Results {
        return {index_fill(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.operand("value"))};
      },
      [](Tensor& self, Args& a) { index_fill_(self, a.integer("dim"), a.tensor("index"), a.operand("value")); }};
}

static void bind_flat(std::map<std::string, Binding>& table) {
  table["take"] = {[](Args& a) -> Results { return {take(a.tensor("input"), a.tensor("index"))}; }, {}};
  table["put"] = {
      [](Args& a) -> Results {
        return {put(a.tensor("input"), a.tensor("index"), a.tensor("source"), a.boolean("accumulate", false))};
      },
      [](Tensor& self, Args& a) { put_(self, a.tensor("index"), a.tensor("source"), a.boolean("accumulate", false)); }};
  table["take_along_dim"] = {[](Args& a) -> Results {
                               return {take_along_dim(a.tensor("input"), a.tensor("indices"),
                                                      a.has("dim") ? std::optional(a.integer("dim")) : std::nullopt)};
                             },
                             {}};
  table["masked_select"] = {[](Args& a) -> Results { return {masked_select(a.tensor("input"), a.tensor("mask"))}; },
                            {}};
  table["masked_scatter"] = {
      [](Args& a) -> Results { return {masked_scatter(a.tensor("input"), a.tensor("mask"), a.tensor("source"))}; },
      [](Tensor& self, Args& a) { masked_scatter_(self, a.tensor("mask"), a.tensor("source")); }};
  table["argwhere"] = {[](Args& a) -> Results { return {argwhere(a.tensor("input"))}; }, {}};
  table["searchsorted"] = {[](Args& a) -> Results {
                             const bool right = a.boolean("right", false) || a.text("side", "left") == "right";
                             return {searchsorted(a.tensor("sorted_sequence"), a.operand("self"),
                                                  {right, a.boolean("out_int32", false), a.optional_tensor("sorter")})};
                           },
                           {}};
  table["bucketize"] = {[](Args& a) -> Results {
                          return {bucketize(a.operand("input"), a.tensor("boundaries"),
                                            {a.boolean("right", false), a.boolean("out_int32", false)})};
                        },
                        {}};
  table["isin"] = {[](Args& a) -> Results {
                     return {isin(a.operand(a.has("elements") ? "elements" : "element"),
                                  a.operand(a.has("test_elements") ? "test_elements" : "test_element"),
                                  {a.boolean("assume_unique", false), a.boolean("invert", false)})};
                   },
                   {}};
}

void bind_index() {
  auto& table = bindings();
  bind_scatter(table);
  bind_flat(table);
  table["getitem"] = {[](Args& a) -> Results {
                        std::vector<Index> items;
                        for (const Value& v : a.items("index")) items.push_back(index_item(v));
                        return {Indexed(a.tensor("input"), items).value()};
                      },
                      {}};
  table["index_select"] = {
      [](Args& a) -> Results { return {index_select(a.tensor("input"), a.integer("dim"), a.tensor("index"))}; }, {}};
  table["gather"] = {
      [](Args& a) -> Results { return {gather(a.tensor("input"), a.integer("dim"), a.tensor("index"))}; }, {}};
  table["scatter_add"] = {
      [](Args& a) -> Results {
        return {scatter_add(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("src"))};
      },
      [](Tensor& self, Args& a) { scatter_add_(self, a.integer("dim"), a.tensor("index"), a.tensor("src")); }};
  table["index_put"] = {
      [](Args& a) -> Results {
        return {index_put(a.tensor("input"), index_list(a), a.tensor("values"), a.boolean("accumulate", false))};
      },
      [](Tensor& self, Args& a) {
        index_put_(self, index_list(a), a.tensor("values"), a.boolean("accumulate", false));
      }};
  table["nonzero"] = {[](Args& a) -> Results {
                        const Tensor x = a.tensor("input");
                        if (!a.boolean("as_tuple", false)) return {nonzero(x)};
                        return list_results(unbind(nonzero(x.dim() ? x : reshape(x, {1})), 1));
                      },
                      {}};
  table["embedding"] = {[](Args& a) -> Results {
                          EmbeddingOptions o;
                          if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
                          if (a.has("max_norm")) o.max_norm = a.number("max_norm");
                          o.norm_type = a.number("norm_type", 2),
                          o.scale_grad_by_freq = a.boolean("scale_grad_by_freq", false);
                          return {embedding(a.tensor("input"), a.tensor("weight"), o)};
                        },
                        {}};
}

}  // namespace conformance
