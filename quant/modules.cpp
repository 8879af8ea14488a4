#include "modules.h"

#include <tuple>

#include "../core/backend.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/indexing.h"
#include "../ops/matmul.h"
#include "../ops/pointwise.h"
#include "../ops/reduce.h"
#include "../ops/rnn.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::quant {
namespace {

Tensor plain_floats(const Tensor& x) { return x.defined() ? to(x.detach(), kFloat32).clone() : x; }

/// Groups (n, group) as 4-bit integers: of eight scales the one with the least squared error.
std::pair<Tensor, Tensor> quantize_groups(const Tensor& x) {
  const Tensor top = clamp(amax(abs(x), 1, {.keepdim = true}), Scalar(1e-30));
  Tensor best, least;
  for (int i = 0; i < 8; ++i) {
    const Tensor scale = mul(top, (1 - 0.04 * i) / 7), q = clamp(round(div(x, scale)), Scalar(-8.0), Scalar(7.0));
    const Tensor error = sum(square(sub(mul(q, scale), x)), 1, {.keepdim = true});
    best = i ? where(lt(error, least), scale, best) : scale;
    least = i ? minimum(error, least) : error;
  }
  return {to(clamp(round(div(x, best)), Scalar(-8.0), Scalar(7.0)), kInt8), best};
}

}  // namespace

QuantizedWeight quantize_weight(const Tensor& weight, const WeightOptions& o) {
  check(weight.defined() && is_floating(weight.dtype()) && weight.dim() > 0,
        "[quantize_weight] expected a weight of floats with at least 1 dimension, got {}", weight);
  check(o.bits == 8 || o.bits == 4, "[quantize_weight] expected 8 or 4 bits, got {}", o.bits);
  NoGrad guard;
  const Tensor w = to(weight.detach(), kFloat32).contiguous();  // kernels read rows; a transposed one (Conv1D) has none
  check(w.numel() == 0 || all(isfinite(w)).item<bool>(),
        "[quantize_weight] expected finite weights, got {} with NaN or infinity", weight);
  const int64_t rows = w.size(0), columns = rows > 0 ? w.numel() / rows : 0;
  const int64_t group = o.group ? o.group : o.bits == 4 ? 64 : 0;
  check(group >= 0 && (group == 0 || (w.dim() == 2 && columns % group == 0)),
        "[quantize_weight] expected a group that divides the {} columns of {}, got {}", columns, weight, group);
  check(o.bits == 8 || group % 32 == 0, "[quantize_weight] expected a group of 32, 64, 128, ... for 4 bits, got {}",
        group);
  if (o.bits == 4) {
    const auto [q, scale] = quantize_groups(reshape(w, {-1, group}));
    return {pack_int4(reshape(q, {rows, columns})), reshape(scale, {rows, columns / group})};
  }
  const Tensor lines = reshape(w, {group ? -1 : rows, group ? group : columns});
  if (lines.numel() == 0) return {to(w, kInt8), ones(rows, {.device = w.device()})};
  Observer observer({.range = Range::PerChannel, .dtype = kInt8, .symmetric = true});
  observer(lines);
  const Tensor scale = observer.calculate_qparams().scale;
  const Tensor q = reshape(quantize_per_channel(lines, scale, {}, 0, kInt8), w.shape());
  return {q, group ? reshape(scale, {rows, columns / group}) : scale};
}

LinearBase::LinearBase(const Tensor& w, const Tensor& b, const WeightOptions& o)
    : in_features(w.size(1)), out_features(w.size(0)), bits(o.bits), bias(plain_floats(b)) {
  const QuantizedWeight q = quantize_weight(w, o);
  weight = Buffer(q.weight), scale = Buffer(q.scale);
}
std::string LinearBase::extra_repr() {
  std::string s = tapir::format("in_features={}, out_features={}, bias={}", in_features, out_features,
                                nn::detail::bool_text(bias.defined()));
  if (bits != 8) s += tapir::format(", bits={}", bits);
  if (scale.dim() == 2) s += tapir::format(", group={}", in_features / scale.size(1));
  return s;
}

Conv::Conv(nn::ConvBase&& from, const QuantizationParams& input)
    : nn::ConvBase(std::move(from)), float_bias(plain_floats(bias)), input_scale(input.scale),
      input_zero_point(input.zero_point) {
  const QuantizedWeight q = quantize_weight(weight);
  int_weight = Buffer(q.weight), scale = Buffer(q.scale);
  weight = Parameter(), bias = Parameter();
}
Tensor Conv::forward(const Tensor& x) {
  return quantized_conv(x, int_weight, scale, input_scale, input_zero_point, float_bias, options);
}
void Conv::tapir_rename(std::vector<nn::Field>& fields) {
  for (nn::Field& f : fields)
    if (f.name == "int_weight") f.name = "weight";
    else if (f.name == "float_bias") f.name = "bias";
}

