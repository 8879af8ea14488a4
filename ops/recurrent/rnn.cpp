#include "../rnn.h"

#include <array>

#include "../../autograd/engine.h"
#include "../activation.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../create.h"
#include "../front.h"
#include "../matmul.h"
#include "../pointwise.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../unary.h"

namespace tapir::inline v0 {

/// For kernel_or_composite(), which finds it beside its argument. Layers of 16 bits round their state at each step, the composite form does
/// not, and steps may multiply the difference: tests compare those.
template <class Composite> static void compare_fused(const char* op, const RnnResult& r, const Composite& composite) {
  if (!fused_checks || size_of(r.output.dtype()) == 2) return;
  NoGrad guard;
  const RnnResult expected = composite();
  for (auto t : {&RnnResult::output, &RnnResult::h, &RnnResult::c})
    if ((r.*t).defined()) compare_results(op, r.*t, expected.*t);
}

namespace {

/// The operands of one layer in one order: x (N, in), w_ih, w_hh, b_ih, b_hh, w_hr, h (B, P), c (B, H), batch_sizes.
enum Operands { kX, kWih, kWhh, kBih, kBhh, kWhr, kH, kC, kSizes, kCount };
using Layer = std::array<Tensor, kCount>;

int64_t gates_of(RnnOp op) { return op == RnnOp::Lstm ? 4 : op == RnnOp::Gru ? 3 : 1; }
int64_t rows_of(const Layer& l, int64_t t) {
  return l[kSizes].defined() ? l[kSizes].data<int64_t>()[t] : l[kH].size(0);
}

/// One step in differentiable operations: gates (b, G H) of the inputs, states h and c (b, ...).
std::pair<Tensor, Tensor> step(RnnOp op, const Layer& l, const Tensor& gates, const Tensor& h, const Tensor& c) {
  const Tensor sums = linear(h, l[kWhh], l[kBhh]);
  if (op == RnnOp::Tanh) return {tanh(add(gates, sums)), c};
  if (op == RnnOp::Relu) return {relu(add(gates, sums)), c};
  const std::vector<Tensor> x = chunk(gates, gates_of(op), 1), s = chunk(sums, gates_of(op), 1);
  if (op == RnnOp::Gru) {
    const Tensor r = sigmoid(add(x[0], s[0])), z = sigmoid(add(x[1], s[1])), n = tanh(add(x[2], mul(r, s[2])));
    return {add(n, mul(z, sub(h, n))), c};
  }
  const Tensor i = sigmoid(add(x[0], s[0])), f = sigmoid(add(x[1], s[1])), g = tanh(add(x[2], s[2])),
               o = sigmoid(add(x[3], s[3])), cell = add(mul(f, c), mul(i, g)), hidden = mul(o, tanh(cell));
  return {l[kWhr].defined() ? linear(hidden, l[kWhr]) : hidden, cell};
}

/// Operands of 16 bits, which only kernels of a GPU take, as what arithmetic computes them in.
Tensor widened(const Tensor& x) { return x.defined() ? to(x, compute_type(x.dtype())) : x; }
RnnResult composite(Layer l, const RnnParams& p) {
  const DType dtype = l[kX].dtype();
  for (size_t i = 0; i < kSizes; ++i) l[i] = widened(l[i]);
  const Tensor gates = linear(l[kX], l[kWih], l[kBih]);
  const int64_t batch = l[kH].size(0);
  std::vector<int64_t> begin(size_t(p.steps) + 1);
  for (size_t t = 0; t < size_t(p.steps); ++t) begin[t + 1] = begin[t] + rows_of(l, int64_t(t));
  std::vector<Tensor> outputs(size_t(p.steps));
  Tensor h = l[kH], c = l[kC];
  for (int64_t k = 0; k < p.steps; ++k) {
    const int64_t t = p.reverse ? p.steps - 1 - k : k, rows = rows_of(l, t);
    const auto active = [&](const Tensor& s) { return rows == batch || !s.defined() ? s : narrow(s, 0, 0, rows); };
    const auto rest = [&](const Tensor& s, const Tensor& old) {  // rows that this step does not have stay as they are
      return rows == batch || !s.defined() ? s : cat({s, narrow(old, 0, rows, batch - rows)});
    };
    const auto [next_h, next_c] = step(p.op, l, narrow(gates, 0, begin[size_t(t)], rows), active(h), active(c));
    outputs[size_t(t)] = next_h;
    h = rest(next_h, h), c = rest(next_c, c);
  }
  return {to(cat(outputs), dtype), to(h, dtype), c.defined() ? to(c, dtype) : c};
}

/// The gradients by the composite form, itself recorded: for second derivatives.
Grads composite_gradient(const Layer& l, const RnnParams& p, const Grads& g, Needs needs) {
  const bool recorded = modes.grad;  // else only compared: what was saved may want no gradient any more
  ScopedMode on(modes.grad, true);
  Layer fresh = l;  // views, so that one tensor in two places has two gradients
  std::vector<Tensor> wanted, outputs, gradients;
  for (int64_t i = 0; i < kSizes; ++i)
    if (l[size_t(i)].defined() && needs[i])
      wanted.push_back(fresh[size_t(i)] = recorded ? view(l[size_t(i)], l[size_t(i)].shape())
                                                   : l[size_t(i)].detach().requires_grad_());
  const RnnResult r = composite(fresh, p);
  const Tensor* all[] = {&r.output, &r.h, &r.c};
  for (int64_t i = 0; i < g.size(); ++i)
    if (g[i].defined() && all[i]->requires_grad()) outputs.push_back(*all[i]), gradients.push_back(g[i]);
  Grads out(kSizes);
  if (outputs.empty()) return out;
  const std::vector<Tensor> d = grad(outputs, wanted, gradients, {.create_graph = true, .allow_unused = true});
  for (int64_t i = 0, next = 0; i < kSizes; ++i)
    if (l[size_t(i)].defined() && needs[i]) out[i] = d[size_t(next++)];
  return out;
}

Grads backward(const Layer& l, const Tensor& y, const Tensor& reserve, const RnnParams& p, const Grads& g,
               Needs needs) {
  const bool gru = p.op == RnnOp::Gru, lstm = p.op == RnnOp::Lstm;
  const Tensor& w = l[kWhh];
  Grads out(kSizes);
  const auto wants = [&](int64_t i) { return l[size_t(i)].defined() && needs[i]; };
  const Tensor dgates =
      empty({y.size(0), w.size(0)}, {.dtype = y.dtype(), .device = y.device()});  // of the inputs' sums
  for (int64_t i : {int64_t(kWhh), int64_t(kWhr)})
    if (wants(i)) out[i] = empty_like(l[size_t(i)]);
  if (gru && wants(kBhh)) out[kBhh] = empty_like(l[kBhh]);
  out[kH] = empty_like(l[kH]);
  const Tensor c0 = widened(l[kC]), dc0 = lstm ? empty_like(c0) : c0;
  const auto dense = [](const Tensor& x) { return x.defined() ? x.contiguous() : x; };
  const Tensor dy = dense(g[0]), dh = dense(g[1]), dc = g.size() > 2 ? widened(dense(g[2])) : Tensor();
  backend(y).rnn_backward(context(y), {.dx = dgates,
                                       .dw = out[kWhh],
                                       .dbias = out[kBhh],
                                       .dprojection = out[kWhr],
                                       .dh0 = out[kH],
                                       .dc0 = dc0,
                                       .dy = dy,
                                       .dh = dh,
                                       .dc = dc,
                                       .y = y,
                                       .reserve = reserve,
                                       .w = w,
                                       .projection = l[kWhr],
                                       .h0 = l[kH],
                                       .c0 = c0,
                                       .batch_sizes = l[kSizes],
                                       .params = p});
  if (lstm) out[kC] = to(dc0, y.dtype());
  if (wants(kX)) out[kX] = matmul(dgates, l[kWih]);
  if (wants(kWih)) out[kWih] = matmul(t(dgates), l[kX]);
  if (wants(kBih)) out[kBih] = sum(dgates, 0);
  if (!gru && wants(kBhh)) out[kBhh] = out[kBih].defined() ? out[kBih] : sum(dgates, 0);
  return out;
}

/// By the kernel: all steps in one call.
RnnResult fused(const Layer& l, const RnnParams& p) {
  const bool lstm = p.op == RnnOp::Lstm, gru = p.op == RnnOp::Gru;
  const int64_t rows = l[kX].size(0), hidden = l[kWhh].size(0) / gates_of(p.op);
  const TensorOptions like{.dtype = l[kX].dtype(), .device = l[kX].device()};
  Tensor y = empty({rows, l[kH].size(1)}, like), h = empty_like(l[kH]), c, reserve;
  const Inputs inputs(std::span(l.data(), size_t(kSizes)));
  if ((lstm || gru) && wants_grad(inputs))
    reserve = empty({rows, (lstm ? 5 : 4) * hidden}, {.dtype = compute_type(l[kX].dtype()), .device = like.device});
  {
    NoGrad guard;
    const Tensor c0 = widened(l[kC]);
    if (lstm) c = empty_like(c0);
    const bool both = !gru && l[kBih].defined();  // biases that are only added are added once
    const Tensor gates = linear(l[kX], l[kWih], both ? add(l[kBih], l[kBhh]) : l[kBih]);
    backend(y).rnn(context(y), {.y = y,
                                .h = h,
                                .c = c,
                                .reserve = reserve,
                                .x = gates,
                                .w = l[kWhh],
                                .bias = both ? Tensor() : l[kBhh],
                                .projection = l[kWhr],
                                .h0 = l[kH],
                                .c0 = c0,
                                .batch_sizes = l[kSizes],
                                .params = p});
    if (lstm) c = to(c, y.dtype());
  }
  const Tensor results[] = {y, h, c};
  record_outputs("rnn_layer", std::span(results, lstm ? 3 : 2), inputs,
                 save(l[kX], l[kWih], l[kWhh], l[kBih], l[kBhh], l[kWhr], l[kH], l[kC], l[kSizes], y, reserve),
                 [p](Needs needs, const Grads& g, const Tensor& x, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, const Tensor& h, const Tensor& c,
                     const Tensor& sizes, const Tensor& y, const Tensor& reserve) {
                   const Layer l = {x, w_ih, w_hh, b_ih, b_hh, w_hr, h, c, sizes};
                   if (size_of(y.dtype()) == 2 && !modes.grad)  // no comparison: see compare_fused()
                     return backward(l, y, reserve, p, g, needs);
                   return gradient_by_kernel(
                       "rnn_layer_backward",
                       g[0].defined()   ? g[0]
                       : g[1].defined() ? g[1]
                                        : g[2],
                       [&] { return backward(l, y, reserve, p, g, needs); },
                       [&] { return composite_gradient(l, p, g, needs); });
                 });
  return {y, h, c};
}

constexpr const char* kLayerName = "rnn_layer";
constexpr CastRule kLower = {kLayerName, CastPolicy::Lower, CastPolicy::Lower};  // sums and c stay float32 within

void check_shape(const char* what, const Tensor& x, const Shape& shape) {
  check(x.shape() == shape, "[{}] expected {} of shape {}, got {}", kLayerName, what, shape, x);
}
void check_operands(RnnOp op, const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& w) {
  check_defined(kLayerName, "x", x), check_defined(kLayerName, "h", h);
  check_defined(kLayerName, "weight_ih", w.weight_ih), check_defined(kLayerName, "weight_hh", w.weight_hh);
  common_device(kLayerName, {&x, &h, &c, &w.weight_ih, &w.weight_hh, &w.bias_ih, &w.bias_hh, &w.weight_hr});
  for (const Tensor* t : {&x, &h, &c, &w.weight_ih, &w.weight_hh, &w.bias_ih, &w.bias_hh, &w.weight_hr})
    check(!t->defined() || (is_floating(x.dtype()) && t->dtype() == x.dtype()),
          "[{}] expected operands of one floating-point dtype, got {} and {}", kLayerName, x, *t);
  const int64_t gates = gates_of(op);
  check(w.weight_ih.dim() == 2 && w.weight_ih.size(0) > 0 && w.weight_ih.size(0) % gates == 0,
        "[{}] expected weight_ih (G H, in) with G = {}, got {}", kLayerName, gates, w.weight_ih);
  check(x.size(-1) == w.weight_ih.size(1), "[{}] expected input with {} features (weight_ih is {}), got {}", kLayerName,
        w.weight_ih.size(1), w.weight_ih.shape(), x);
  check(!w.weight_hr.defined() || op == RnnOp::Lstm, "[{}] expected weight_hr for Lstm only, got {}", kLayerName,
        w.weight_hr);
  const int64_t wide = w.weight_ih.size(0), hidden = wide / gates,
                out = w.weight_hr.defined() ? w.weight_hr.size(0) : hidden;
  check_shape("weight_hh", w.weight_hh, {wide, out});
  check(w.bias_ih.defined() == w.bias_hh.defined(), "[{}] expected both biases or none, got one", kLayerName);
  if (w.bias_ih.defined()) check_shape("bias_ih", w.bias_ih, wide), check_shape("bias_hh", w.bias_hh, wide);
  if (w.weight_hr.defined()) check_shape("weight_hr", w.weight_hr, {out, hidden});
  check(h.dim() == 2, "[{}] expected h of shape (B, {}), got {}", kLayerName, out, h);
  check_shape("h", h, {h.size(0), out});
  check(c.defined() == (op == RnnOp::Lstm), "[{}] expected c for Lstm, and only there, got {}", kLayerName,
        c.defined() ? "one" : "none");
  if (c.defined()) check_shape("c", c, {h.size(0), hidden});
}
/// The rows of all steps are those of x, and the first step's those of h.
void check_batch_sizes(const Tensor& sizes, const Tensor& x, const Tensor& h) {
  check(sizes.dtype() == kInt64 && sizes.device().is_cpu() && sizes.dim() == 1 && sizes.numel() > 0 &&
            sizes.is_contiguous(),
        "[{}] expected batch_sizes as int64 (steps) on the host, got {}", kLayerName, sizes);
  const int64_t* n = sizes.data<int64_t>();
  int64_t total = 0, before = h.size(0);
  for (int64_t t = 0; t < sizes.numel(); before = n[t], total += n[t], ++t)
    check(n[t] > 0 && n[t] <= before && (t > 0 || n[t] == before),
          "[{}] expected batch_sizes that start with {}, the rows of h, and do not grow, got {} at step {}", kLayerName,
          h.size(0), n[t], t);
  check(x.dim() == 2 && x.size(0) == total, "[{}] expected ({}, in) rows by batch_sizes, got {}", kLayerName, total, x);
}

}  // namespace

RnnResult rnn_layer(RnnOp op, const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& w,
                    const RnnLayerOptions& o) {
  if (modes.autocast) [[unlikely]]
    if (detail::CastScope cast(kLower, x, h, c, w.weight_ih, w.weight_hh); cast)
      return rnn_layer(op, cast(x), cast(h), cast(c),
                       {cast(w.weight_ih), cast(w.weight_hh), cast(w.bias_ih), cast(w.bias_hh), cast(w.weight_hr)}, o);
  check_operands(op, x, h, c, w);
  const bool packed = o.batch_sizes.defined();
  if (packed) check_batch_sizes(o.batch_sizes, x, h);
  else
    check(x.dim() == 3 && x.size(0) > 0 && x.size(1) == h.size(0),
          "[{}] expected input (T, {}, in) with T above 0, got {}", kLayerName, h.size(0), x);
  const RnnParams p{op, o.reverse, packed ? o.batch_sizes.numel() : x.size(0)};
  const bool narrow = !x.device().is_cpu();
  const auto fit = [narrow](const Tensor& t) { return t.defined() ? (narrow ? t : widened(t)).contiguous() : t; };
  const Tensor rows = packed ? x : reshape(x, {x.size(0) * x.size(1), x.size(2)});
  const Layer layer = {fit(rows),        fit(w.weight_ih), fit(w.weight_hh), fit(w.bias_ih), fit(w.bias_hh),
                       fit(w.weight_hr), fit(h),           fit(c),           o.batch_sizes};
  RnnResult r = kernel_or_composite(
      "rnn_layer", bool(backend(x).rnn), [&] { return fused(layer, p); }, [&] { return composite(layer, p); });
  if (!packed) r.output = view(r.output, {x.size(0), x.size(1), r.output.size(1)});
  for (Tensor* t : {&r.output, &r.h, &r.c})
    if (t->defined()) *t = to(*t, x.dtype());
  return r;
}

static RnnResult cell(RnnOp op, const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& w) {
  check(x.defined() && x.dim() == 2, "[{}] expected input (B, in) of a cell, got {}", kLayerName, x);
  RnnResult r = rnn_layer(op, unsqueeze(x, 0), h, c, w);
  r.output = squeeze(r.output, 0);
  return r;
}
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const RnnWeights& w) try {
  return cell(RnnOp::Tanh, x, h, {}, w).output;
} catch (...) {
  fail_as("rnn_tanh_cell");
}
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const RnnWeights& w) try {
  return cell(RnnOp::Relu, x, h, {}, w).output;
} catch (...) {
  fail_as("rnn_relu_cell");
}
Tensor gru_cell(const Tensor& x, const Tensor& h, const RnnWeights& w) try {
  return cell(RnnOp::Gru, x, h, {}, w).output;
} catch (...) {
  fail_as("gru_cell");
}
std::pair<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& w) try {
  const RnnResult r = cell(RnnOp::Lstm, x, h, c, w);
  return {r.output, r.c};
} catch (...) {
  fail_as("lstm_cell");
}

}  // namespace tapir::inline v0
