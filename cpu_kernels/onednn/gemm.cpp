#include "../self_check.h"
#include "layout.h"
#include "library.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;

/// A matrix that the whole batch shares has a batch of 1: the library repeats it.
Desc describe_matrix(const Gemm& g, const Matrix& x, int64_t rows, int64_t columns) {
  if (g.batch == 1) return Desc({rows, columns}, type_of(g.dtype), dnnl::memory::dims{x.row, x.column});
  const int64_t batch = x.batch == 0 ? 1 : g.batch, step = x.batch == 0 ? rows * columns : x.batch;
  return Desc({batch, rows, columns}, type_of(g.dtype), dnnl::memory::dims{step, x.row, x.column});
}

std::unique_ptr<Call> make_gemm(const Gemm& g) try {
  dnnl::post_ops after;
  if (g.alpha != 1) append_eltwise(after, dnnl::algorithm::eltwise_linear, g.alpha, 0);
  if (g.beta != 0) after.append_sum(g.beta);
  const Desc a = describe_matrix(g, g.a, g.m, g.k), b = describe_matrix(g, g.b, g.k, g.n),
             out = describe_matrix(g, g.out, g.m, g.n);
  const auto f32 = dnnl::memory::data_type::f32;
  const Desc bias = g.batch == 1 ? Desc({1, g.n}, f32, dnnl::memory::dims{g.n, 1})
                                 : Desc({1, 1, g.n}, f32, dnnl::memory::dims{g.n, g.n, 1});
  const auto desc = g.bias ? describe<dnnl::matmul>(attributes(after), a, b, bias, out)
                           : describe<dnnl::matmul>(attributes(after), a, b, out);
  if (!is_good(desc)) return nullptr;
  auto call = std::make_unique<Call>(dnnl::matmul(desc), desc.scratchpad_desc());
  call->argument(DNNL_ARG_SRC, a);
  call->argument(DNNL_ARG_WEIGHTS, b);
  call->argument(DNNL_ARG_DST, out);
  if (g.bias) call->argument(DNNL_ARG_BIAS, bias);
  return call;
} catch (const dnnl::error&) {
  return nullptr;
}

/// g: canonical (layout.h).
bool run(Context& ctx, const Gemm& g) {
  thread_local Cache<Call> cache;
  constexpr int64_t kSerial =
      1 << 19;  // multiplications that one thread does in less time than it takes to wake another
  const Session session(g.batch * g.m * g.n * g.k < kSerial ? 1 : 0);
  Key key;
  key.add(session.threads(), g.dtype, g.batch, g.m, g.n, g.k, g.a.batch, g.a.row, g.a.column, g.b.batch, g.b.row,
          g.b.column);
  key.add(g.out.batch, g.out.row, std::bit_cast<int32_t>(g.alpha), std::bit_cast<int32_t>(g.beta), g.bias != nullptr);
  Call* call = cache.find(key, [&] { return make_gemm(g); });
  if (!call) return false;
  if (g.bias) call->run(ctx, {g.a.data, g.b.data, g.out.data, const_cast<float*>(g.bias)});
  else call->run(ctx, {g.a.data, g.b.data, g.out.data});
  return true;
}
bool suited(Context& ctx, const Gemm& g) {
  Gemm fit = g;
  return suit(ctx, fit) && run(ctx, fit);
}

}  // namespace

std::string library() {
  const dnnl_version_t& v = *dnnl_version();
  return tapir::format("oneDNN {}.{}.{}", v.major, v.minor, v.patch);
}

bool gemm(Context& ctx, const Gemm& g) {
  static CheckedProduct single(library(), kFloat32, suited), half(library(), kBFloat16, suited);
  return (g.dtype == kBFloat16 ? half : single)(ctx, g);
}

}  // namespace tapir::inline v0::cpu::dnn
