#include "work.h"

#include <algorithm>
#include <limits>

#include "trace_call.h"

namespace tapir::inline v0::entry {
namespace {

// ---- flops ----
template <class E> double flops_of(const E&) { return 0; }

double flops_of(const Matmul& c) { return 2.0 * double(c.out.numel()) * double(c.a.sizes[c.a.rank - 1]); }
double flops_of(const NormMatmul& c) { return 2.0 * double(c.out.numel()) * double(c.x.sizes[1]); }
double flops_of(const Float8Matmul& c) { return 2.0 * double(c.out.numel()) * double(c.a.sizes[1]); }
double flops_of(const QuantMatmul& c) { return 2.0 * double(c.y.numel()) * double(c.x.sizes[c.x.rank - 1]); }

/// y (N, O, ...), w (O, C / groups, ...): each output is a sum over one filter.
double flops_of_conv(const TensorView& y, const TensorView& w) {
  return 2.0 * double(y.numel()) * double(w.numel()) / double(std::max<int64_t>(w.sizes[0], 1));
}
double flops_of(const Conv& c) { return flops_of_conv(c.y, c.w); }
double flops_of(const QuantConv& c) { return flops_of_conv(c.y, c.w); }
double flops_of(const ConvBackwardData& c) { return flops_of_conv(c.dy, c.w); }
double flops_of(const ConvBackwardWeight& c) { return flops_of_conv(c.dy, c.dw); }

/// Pairs of a query and a key that it sees, over all heads. A mask that says how many keys there are is taken to say all.
double pairs_of(const TensorView& q, const TensorView& k, const TensorView& mask, bool causal) {
  const double queries = double(q.sizes[2]), keys = double(k.sizes[2]), both = std::min(queries, keys);
  const double heads = double(q.sizes[0]) * double(q.sizes[1]);
  if (!causal) return heads * queries * keys;
  if (mask.defined() && mask.rank == 0)
    return heads * (both * keys - both * (both - 1) / 2);            // the last query sees all
  return heads * (both * (both + 1) / 2 + (queries - both) * keys);  // the first one sees one
}
double flops_of(const Attention& c) {
  return 2.0 * pairs_of(c.q, c.k, c.mask, c.params.causal) * double(c.q.sizes[3] + c.v.sizes[3]);
}
double flops_of(const AttentionBackward& c) {
  return 2.0 * pairs_of(c.q, c.k, c.mask, c.params.causal) * double(3 * c.q.sizes[3] + 2 * c.v.sizes[3]);
}

double flops_of(const PutAttention& c) {
  return 2.0 * pairs_of(c.q, c.k, c.keys, c.params.causal) * double(c.q.sizes[3] + c.v.sizes[3]);
}

double numel_of(const TensorView& v) { return v.defined() ? double(v.numel()) : 0; }
double flops_of(const Rnn& c) { return 2.0 * double(c.y.sizes[0]) * (numel_of(c.w) + numel_of(c.projection)); }
double flops_of(const RnnBackward& c) {
  return 2.0 * double(c.y.sizes[0]) *
         (numel_of(c.w) + numel_of(c.projection) + numel_of(c.dw) + numel_of(c.dprojection));
}

// ---- bytes ----
constexpr double kAll = std::numeric_limits<double>::infinity();
/// How many elements of an operand are touched at most.
template <class E> double most_of(const E&) { return kAll; }
double most_of(const Gather& c) { return double(c.out.numel()); }
double most_of(const Scatter& c) { return double(c.index.numel()); }
double most_of(const Index& c) { return double(c.out.numel()); }
double most_of(const IndexPut& c) { return double(c.source.numel()); }

double bytes_of(const TensorView& v, double most, Access access) {
  if (!v.defined() || v.is_scalar) return 0;
  int64_t n = 1;
  for (int64_t i = 0; i < v.rank; ++i) n *= v.strides[i] == 0 ? std::min<int64_t>(v.sizes[i], 1) : v.sizes[i];
  return std::min(double(n), most) * double(size_of(v.dtype)) * (access == Access::Update ? 2 : 1);
}

template <class E> Work work(const E& e) {
  Work sum{.flops = flops_of(e)};
  each_field(e, [&, most = most_of(e)]<class T>(const T& field) {
    if constexpr (OneOperand<T>) sum.bytes += bytes_of(field, most, tapir::detail::access_of<T>(e));
    else if constexpr (ManyOperands<T>)
      for (const TensorView& v : field) sum.bytes += bytes_of(v, most, tapir::detail::access_of<T>(e));
  });
  return sum;
}

}  // namespace

#define TAPIR_X(name, E) \
  Work work_of(const E& e) { return work(e); }
TAPIR_ENTRIES(TAPIR_X)
#undef TAPIR_X

}  // namespace tapir::inline v0::entry
