// cuda_kernels/norm/norm.cu, norm_channels.cu: rows in registers and any others; both memory formats of images.
#include "../same_bits.h"
#include "kernels.h"

using namespace tapir;

namespace {
struct Run {
  Tensor y, dx, dweight, dbias;
};
template <class F> Run run(const Tensor& x0, const Tensor& w0, const Tensor& b0, const Tensor& g, F f) {
  Tensor x = x0.detach(), w = w0.detach(), b = b0.detach();
  x.requires_grad_(), w.requires_grad_(), b.requires_grad_();
  const Tensor y = f(x, w, b);
  y.backward(g);
  return {y.detach(), x.grad(), w.grad(), b.grad()};
}
/// f(x, weight, bias) with its gradients on both devices; `device` is x there, in whatever layout.
template <class F> void check_norm(const Tensor& x, const Tensor& device, const Shape& weights, F f) {
  const Tensor w = numbers(weights, x.dtype(), 2), b = numbers(weights, x.dtype(), 3),
               g = numbers(x.shape(), x.dtype(), 4);
  const Run host = run(x, w, b, g, f), there = run(device, w.to(kCUDA), b.to(kCUDA), g.to(kCUDA), f);
  const double tolerance = rounding(x.dtype()) * 4;
  CHECK(difference(there.y, host.y) < tolerance);
  CHECK(difference(there.dx, host.dx) < tolerance);
  CHECK(difference(there.dweight, host.dweight) < tolerance);
  if (host.dbias.defined()) CHECK(difference(there.dbias, host.dbias) < tolerance);
}
}  // namespace

TEST_CASE("cuda layer_norm, rms_norm: every way through memory") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{50, 8}, Shape{300, 64}, Shape{20, 768}, Shape{17, 33}, Shape{3, 9000},
                               Shape{2, 18000}, Shape{1, 5}, Shape{2, 16384}, Shape{1, 50257}}) {
      const Tensor x = numbers(shape, dtype) + 3;
      INFO(tapir::format("{}", x));
      const Shape tail = {shape[1]};
      check_norm(x, x.to(kCUDA), tail,
                 [&](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm(x, tail, w, b); });
      check_norm(x, x.to(kCUDA), tail,
                 [&](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm(x, tail, w); });
    }
  const Tensor x = numbers({6, 7, 5, 8}, kFloat32),
               there = permute(permute(x, {0, 2, 3, 1}).contiguous().to(kCUDA), {0, 3, 1, 2});
  check_norm(x, there, {5, 8}, [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {5, 8}, w, b);
  });
}

TEST_CASE("cuda batch_norm, group_norm: both memory formats") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{8, 16, 6, 8}, Shape{3, 6, 7, 7}, Shape{400, 12}, Shape{2, 8, 5000}})
      for (bool last : {false, true}) {
        const Tensor x = numbers(shape, dtype) + 2;
        Tensor there = x.to(kCUDA);
        if (last) there = transpose(transpose(x, 1, -1).contiguous().to(kCUDA), 1, -1);
        const int64_t channels = shape[1];
        INFO(tapir::format("{} last {}", x, last));
        const Tensor mean = numbers({channels}, kFloat32, 8), var = rand({channels}) + 1, mean_there = mean.to(kCUDA),
                     var_there = var.to(kCUDA);
        for (bool training : {true, false})
          check_norm(x, there, {channels}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
            return x.device() == kCPU ? batch_norm(x, mean, var, w, b, {.training = training})
                                      : batch_norm(x, mean_there, var_there, w, b, {.training = training});
          });
        CHECK(difference(mean_there, mean) < 1e-5);
        CHECK(difference(var_there, var) < 1e-5);
        check_norm(x, there, {channels},
                   [&](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 2, w, b); });
      }
}

namespace {
/// What norm_add_backward leaves on a device: dx, rounded, dweight, dbias.
std::vector<Tensor> add_backward(const Tensor& dy, const Tensor& x, const Tensor& add, DType rounded, NormOp op,
                                 bool in_place) {
  NoGrad guard;
  const int64_t rows = x.size(0), width = x.size(1);
  const Tensor weight = numbers({width}, kFloat32, 5).to(x.device()), none;
  const Tensor mean = numbers({rows}, kFloat32, 6).to(x.device()),
               rstd = (abs(numbers({rows}, kFloat32, 7)) + 0.5).to(x.device());
  const Tensor dx = in_place ? add.clone() : empty_like(x), dw = empty_like(weight), db = empty_like(weight);
  const Tensor low = rounded == kFloat32 ? none : empty(x.shape(), {.dtype = rounded, .device = x.device()});
  backend(x).norm_add_backward(context(x), {.dx = dx,
                                            .rounded = low,
                                            .dweight = dw,
                                            .dbias = op == NormOp::Layer ? db : none,
                                            .dy = dy,
                                            .x = x,
                                            .add = in_place ? dx : add,
                                            .weight = weight,
                                            .mean = op == NormOp::Layer ? mean : none,
                                            .rstd = rstd,
                                            .params = {.op = op, .axes = 1}});
  return {dx, low, dw, op == NormOp::Layer ? db : none};
}
}  // namespace

