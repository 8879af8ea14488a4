#include "ops.h"

namespace conformance {

#define TWO(name, first, second) \
  table[#name] = {[](Args& a) -> Results { return {name(a.tensor(first), a.tensor(second))}; }, {}}

static AddmmOptions options(Args& a) { return {a.scalar("beta", Scalar(1)), a.scalar("alpha", Scalar(1))}; }

/// A call with three tensors, beta and alpha, and the same in place.
#define ADD_PRODUCT(name, first, second)                                                                           \
  table[#name] = {                                                                                                 \
      [](Args& a) -> Results { return {name(a.tensor("input"), a.tensor(first), a.tensor(second), options(a))}; }, \
      [](Tensor& self, Args& a) { name##_(self, a.tensor(first), a.tensor(second), options(a)); }}

/// tensordot's dims: a number, or two lists.
static Results contract(Args& a) {
  const Value* dims = a.find("dims");
  const Tensor x = a.tensor("a"), y = a.tensor("b");
  if (!dims || dims->kind != Value::Kind::List) return {tensordot(x, y, dims ? scalar_of(*dims).to_int() : 2)};
  return {tensordot(x, y, dims_of(dims->list.at(0)), dims_of(dims->list.at(1)))};
}
static Results sum_of_products(Args& a) {
  std::vector<Tensor> operands;
  for (size_t i = 1; const Value* v = a.at(i); ++i) {
    if (v->kind == Value::Kind::List)
      for (const Value& item : v->list) operands.push_back(item.tensor);
    else operands.push_back(v->tensor);
  }
  return {einsum(a.at(0)->text, operands)};
}

void bind_matmul() {
  auto& table = bindings();
  TWO(matmul, "input", "other");
  TWO(mm, "input", "mat2");
  TWO(bmm, "input", "mat2");
  TWO(mv, "input", "vec");
  TWO(dot, "input", "tensor");
  TWO(outer, "input", "vec2");
  ADD_PRODUCT(addmm, "mat1", "mat2");
  ADD_PRODUCT(addmv, "mat", "vec");
  ADD_PRODUCT(addr, "vec1", "vec2");
  ADD_PRODUCT(baddbmm, "batch1", "batch2");
  ADD_PRODUCT(addbmm, "batch1", "batch2");
  TWO(inner, "input", "other");
  TWO(kron, "input", "other");
  table["einsum"] = {sum_of_products, {}};
  table["tensordot"] = {contract, {}};
  table["chain_matmul"] = {[](Args& a) -> Results {
                             std::vector<Tensor> matrices;
                             for (size_t i = 0; const Value* v = a.at(i); ++i) matrices.push_back(v->tensor);
                             return {chain_matmul(matrices)};
                           },
                           {}};
  table["linalg.multi_dot"] = {[](Args& a) -> Results { return {linalg::multi_dot(a.tensors("tensors"))}; }, {}};
  table["bilinear"] = {
      [](Args& a) -> Results {
        return {bilinear(a.tensor("input1"), a.tensor("input2"), a.tensor("weight"), a.optional_tensor("bias"))};
      },
      {}};
  table["cross"] = {[](Args& a) -> Results {
                      const Value* dim = a.find("dim");
                      const auto d = dim ? std::optional(scalar_of(*dim).to_int()) : std::nullopt;
                      return {cross(a.tensor("input"), a.tensor("other"), d)};
                    },
                    {}};
  table["cdist"] = {[](Args& a) -> Results {
                      const std::string mode = a.text("compute_mode", "use_mm_for_euclid_dist_if_necessary");
                      return {cdist(a.tensor("x1"), a.tensor("x2"), {.p = a.number("p", 2.0), .compute_mode = mode})};
                    },
                    {}};
  table["pairwise_distance"] = {
      [](Args& a) -> Results {
        return {pairwise_distance(
            a.tensor("x1"), a.tensor("x2"),
            {.p = a.number("p", 2.0), .eps = a.number("eps", 1e-6), .keepdim = a.boolean("keepdim", false)})};
      },
      {}};
  table["cosine_similarity"] = {
      [](Args& a) -> Results {
        return {cosine_similarity(a.tensor("x1"), a.tensor("x2"),
                                  {.dim = a.integer("dim", 1), .eps = a.number("eps", 1e-8)})};
      },
      {}};
  table["normalize"] = {
      [](Args& a) -> Results {
        return {normalize(a.tensor("input"),
                          {.p = a.number("p", 2.0), .dim = a.dims("dim", 1), .eps = a.number("eps", 1e-12)})};
      },
      {}};
  table["linear"] = {
      [](Args& a) -> Results { return {linear(a.tensor("input"), a.tensor("weight"), a.optional_tensor("bias"))}; },
      {}};
}

}  // namespace conformance
