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

void bind_index() {
  auto& table = bindings();
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
