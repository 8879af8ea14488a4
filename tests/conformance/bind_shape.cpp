#include "ops.h"

namespace conformance {

/// zeros({2, 3}, dtype) is also written zeros(2, 3).
static Shape size_of_args(Args& a, const char* name) {
  if (const Value* v = a.find(name); v && v->kind == Value::Kind::List) return dims_of(*v);
  Shape s;
  for (size_t i = 0; i < a.positional.size(); ++i)
    if (const Value* v = a.at(i); v && v->is_number()) s.push_back(scalar_of(*v).to_int());
  return s;
}
static Shape shape_arg(Args& a, const char* name) {
  if (const Value* v = a.find(name); v && v->kind == Value::Kind::List) return dims_of(*v);
  Shape s;
  for (size_t i = 1; i < a.positional.size(); ++i)
    if (const Value* v = a.at(i)) s.push_back(scalar_of(*v).to_int());
  return s;
}
static LikeOptions like_options(Args& a) { return {.dtype = a.dtype(), .memory_format = a.format(kPreserve)}; }

static void bind_factories(std::map<std::string, Binding>& table) {
  table["zeros"] = {[](Args& a) -> Results { return {zeros(size_of_args(a, "size"), {.dtype = a.dtype()})}; }, {}};
  table["ones"] = {[](Args& a) -> Results { return {ones(size_of_args(a, "size"), {.dtype = a.dtype()})}; }, {}};
  table["full"] = {
      [](Args& a) -> Results { return {full(a.dims("size"), a.scalar("fill_value"), {.dtype = a.dtype()})}; }, {}};
  table["zeros_like"] = {[](Args& a) -> Results { return {zeros_like(a.tensor("input"), like_options(a))}; }, {}};
  table["ones_like"] = {[](Args& a) -> Results { return {ones_like(a.tensor("input"), like_options(a))}; }, {}};
  table["full_like"] = {
      [](Args& a) -> Results { return {full_like(a.tensor("input"), a.scalar("fill_value"), like_options(a))}; }, {}};
  table["arange"] = {[](Args& a) -> Results {
                       std::vector<Scalar> numbers;
                       for (size_t i = 0; i < a.positional.size(); ++i)
                         if (const Value* v = a.at(i); v && v->is_number()) numbers.push_back(scalar_of(*v));
                       const TensorOptions o{.dtype = a.dtype()};
                       if (a.named.contains("start")) numbers.insert(numbers.begin(), a.scalar("start"));
                       if (a.named.contains("end")) numbers.push_back(a.scalar("end"));
                       if (a.named.contains("step")) numbers.push_back(a.scalar("step"));
                       if (numbers.size() == 1) return {arange(numbers[0], o)};
                       return {arange(numbers.at(0), numbers.at(1), numbers.size() > 2 ? numbers[2] : Scalar(1), o)};
                     },
                     {}};
  table["linspace"] = {
      [](Args& a) -> Results {
        return {linspace(a.scalar("start"), a.scalar("end"), a.integer("steps"), {.dtype = a.dtype()})};
      },
      {}};
  table["eye"] = {[](Args& a) -> Results {
                    return {eye(a.integer("n"),
                                a.positional.size() > 1 && a.at(1)->is_number() ? scalar_of(*a.at(1)).to_int()
                                : a.named.contains("m")                         ? a.integer("m")
                                                                                : -1,
                                {.dtype = a.dtype()})};
                  },
                  {}};
}

static void bind_views(std::map<std::string, Binding>& table) {
  table["reshape"] = {[](Args& a) -> Results { return {reshape(a.tensor("input"), shape_arg(a, "shape"))}; }, {}};
  table["view"] = {[](Args& a) -> Results { return {view(a.tensor("input"), shape_arg(a, "size"))}; }, {}};
  table["expand"] = {[](Args& a) -> Results { return {expand(a.tensor("input"), shape_arg(a, "size"))}; }, {}};
  table["broadcast_to"] = {[](Args& a) -> Results { return {expand(a.tensor("input"), a.dims("size"))}; }, {}};
  table["expand_as"] = {[](Args& a) -> Results { return {expand(a.tensor("input"), a.tensor("other").shape())}; }, {}};
  table["permute"] = {[](Args& a) -> Results { return {permute(a.tensor("input"), shape_arg(a, "dims"))}; }, {}};
  table["flatten"] = {[](Args& a) -> Results {
                        return {flatten(a.tensor("input"), a.integer("start_dim", 0), a.integer("end_dim", -1))};
                      },
                      {}};
  table["transpose"] = {
      [](Args& a) -> Results { return {transpose(a.tensor("input"), a.integer("dim0"), a.integer("dim1"))}; },
      [](Tensor& self, Args& a) { transpose_(self, a.integer("dim0"), a.integer("dim1")); }};
  table["t"] = {[](Args& a) -> Results { return {t(a.tensor("input"))}; }, [](Tensor& self, Args&) { t_(self); }};
  table["squeeze"] = {[](Args& a) -> Results {
                        const Tensor x = a.tensor("input");
                        return {a.has("dim") ? squeeze(x, a.dims("dim")) : squeeze(x)};
                      },
                      [](Tensor& self, Args& a) { a.has("dim") ? squeeze_(self, a.dims("dim")) : squeeze_(self); }};
  table["unsqueeze"] = {[](Args& a) -> Results { return {unsqueeze(a.tensor("input"), a.integer("dim"))}; },
                        [](Tensor& self, Args& a) { unsqueeze_(self, a.integer("dim")); }};
  table["as_strided"] = {[](Args& a) -> Results {
                           const Value* offset = a.find("storage_offset");
                           return {as_strided(a.tensor("input"), a.dims("size"), a.dims("stride"),
                                              offset ? std::optional(scalar_of(*offset).to_int()) : std::nullopt)};
                         },
                         [](Tensor& self, Args& a) {
                           const Value* offset = a.find("storage_offset");
                           as_strided_(self, a.dims("size"), a.dims("stride"),
                                       offset ? std::optional(scalar_of(*offset).to_int()) : std::nullopt);
                         }};
  table["contiguous"] = {[](Args& a) -> Results { return {contiguous(a.tensor("input"), a.format(kContiguous))}; }, {}};
  table["clone"] = {[](Args& a) -> Results { return {clone(a.tensor("input"), a.format(kPreserve))}; }, {}};
  table["to"] = {[](Args& a) -> Results {
                   Tensor x = a.tensor("input");
                   if (const auto d = a.dtype()) x = to(x, *d);
                   return {contiguous(x, a.format(kPreserve))};
                 },
                 {}};
}

void bind_shape() {
  auto& table = bindings();
  bind_factories(table);
  bind_views(table);
  table["narrow"] = {[](Args& a) -> Results {
                       return {narrow(a.tensor("input"), a.integer("dim"), a.integer("start"), a.integer("length"))};
                     },
                     {}};
  table["select"] = {
      [](Args& a) -> Results { return {select(a.tensor("input"), a.integer("dim"), a.integer("index"))}; }, {}};
  table["cat"] = {[](Args& a) -> Results { return {cat(a.tensors("tensors"), a.integer("dim", 0))}; }, {}};
  table["stack"] = {[](Args& a) -> Results { return {stack(a.tensors("tensors"), a.integer("dim", 0))}; }, {}};
  table["split"] = {[](Args& a) -> Results {
                      const Value& size = a.need("split_size_or_sections");
                      const Tensor x = a.tensor("input");
                      const int64_t dim = a.integer("dim", 0);
                      return list_results(size.kind == Value::Kind::List ? split(x, dims_of(size).vec(), dim)
                                                                         : split(x, scalar_of(size).to_int(), dim));
                    },
                    {}};
  table["split_with_sizes"] = {
      [](Args& a) -> Results {
        return list_results(split(a.tensor("input"), a.dims("split_sizes").vec(), a.integer("dim", 0)));
      },
      {}};
  table["chunk"] = {[](Args& a) -> Results {
                      return list_results(chunk(a.tensor("input"), a.integer("chunks"), a.integer("dim", 0)));
                    },
                    {}};
  table["unbind"] = {[](Args& a) -> Results { return list_results(unbind(a.tensor("input"), a.integer("dim", 0))); },
                     {}};
  table["one_hot"] = {[](Args& a) -> Results { return {one_hot(a.tensor("input"), a.integer("num_classes", -1))}; },
                      {}};
}

}  // namespace conformance
