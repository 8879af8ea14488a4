#include "kernels.h"

namespace tapir::inline v0 {

static constexpr BackendTable cpu_table = {
    .name = "cpu",
    .allocate = cpu::allocate,
    .release = cpu::release,
    .copy_bytes = cpu::copy_bytes,
    .synchronize = cpu::synchronize,
    .device = nullptr,
    .copy = cpu::copy,
    .fill = cpu::fill,
    .range = cpu::range,
    .random = cpu::random,
    .unary = cpu::unary,
    .binary = cpu::binary,
    .ternary = cpu::ternary,
    .reduce = cpu::reduce,
    .arg_reduce = cpu::arg_reduce,
    .scan = cpu::scan,
    .histogram = cpu::histogram,
    .sort = cpu::sort,
    .search = cpu::search,
    .gather = cpu::gather,
    .scatter = cpu::scatter,
    .index = cpu::index,
    .index_put = cpu::index_put,
    .count_nonzero = cpu::count_nonzero,
    .nonzero = cpu::nonzero,
    .matmul = cpu::matmul,
    .linalg = cpu::linalg,
    .conv = cpu::conv,
    .conv_backward_data = cpu::conv_backward_data,
    .conv_backward_weight = cpu::conv_backward_weight,
    .pool = cpu::pool,
    .pool_backward = cpu::pool_backward,
    .softmax = cpu::softmax,
    .softmax_backward = cpu::softmax_backward,
    .attention = cpu::attention,
    .attention_backward = cpu::attention_backward,
    .norm = cpu::norm,
    .norm_backward = cpu::norm_backward,
    .cross_entropy = cpu::cross_entropy,
    .cross_entropy_backward = cpu::cross_entropy_backward,
    .dropout = cpu::dropout,
    .optimizer_step = cpu::optimizer_step,
    .foreach = cpu::foreach,
};

const BackendTable* cpu_backend() { return &cpu_table; }

}  // namespace tapir::inline v0
