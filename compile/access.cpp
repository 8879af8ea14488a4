#include <cstring>

#include "program.h"

namespace tapir::inline v0::ir {
namespace {

/// A letter per operand, r, w or u; those that follow are read.
struct Rule {
  const char *entry, *letters;
};
constexpr Rule kRules[] = {
    {"copy", "w"},
    {"copy_bytes", "w"},
    {"fill", "w"},
    {"range", "w"},
    {"random", "w"},
    {"unary", "w"},
    {"binary", "w"},
    {"ternary", "w"},
    {"fused", "w"},
    {"reduce", "w"},
    {"arg_reduce", "w"},
    {"scan", "ww"},
    {"histogram", "w"},
    {"sort", "ww"},
    {"search", "w"},
    {"gather", "w"},
    {"scatter", "u"},
    {"index", "w"},
    {"index_put", "u"},
    {"count_nonzero", ""},
    {"nonzero", "w"},
    {"matmul", "wrrrw"},
    {"quant_matmul", "w"},
    {"quant_conv", "w"},
    {"linalg", "w"},
    {"conv", "w"},
    {"conv_backward_data", "w"},
    {"conv_backward_weight", "ww"},
    {"pool", "ww"},
    {"pool_backward", "w"},
    {"resample", "w"},
    {"resample_backward", "w"},
    {"softmax", "w"},
    {"softmax_backward", "w"},
    {"attention", "ww"},
    {"attention_backward", "www"},
    {"rnn", "w"},
    {"rnn_backward", "w"},
    {"norm", "wwwrrruu"},
    {"norm_backward", "www"},
    {"norm_relu", "wwwwrrruu"},
    {"norm_relu_backward", "wwww"},
    {"cross_entropy", "ww"},
    {"cross_entropy_backward", "w"},
    {"dropout", "ww"},
    {"optimizer_step", "uruuururrru"},  // params, grads, three states, lr, step, inv_scale, found_inf, beta1, numbers
    {"foreach", "wu"},
};

template <class P> P params_of(std::string_view bytes) {
  P p{};
  std::memcpy(static_cast<void*>(&p), bytes.data(), std::min(bytes.size(), sizeof(P)));
  return p;
}

}  // namespace

Access access_of(std::string_view entry, size_t i, std::string_view params) {
  const Rule* rule = nullptr;
  for (const Rule& r : kRules)
    if (entry == r.entry) rule = &r;
  check_internal(rule, "[access_of] expected an entry of the table, got {}", entry);
  const char letter = i < std::strlen(rule->letters) ? rule->letters[i] : 'r';
  if (entry == "matmul" && i == 0 && params_of<MatmulParams>(params).beta != 0) return Access::Update;
  if (letter == 'u' && (entry == "norm" || entry == "norm_relu") && !params_of<NormParams>(params).training)
    return Access::Read;
  if (entry == "foreach" && i == 1) {
    const ForeachOp op = params_of<ForeachParams>(params).op;
    return op == ForeachOp::NormP ? Access::Read : op == ForeachOp::Zero ? Access::Write : Access::Update;
  }
  return letter == 'w' ? Access::Write : letter == 'u' ? Access::Update : Access::Read;
}

}  // namespace tapir::inline v0::ir