Embedding::Embedding(const Tensor& table) : num_embeddings(table.size(0)), embedding_dim(table.size(1)) {
  const QuantizedWeight q = quantize_weight(table);
  weight = Buffer(q.weight), scale = Buffer(q.scale);
}
Tensor Embedding::forward(const Tensor& index) {
  const Tensor at = flatten(index);
  const Tensor rows = mul(tapir::to(index_select(weight, 0, at), kFloat32), unsqueeze(index_select(scale, 0, at), 1));
  Shape shape = index.shape();
  shape.push_back(embedding_dim);
  return reshape(rows, shape);
}

DynamicLSTM::DynamicLSTM(nn::LSTM&& from) : nn::LSTM(std::move(from)) {
  for (size_t i = 0; i < weights.size(); i += size_t(per_layer()))
    for (size_t k = i; k < i + 2; ++k) {
      const QuantizedWeight q = quantize_weight(weights[k]);
      quantized.emplace_back(q.weight), quantized.emplace_back(q.scale);
      weights[k] = Parameter();
    }
  for (Parameter& w : weights)
    if (w.defined()) w.requires_grad_(false);
}
void DynamicLSTM::tapir_rename(std::vector<nn::Field>& fields) {
  nn::LSTM::tapir_rename(fields);
  size_t i = 0;
  for (nn::Field& f : fields)
    if (f.kind == nn::Field::Kind::Buffer) {
      const size_t pair = i / 2;
      f.name = weight_name(pair / 2 * size_t(per_layer()) + pair % 2) + (i % 2 ? "_scale" : "");
      ++i;
    }
}

/// The gates of all inputs in one product, then step by step those of the state.
RnnResult DynamicLSTM::run_layer(int64_t at, const Tensor& x, const nn::LSTMState& state, const Tensor& batch_sizes) {
  const Parameter* w = &weights[size_t(at * per_layer())];
  const Buffer* q = &quantized[size_t(4 * at)];
  const bool packed = batch_sizes.defined(), reverse = bidirectional && at % 2 == 1;
  const int64_t steps = packed ? batch_sizes.numel() : x.size(0), batch = state.h.size(0);
  const Tensor hr = proj_size > 0 ? Tensor(w[bias ? 4 : 2]) : Tensor();
  const Tensor gates = quantized_linear(packed ? x : flatten(x, 0, 1), q[0], q[1],
                                        {.bias = bias ? add(w[2], w[3]) : Tensor(), .dynamic = true});
  std::vector<int64_t> begin(size_t(steps) + 1, 0);
  const auto rows_at = [&](int64_t t) { return packed ? batch_sizes.data<int64_t>()[t] : batch; };
  for (int64_t t = 0; t < steps; ++t) begin[size_t(t) + 1] = begin[size_t(t)] + rows_at(t);
  std::vector<Tensor> outputs(static_cast<size_t>(steps));
  Tensor h = state.h, c = state.c;
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = reverse ? steps - 1 - k : k, rows = rows_at(t);
    const auto first = [&](const Tensor& s) { return rows == batch ? s : narrow(s, 0, 0, rows); };
    const auto with_rest = [&](const Tensor& now, const Tensor& old) {  // rows that this step does not have stay
      return rows == batch ? now : cat({now, narrow(old, 0, rows, batch - rows)});
    };
    const Tensor sums =
        add(narrow(gates, 0, begin[size_t(t)], rows), quantized_linear(first(h), q[2], q[3], {.dynamic = true}));
    const std::vector<Tensor> g = chunk(sums, 4, 1);
    const Tensor cell = add(mul(sigmoid(g[1]), first(c)), mul(sigmoid(g[0]), tanh(g[2])));
    const Tensor wide = mul(sigmoid(g[3]), tanh(cell)), hidden = hr.defined() ? linear(wide, hr) : wide;
    outputs[size_t(t)] = hidden;
    h = with_rest(hidden, h), c = with_rest(cell, c);
  }
  const Tensor y = cat(outputs);
  return {packed ? y : view(y, {steps, batch, y.size(1)}), h, c};
}

TAPIR_DEFINE_FIELDS(LinearBase, WeightOnlyLinear, DynamicLinear, Linear, Conv, Embedding, DynamicLSTM)

}  // namespace tapir::inline v0::quant
