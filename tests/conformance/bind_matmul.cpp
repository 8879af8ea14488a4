#include "ops.h"

namespace conformance {

#define TWO(name, first, second) \
  table[#name] = {[](Args& a) -> Results { return {name(a.tensor(first), a.tensor(second))}; }, {}}

static AddmmOptions options(Args& a) { return {a.scalar("beta", Scalar(1)), a.scalar("alpha", Scalar(1))}; }

void bind_matmul() {
  auto& table = bindings();
  TWO(matmul, "input", "other");
  TWO(mm, "input", "mat2");
  TWO(bmm, "input", "mat2");
  TWO(mv, "input", "vec");
  TWO(dot, "input", "tensor");
  TWO(outer, "input", "vec2");
  table["addmm"] = {
      [](Args& a) -> Results { return {addmm(a.tensor("input"), a.tensor("mat1"), a.tensor("mat2"), options(a))}; },
      [](Tensor& self, Args& a) { addmm_(self, a.tensor("mat1"), a.tensor("mat2"), options(a)); }};
  table["linear"] = {
      [](Args& a) -> Results { return {linear(a.tensor("input"), a.tensor("weight"), a.optional_tensor("bias"))}; },
      {}};
}

}  // namespace conformance
