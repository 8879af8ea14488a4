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

static std::optional<int64_t> optional_integer(Args& a, const char* name) {
  return a.has(name) ? std::optional(a.integer(name)) : std::nullopt;
}
/// A number that may be given as a tensor.
static Scalar number_of(Args& a, const char* name) {
  const Value& v = a.need(name);
  if (v.kind != Value::Kind::Tensor) return scalar_of(v);
  return is_floating(v.tensor.dtype()) ? Scalar(v.tensor.item<double>()) : Scalar(v.tensor.item<int64_t>());
}
/// Tensors given one by one, or as a list.
static std::vector<Tensor> all_tensors(Args& a) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < a.positional.size(); ++i) {
    const Value* v = a.at(i);
    if (v->kind == Value::Kind::Tensor) out.push_back(v->tensor);
    else
      for (const Value& x : v->list) out.push_back(x.tensor);
  }
  return out;
}
static Results splits(Args& a) {
  const Tensor x = a.tensor("input");
  const Value* by = nullptr;
  for (const char* name : {"sections", "indices", "tensor_indices_or_sections"})
    if (!by) by = a.find(name);
  const int64_t dim = a.integer("dim", 0);
  if (by->is_number()) return list_results(tensor_split(x, scalar_of(*by).to_int(), dim));
  if (by->kind == Value::Kind::List) return list_results(tensor_split(x, dims_of(*by).vec(), dim));
  if (by->tensor.dim() == 0) return list_results(tensor_split(x, by->tensor.item<int64_t>(), dim));
  return list_results(tensor_split(x, to(by->tensor, kInt64).to_vector<int64_t>(), dim));
}
static Results repeats(Args& a) {
  const bool two = a.positional.size() > 1;
  const Value* given = two ? a.at(1) : a.find("repeats");
  if (a.has("output_size")) a.integer("output_size");
  if (!two && !a.named.contains("repeats")) return {repeat_interleave(given->tensor)};
  const Tensor x = a.at(0)->tensor;
  const std::optional<int64_t> dim = optional_integer(a, "dim");
  if (given->is_number()) return {repeat_interleave(x, scalar_of(*given).to_int(), dim)};
  return {repeat_interleave(x, given->tensor, dim)};
}

#define CALL(...)                                      \
  {                                                    \
    [](Args& a) -> Results { return __VA_ARGS__; }, {} \
  }
static void bind_triangles(std::map<std::string, Binding>& table) {
  table["tril"] = {[](Args& a) -> Results { return {tril(a.tensor("input"), a.integer("diagonal", 0))}; },
                   [](Tensor& self, Args& a) { tril_(self, a.integer("diagonal", 0)); }};
  table["triu"] = {[](Args& a) -> Results { return {triu(a.tensor("input"), a.integer("diagonal", 0))}; },
                   [](Tensor& self, Args& a) { triu_(self, a.integer("diagonal", 0)); }};
  table["tril_indices"] =
      CALL({tril_indices(a.integer("row"), a.integer("col"), a.integer("offset", 0), {.dtype = a.dtype()})});
  table["triu_indices"] =
      CALL({triu_indices(a.integer("row"), a.integer("col"), a.integer("offset", 0), {.dtype = a.dtype()})});
  table["diag"] = CALL({diag(a.tensor("input"), a.integer("diagonal", 0))});
  table["diagonal"] =
      CALL({diagonal(a.tensor("input"), a.integer("offset", 0), a.integer("dim1", 0), a.integer("dim2", 1))});
  table["diag_embed"] =
      CALL({diag_embed(a.tensor("input"), a.integer("offset", 0), a.integer("dim1", -2), a.integer("dim2", -1))});
  table["diagonal_scatter"] = CALL({diagonal_scatter(a.tensor("input"), a.tensor("src"), a.integer("offset", 0),
                                                     a.integer("dim1", 0), a.integer("dim2", 1))});
  table["block_diag"] = CALL({block_diag(all_tensors(a))});
}
static void bind_rearranged(std::map<std::string, Binding>& table) {
  for (const char* name : {"swapaxes", "swapdims"})
    table[name] = {[](Args& a) -> Results {
                     return {swapaxes(a.tensor("input"), a.integer(a.has("axis0") ? "axis0" : "dim0"),
                                      a.integer(a.has("axis1") ? "axis1" : "dim1"))};
                   },
                   [](Tensor& self, Args& a) {
                     swapaxes_(self, a.integer(a.has("axis0") ? "axis0" : "dim0"),
                               a.integer(a.has("axis1") ? "axis1" : "dim1"));
                   }};
  table["movedim"] = table["moveaxis"] = CALL({movedim(a.tensor("input"), a.dims("source"), a.dims("destination"))});
  table["unflatten"] = CALL({unflatten(a.tensor("input"), a.integer("dim"), a.dims("sizes"))});
  table["ravel"] = CALL({ravel(a.tensor("input"))});
  table["view_as"] = CALL({view_as(a.tensor("input"), a.tensor("other"))});
  table["reshape_as"] = CALL({reshape_as(a.tensor("input"), a.tensor("other"))});
  table["broadcast_tensors"] = CALL(list_results(broadcast_tensors(all_tensors(a))));
  table["unfold"] = CALL({unfold(a.tensor("input"), a.integer("dimension"), a.integer("size"), a.integer("step"))});
  table["atleast_1d"] = CALL(list_results(atleast_1d(all_tensors(a))));
  table["atleast_2d"] = CALL(list_results(atleast_2d(all_tensors(a))));
  table["atleast_3d"] = CALL(list_results(atleast_3d(all_tensors(a))));
  table["tensor_split"] = {splits, {}};
  table["meshgrid"] = CALL(list_results(meshgrid(all_tensors(a), a.text("indexing", "ij"))));
  table["flip"] = CALL({flip(a.tensor("input"), a.dims("dims"))});
  table["fliplr"] = CALL({fliplr(a.tensor("input"))});
  table["flipud"] = CALL({flipud(a.tensor("input"))});
  table["roll"] = CALL({roll(a.tensor("input"), a.dims("shifts"), a.dims("dims"))});
  table["rot90"] = CALL({rot90(a.tensor("input"), a.integer("k", 1), a.dims("dims", {0, 1}))});
  table["repeat"] = CALL({repeat(a.tensor("input"), a.dims("repeats"))});
  table["tile"] = CALL({tile(a.tensor("input"), a.dims("dims"))});
  table["repeat_interleave"] = {repeats, {}};
  table["vstack"] = CALL({vstack(all_tensors(a))});
  table["hstack"] = CALL({hstack(all_tensors(a))});
  table["dstack"] = CALL({dstack(all_tensors(a))});
  table["column_stack"] = CALL({column_stack(all_tensors(a))});
  table["cartesian_prod"] = CALL({cartesian_prod(all_tensors(a))});
  table["select_scatter"] =
      CALL({select_scatter(a.tensor("input"), a.tensor("src"), a.integer("dim"), a.integer("index"))});
  table["slice_scatter"] =
      CALL({slice_scatter(a.tensor("input"), a.tensor("src"), a.integer("dim", 0), optional_integer(a, "start"),
                          optional_integer(a, "end"), a.integer("step", 1))});
  table["logspace"] = CALL({logspace(number_of(a, "start"), number_of(a, "end"), a.integer("steps"),
                                     a.number("base", 10), {.dtype = a.dtype()})});
}
#undef CALL

void bind_shape() {
  auto& table = bindings();
  bind_triangles(table);
  bind_rearranged(table);
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