TEST_CASE("cuda norm_add_backward: the gradient of a norm, a sum and casts in one call, wherever operands lie") {
  NEEDS_CUDA
  for (const Shape& shape : {Shape{50, 8}, Shape{70, 768}, Shape{17, 33}, Shape{3, 9000}, Shape{0, 8}})
    for (const DType given : {kFloat32, kFloat16, kBFloat16})
      for (const DType rounded : {kFloat32, kFloat16, kBFloat16})
        for (int form = 0; form < 16; ++form) {
          if (given != kFloat32 && rounded != kFloat32 && rounded != given) continue;
          const bool adds = form & 1, in_place = adds && form & 2, odd = form & 4 && shape[0] > 0;
          const NormOp op = form & 8 ? NormOp::Rms : NormOp::Layer;
          CAPTURE(tapir::format("{}", shape), std::string(name_of(given)), std::string(name_of(rounded)), form);
          const Tensor dy = numbers(shape, given, 2), x = numbers(shape, kFloat32, 3),
                       add = numbers(shape, kFloat32, 4);
          const auto there = [&](const Tensor& t) {  // odd: rows that begin anywhere
            return odd ? pad(t.to(kCUDA), {1, 2}).narrow(1, 1, shape[1]) : t.to(kCUDA);
          };
          const Tensor none;
          const auto host = add_backward(dy, x, adds ? add : none, rounded, op, in_place);
          const auto device = add_backward(there(dy), there(x), adds ? there(add) : none, rounded, op, in_place);
          for (size_t i = 0; i < host.size(); ++i) {
            REQUIRE(host[i].defined() == device[i].defined());
            if (host[i].defined()) CHECK(difference(device[i], host[i]) < 4 * rounding(host[i].dtype()));
          }
        }
}

namespace {
/// norm, binary, unary and the gradients of the three, and what norm_relu and its gradient make of the same operands.
struct ReluNorm {
  Tensor x, w, b, running_mean, running_var, add, dy;
  NormParams params;
  Tensor y = empty_like(x), mean = empty_like(running_mean), rstd = empty_like(mean), shift = empty_like(mean),
         dx = empty_like(x), dw = empty_like(w), db = empty_like(b), g = empty_like(x);

  void apart(const BackendTable& table, Context& ctx) {
    table.norm(ctx, {y, mean, rstd, x, w, b, running_mean, running_var, params});
    if (add.defined()) table.binary(ctx, {y, y, add, {BinaryOp::Add}});
    table.unary(ctx, {y, y, {UnaryOp::Relu}});
    table.binary(ctx, {g, dy, y, {BinaryOp::ReluGrad}});
    table.norm_backward(ctx, {dx, dw, db, g, x, w, mean, rstd, params});
  }
  void joined(const BackendTable& table, Context& ctx, bool wants_g, bool wants_x, bool wants_sums) {
    const Tensor none;
    const bool adds = add.defined();
    table.norm_relu(
        ctx, {y, mean, rstd, adds ? none : shift, x, w, b, running_mean, running_var, adds ? add : none, params});
    table.norm_relu_backward(
        ctx, {wants_x ? dx : none, wants_sums ? dw : none, wants_sums ? db : none, wants_g ? g : none, dy, x,
              adds ? y : none, adds ? none : shift, w, mean, rstd, params});
  }
};
void check_relu_norm(const Tensor& x, bool training, bool adds, int wanted) {
  NoGrad guard;
  const Shape channels(x.shape()[1]);
  const auto like = [&](uint64_t seed) { return numbers(x.shape(), x.dtype(), seed).to(kCUDA); };
  const DType wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const auto make = [&] {
    manual_seed(5);
    Tensor add = adds ? empty_like(x) : Tensor(), dy = empty_like(x);
    if (adds) copy_(add, like(7));
    copy_(dy, like(8));
    return ReluNorm{x,
                    numbers(channels, wide, 2).to(kCUDA),
                    numbers(channels, wide, 3).to(kCUDA),
                    numbers(channels, wide, 4).to(kCUDA),
                    (rand(channels) + 1).to(wide).to(kCUDA),
                    add,
                    dy,
                    {.op = NormOp::Batch, .training = training}};
  };
  ReluNorm apart = make(), joined = make();
  apart.apart(backend(kCUDA), context(kCUDA));
  const bool wants_g = wanted & 1, wants_x = wanted & 2, wants_sums = wanted & 4;
  joined.joined(backend(kCUDA), context(kCUDA), wants_g, wants_x, wants_sums);
  const auto same = [](const Tensor& a, const Tensor& b) { return tapir_tests::same_bits(a.cpu(), b.cpu()); };
  CHECK(same(apart.y, joined.y));
  CHECK((same(apart.mean, joined.mean) && same(apart.rstd, joined.rstd)));
  CHECK((same(apart.running_mean, joined.running_mean) && same(apart.running_var, joined.running_var)));
  if (wants_g) CHECK(same(apart.g, joined.g));
  if (wants_x) CHECK(same(apart.dx, joined.dx));
  if (wants_sums) CHECK((same(apart.dw, joined.dw) && same(apart.db, joined.db)));
}
}  // namespace

TEST_CASE("cuda norm_relu: the bits of batch norm, an addition and relu one by one, and of their gradients") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{8, 16, 6, 8}, Shape{3, 6, 7, 7}, Shape{40, 24}, Shape{2, 8, 300}})
      for (bool last : {false, true}) {
        Tensor x = numbers(shape, dtype).to(kCUDA);
        if (last) x = transpose(transpose(x, 1, -1).contiguous(), 1, -1);
        for (int form = 0; form < 32; ++form) {
          const int wanted = form >> 2;
          if (wanted < 1) continue;
          INFO(tapir::format("{} {} last {} training {} adds {} wanted {}", dtype, shape, last, form & 1, form & 2,
                             wanted));
          check_relu_norm(x, form & 1, form & 2, wanted);
        }
      }
  Tensor x = numbers({2, 8, 9, 3}, kBFloat16);
  x[0][3][2][1] = std::numeric_limits<double>::quiet_NaN();
  for (int form : {0, 1, 2, 3}) check_relu_norm(x.to(kCUDA).narrow(2, 1, 7), form & 1, form & 2, 7);
}
