#include <algorithm>
#include <cmath>
#include <limits>

#include "../ops/create.h"
#include "../ops/diagonal.h"
#include "ops.h"

namespace tapir::inline v0::onnx {
namespace {

using entry::Matmul;
using entry::Norm;
using ir::View;

std::vector<int64_t> list(const int64_t* from, int64_t n) { return {from, from + n}; }

Value finished(Export& e, const Value& x, MatmulFinish finish) {
  if (finish == MatmulFinish::None) return x;
  return unary(e, x, {finish == MatmulFinish::Relu ? UnaryOp::Relu : UnaryOp::GeluTanh, 1});
}

/// a b, and the bias where Gemm can add it. Gemm transposes its operands itself, so that w^T needs no node.
Value product(Export& e, const Value* bias) {
  const View &out = e.view(&Matmul::out), &a = e.view(&Matmul::a), &b = e.view(&Matmul::b);
  int64_t flags[2] = {};
  const auto operand = [&](const View& v, int64_t& flag) {
    if (const auto x = e.values.direct(v)) return *x;
    const auto x = v.shape.size() == 2 ? e.values.direct(transposed(v)) : std::nullopt;
    return flag = x ? 1 : 0, x ? *x : e.values.read(v);
  };
  const Value x = operand(a, flags[0]), w = operand(b, flags[1]);
  if (!bias && !flags[0] && !flags[1]) return e.b.node("MatMul", {x.name, w.name}, a.dtype, out.shape);
  std::vector<std::string> names{x.name, w.name};
  if (bias) names.push_back(bias->name);
  return e.b.node("Gemm", names, a.dtype, out.shape, {{"transA", flags[0]}, {"transB", flags[1]}});
}

/// The padding at both ends of each axis, with what ceil_mode adds at the far end: ONNX's own rule of rounding up is not used.
std::vector<int64_t> pads_of(const PoolParams& p, const Shape& in, const Shape& out) {
  std::vector<int64_t> pads = list(p.padding, p.spatial);
  for (int64_t i = 0; i < p.spatial; ++i) {
    const int64_t extent = p.dilation[i] * (p.kernel[i] - 1) + 1;
    const int64_t needed = (out[i + 2] - 1) * p.stride[i] + extent - in[i + 2] - p.padding[i];
    pads.push_back(p.ceil_mode ? std::max<int64_t>(0, needed) : p.padding[i]);
  }
  return pads;
}

/// A matrix (in, out) whose column i averages window i, the inputs from floor(i in / out) to before ceil((i + 1) in / out).
Value averages(Export& e, int64_t in, int64_t out, DType dtype) {
  std::vector<double> weights(size_t(in * out), 0);
  for (int64_t i = 0; i < out; ++i) {
    const int64_t first = i * in / out, last = ((i + 1) * in + out - 1) / out;
    for (int64_t j = first; j < last; ++j) weights[size_t(j * out + i)] = 1 / double(last - first);
  }
  return e.b.constant(tensor(std::span<const double>(weights), {in, out}, {.dtype = dtype}));
}

/// Averages over windows of different sizes: a matrix product along each axis.
Value adaptive_average(Export& e, const Value& x, const PoolParams& p) {
  if (p.spatial > 2) e.refuse("; in three dimensions ONNX pools adaptively only to sizes that divide the input's");
  const Shape& out = e.view(&entry::Pool::y).shape;
  const int64_t last = x.shape.size() - 1;
  const auto along_last = [&](const Value& v, int64_t d) {
    Shape s = v.shape;
    s[last] = out[d];
    return e.b.node("MatMul", {v.name, averages(e, x.shape[d], out[d], x.dtype).name}, x.dtype, s);
  };
  const Value rows = along_last(x, last);
  if (p.spatial == 1) return rows;
  const Dims swap{0, 1, 3, 2};
  return e.b.transpose(along_last(e.b.transpose(rows, swap), 2), swap);
}

Value adaptive_pool(Export& e, const Value& x, const PoolParams& p) {
  const Shape& out = e.view(&entry::Pool::y).shape;
  const bool max = p.op == PoolOp::AdaptiveMax;
  std::vector<int64_t> kernel;
  for (int64_t i = 2; i < out.size(); ++i) {
    if (x.shape[i] % out[i] == 0) kernel.push_back(x.shape[i] / out[i]);
    else if (!max) return adaptive_average(e, x, p);
    else e.refuse(tapir::format("; ONNX has no maxima of windows of different sizes, got {} to {}", x.shape, out));
  }
  if (numel_of(Shape(std::span(out.data() + 2, size_t(p.spatial)))) == 1)
    return e.b.node(max ? "GlobalMaxPool" : "GlobalAveragePool", {x.name}, x.dtype, out);
  return e.b.node(max ? "MaxPool" : "AveragePool", {x.name}, x.dtype, out,
                  {{"kernel_shape", kernel}, {"strides", kernel}});
}

/// (x - mean) / sqrt(var + eps) over these axes; Rms: x / sqrt(mean of x^2 + eps).
Value normalized(Export& e, Value x, const std::vector<int64_t>& axes, const NormParams& p) {
  if (p.op != NormOp::Rms) x = e.two("Sub", x, reduced(e, "ReduceMean", x, axes));
  const Value square = reduced(e, "ReduceMean", e.two("Mul", x, x), axes);
  return e.two("Div", x, e.b.unary("Sqrt", e.with("Add", square, p.eps)));
}

/// y weight + bias, both reshaped to `shape`; either may be absent.
Value scaled(Export& e, Value y, const Shape& shape) {
  const auto combine = [&](const char* op, auto operand) {
    if (e.has(operand)) y = e.two(op, y, e.b.reshape(e.b.cast(e.read(operand), y.dtype), shape));
  };
  combine("Mul", &Norm::weight), combine("Add", &Norm::bias);
  return y;
}

Value batch_norm(Export& e, const Value& x, const NormParams& p) {
  const int64_t channels = x.shape[1];
  if (p.training) {
    Shape shape = Dims::filled(x.shape.size(), 1);
    std::vector<int64_t> axes;
    for (int64_t d = 0; d < x.shape.size(); ++d)
      if (d != 1) axes.push_back(d);
    shape[1] = channels;
    return scaled(e, normalized(e, x, axes, p), shape);
  }
  const auto vector = [&](auto operand, double otherwise) {
    return e.has(operand) ? e.read(operand).name : e.b.constant(full({channels}, otherwise, {.dtype = x.dtype})).name;
  };
  return e.b.node("BatchNormalization",
                  {x.name, vector(&Norm::weight, 1), vector(&Norm::bias, 0), vector(&Norm::running_mean, 0),
                   vector(&Norm::running_var, 1)},
                  x.dtype, x.shape, {{"epsilon", p.eps}});
}

/// The scores where the mask is true, else the lowest float32.
Value masked(Export& e, Value scores, const Value& mask) {
  return e.b.pointwise("Where", {mask, scores, e.number(std::numeric_limits<float>::lowest(), scores.dtype)});
}

}  // namespace

Value matmul(Export& e) {
  const auto p = e.call->params<MatmulParams>();
  if (p.finish == MatmulFinish::GeluTanhGrad) e.refuse();
  const bool gemm = e.view(&Matmul::out).shape.size() == 2 && p.alpha == 1;
  std::optional<Value> bias;
  if (e.has(&Matmul::bias)) bias = e.read(&Matmul::bias, true);
  Value y = product(e, gemm && bias ? &*bias : nullptr);
  if (p.alpha != 1) y = e.with("Mul", y, p.alpha);
  if (bias && !gemm) y = e.two("Add", y, *bias);
  if (p.beta != 0) y = e.two("Add", y, e.with("Mul", e.read(&Matmul::out), p.beta));
  if (e.has(&Matmul::aux)) {
    if (p.finish == MatmulFinish::None) e.refuse();
    e.write(&Matmul::aux, y);
  }
  return finished(e, y, p.finish);
}

static std::vector<Attribute> conv_attributes(const ConvParams& p) {
  std::vector<int64_t> pads = list(p.padding, p.spatial);
  pads.insert(pads.end(), p.padding, p.padding + p.spatial);
  return {{"dilations", list(p.dilation, p.spatial)},
          {"group", p.groups},
          {"pads", pads},
          {"strides", list(p.stride, p.spatial)}};
}
Value conv(Export& e) {
  using entry::Conv;
  std::vector<std::string> names{e.read(&Conv::x).name, e.read(&Conv::w).name};
  if (e.has(&Conv::bias)) names.push_back(e.read(&Conv::bias).name);
  const View& y = e.view(&Conv::y);
  return e.b.node("Conv", names, y.dtype, y.shape, conv_attributes(e.call->params<ConvParams>()));
}
Value conv_transpose(Export& e) {
  using entry::ConvBackwardData;
  const auto p = e.call->params<ConvParams>();
  const Value x = e.read(&ConvBackwardData::dy), w = e.read(&ConvBackwardData::w);
  const Shape& out = e.view(&ConvBackwardData::dx).shape;
  std::vector<int64_t> more;
  for (int64_t i = 0; i < p.spatial; ++i)
    more.push_back(out[i + 2] - (x.shape[i + 2] - 1) * p.stride[i] + 2 * p.padding[i] -
                   p.dilation[i] * (w.shape[i + 2] - 1) - 1);
  std::vector<Attribute> attributes = conv_attributes(p);
  attributes.push_back({"output_padding", more});
  return e.b.node("ConvTranspose", {x.name, w.name}, x.dtype, out, std::move(attributes));
}

Value pool(Export& e) {
  const auto p = e.call->params<PoolParams>();
  const Value x = e.read(&entry::Pool::x);
  if (p.op == PoolOp::AdaptiveAvg || p.op == PoolOp::AdaptiveMax) return adaptive_pool(e, x, p);
  const Shape& out = e.view(&entry::Pool::y).shape;
  const std::vector<int64_t> pads = pads_of(p, x.shape, out);
  std::vector<Attribute> attributes{
      {"kernel_shape", list(p.kernel, p.spatial)}, {"strides", list(p.stride, p.spatial)}, {"pads", pads}};
  if (p.op == PoolOp::Max) {
    attributes.push_back({"dilations", list(p.dilation, p.spatial)});
    return e.b.node("MaxPool", {x.name}, x.dtype, out, std::move(attributes));
  }
  double window = 1;
  for (int64_t i = 0; i < p.spatial; ++i) {
    window *= double(p.kernel[i]);
    if (p.count_include_pad && pads[size_t(p.spatial + i)] > p.padding[i])
      e.refuse("; ceil_mode with count_include_pad counts differently in ONNX");
  }
  attributes.push_back({"count_include_pad", p.count_include_pad || p.divisor ? 1 : 0});
  const Value y = e.b.node("AveragePool", {x.name}, x.dtype, out, std::move(attributes));
  return p.divisor ? e.with("Mul", y, window / double(p.divisor)) : y;
}

Value resample(Export& e) {
  const auto p = e.call->params<ResampleParams>();
  const bool nearest = p.op == ResampleOp::Nearest, exact = p.op == ResampleOp::NearestExact,
             filtered = p.op == ResampleOp::FilteredLinear || p.op == ResampleOp::FilteredCubic,
             cubic = p.op == ResampleOp::Cubic || p.op == ResampleOp::FilteredCubic;
  if (filtered && e.opset < 18) e.refuse("; antialias needs opset 18");
  const Value x = e.read(&entry::Resample::x);
  const Shape& out = e.view(&entry::Resample::y).shape;
  std::vector<float> scales{1, 1};
  bool given = false;  // is there a scale that is not the ratio of the sizes?
  for (int64_t i = 0; i < p.spatial; ++i) {
    const double ratio = double(out[i + 2]) / double(x.shape[i + 2]);
    scales.push_back(float(p.scale[i] > 0 ? p.scale[i] : ratio));
    given |= p.scale[i] > 0 && p.scale[i] != ratio;
  }
  std::vector<std::string> names{x.name, "", given ? e.b.constant(tensor(scales)).name : ""};
  if (!given) names.push_back(e.b.extents(out.vec()));
  std::vector<Attribute> attributes{{"mode", nearest || exact ? "nearest"
                                             : cubic          ? "cubic"
                                                              : "linear"},
                                    {"coordinate_transformation_mode", p.align_corners ? "align_corners"
                                                                       : nearest       ? "asymmetric"
                                                                                       : "half_pixel"}};
  if (nearest || exact) attributes.push_back({"nearest_mode", exact ? "round_prefer_ceil" : "floor"});
  if (cubic) attributes.push_back({"cubic_coeff_a", filtered ? -0.5 : -0.75});
  if (filtered) attributes.push_back({"antialias", 1});
  return e.b.node("Resize", names, x.dtype, out, std::move(attributes));
}

Value norm(Export& e) {
  const auto p = e.call->params<NormParams>();
  const Value x = e.read(&Norm::x);
  const Shape& shape = x.shape;
  if (e.has(&Norm::mean) || e.has(&Norm::rstd)) e.refuse("; statistics are not exported");
  if (p.op == NormOp::Batch) return batch_norm(e, x, p);
  const int64_t rank = shape.size();
  if (p.op == NormOp::Group) {
    const Shape grouped{shape[0], p.groups, shape[1] / p.groups,
                        numel_of(shape) / std::max<int64_t>(1, shape[0] * shape[1])};
    const Value y = normalized(e, e.b.reshape(x, grouped), {2, 3}, p);
    return e.b.reshape(scaled(e, y, {1, p.groups, grouped[2], 1}), shape);
  }
  const Shape tail = std::span(shape.data() + rank - p.axes, size_t(p.axes));
  if (p.op == NormOp::Rms) {
    std::vector<int64_t> axes;
    for (int64_t d = rank - p.axes; d < rank; ++d) axes.push_back(d);
    return scaled(e, normalized(e, x, axes, p), tail);
  }
  std::vector<std::string> names{x.name};
  names.push_back(e.has(&Norm::weight) ? e.read(&Norm::weight).name
                                       : e.b.constant(full(tail, 1.0, {.dtype = x.dtype})).name);
  if (e.has(&Norm::bias)) names.push_back(e.read(&Norm::bias).name);
  return e.b.node("LayerNormalization", names, x.dtype, shape, {{"axis", -p.axes}, {"epsilon", p.eps}});
}

Value attention(Export& e) {
  using entry::Attention;
  const auto p = e.call->params<AttentionParams>();
  const bool has_mask = e.has(&Attention::mask);
  if (e.has(&Attention::lse)) e.refuse("; the sums of its softmax are not exported");
  if (p.dropout_p > 0) e.refuse("; dropout is not exported");
  if (has_mask && e.view(&Attention::mask).dtype == kInt64) e.refuse("; a length of the keys is not exported");
  Value q = e.read(&Attention::q), k = e.values.read(transposed(e.view(&Attention::k))), v = e.read(&Attention::v);
  const Shape out = e.view(&Attention::out).shape;
  const int64_t batch = out[0], heads = out[1], queries = out[2], groups = k.shape[1], keys = k.shape[3];
  Shape scores{batch, heads, queries, keys}, result = out;
  const bool shared = groups != heads;
  const auto split = [&](const Shape& s, int64_t first, int64_t second) {
    return Shape{s[0], first, second, s[2], s[3]};
  };
  if (shared) {
    scores = split(scores, groups, heads / groups), result = split(out, groups, heads / groups);
    q = e.b.reshape(q, split(q.shape, groups, heads / groups));
    k = e.b.reshape(k, split(k.shape, groups, 1)), v = e.b.reshape(v, split(v.shape, groups, 1));
  }
  Value s = e.with("Mul", e.b.node("MatMul", {q.name, k.name}, q.dtype, scores), p.scale);
  std::optional<Value> visible;
  if (p.causal) s = masked(e, s, e.b.constant(tril(ones({queries, keys}, {.dtype = kBool}))));
  if (has_mask) {
    Value mask = e.read(&Attention::mask, true);
    if (shared && mask.shape.size() == 4)
      mask =
          e.b.reshape(mask, mask.shape[1] == 1 ? split(mask.shape, 1, 1) : split(mask.shape, groups, heads / groups));
    if (mask.dtype == kBool) s = masked(e, s, mask), visible = e.b.cast(mask, s.dtype);
    else s = e.two("Add", s, mask);
  }
  Value weights = e.b.unary("Softmax", s, {{"axis", -1}});
  if (visible) weights = e.two("Mul", weights, *visible);  // a query that sees no key gives zeros, as in the kernel
  return e.b.reshape(e.b.node("MatMul", {weights.name, v.name}, q.dtype, result), out);
}

}  // namespace tapir::inline v0::onnx
