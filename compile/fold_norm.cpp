// Note [Folded norms]
// In evaluation a batch norm is (x - mean) s + bias with s = weight / sqrt(var + eps). Behind a convolution with weights w and bias b that
// is the convolution with w s and (b - mean) s + bias. The calls that make those read nothing but what lies outside, so that
// prepare_calls() has them run once, and again when somebody wrote there.
#include <algorithm>

#include "dependencies.h"
#include "overlap.h"
#include "params.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Conv, entry::Norm, entry::Unary;

class Folder {
 public:
  explicit Folder(Program& p) : p_(p), uses_(p), fixed_(fixed_blocks(p)), users_(users_of(p)) {}
  void run() {
    std::vector<std::vector<Call>> before(p_.calls.size());
    std::vector<bool> dead(p_.calls.size());
    for (int at = 0; at < int(p_.calls.size()); ++at) {
      const int conv = convolution_of(at);
      if (conv < 0) continue;
      fold(p_.calls[size_t(conv)], p_.calls[size_t(at)], before[size_t(conv)]);
      dead[size_t(at)] = true;
    }
    std::vector<Call> calls;
    for (size_t at = 0; at < p_.calls.size(); ++at) {
      std::move(before[at].begin(), before[at].end(), std::back_inserter(calls));
      if (!dead[at]) calls.push_back(std::move(p_.calls[at]));
    }
    p_.calls = std::move(calls);
    remake_lifetimes(p_);
  }

 private:
  int convolution_of(int norm) const;
  void fold(Call& conv, const Call& norm, std::vector<Call>& to);
  View temporary(const Shape& shape, const Strides& strides, const View& like);
  /// Absent, or numbers of that type that no call of the program writes and no argument brings.
  bool is_constant(const View& v, DType dtype) const {
    return v.kind == View::Kind::Absent ||
           (v.kind == View::Kind::Memory && v.block >= 0 && v.dtype == dtype && uses_.writes[size_t(v.block)] == 0 &&
            !fixed_[size_t(v.block)] && p_.blocks[size_t(v.block)].kind == Block::Kind::Outside);
  }

  Program& p_;
  const Uses uses_;
  const std::vector<bool> fixed_;
  const std::vector<std::vector<int>> users_;
};

/// The convolution whose result call `at`, a batch norm in evaluation, is alone to read; -1: there is none.
int Folder::convolution_of(int at) const {
  const Call& norm = p_.calls[size_t(at)];
  if (!is<Norm>(norm)) return -1;
  const auto params = norm.params<NormParams>();
  if (params.op != NormOp::Batch || params.training) return -1;
  const View &y = norm[&Norm::y], &x = norm[&Norm::x];
  if (x.kind != View::Kind::Memory || x.block < 0 || y.block < 0 || x.dtype != y.dtype ||
      (x.dtype != kFloat32 && x.dtype != kFloat64) || fixed_[size_t(x.block)] ||
      p_.blocks[size_t(x.block)].kind != Block::Kind::Temporary || users_[size_t(x.block)].size() != 2)
    return -1;
  const int from = users_[size_t(x.block)][0];
  const Call& conv = p_.calls[size_t(from)];
  if (from == at || !is<Conv>(conv) || conv.deterministic != norm.deterministic || !same_place(conv[&Conv::y], x))
    return -1;
  bool ok = norm[&Norm::mean].kind == View::Kind::Absent && norm[&Norm::rstd].kind == View::Kind::Absent;
  for (const View& v : {norm[&Norm::weight], norm[&Norm::bias], norm[&Norm::running_mean], norm[&Norm::running_var]})
    ok = ok && is_constant(v, x.dtype);
  ok = ok && conv[&Conv::w].kind == View::Kind::Memory && is_constant(conv[&Conv::w], x.dtype) &&
       is_constant(conv[&Conv::bias], x.dtype);
  for (const int user : users_[size_t(y.block)]) ok = ok && (user <= from || user >= at);  // y can be written earlier
  for (const int user : users_[size_t(y.block)]) ok = ok && user != from;
  ok = ok && (!writes_outside(norm, p_) || may_cross(p_, from, at));
  return ok ? from : -1;
}

View Folder::temporary(const Shape& shape, const Strides& strides, const View& like) {
  View v = like;
  v.block = int(p_.blocks.size()), v.offset = 0, v.shape = shape, v.strides = strides;
  p_.blocks.push_back({.bytes = numel_of(shape) * size_of(like.dtype), .device = like.device, .death = 0});
  return v;
}

Call unary_of(const Call& like, UnaryOp op, const View& out, const View& x) {
  Call call = call_of<Unary>(like, UnaryParams{op});
  call[&Unary::out] = out, call[&Unary::x] = x;
  return call;
}
Call binary_of(const Call& like, BinaryOp op, const View& out, const View& a, const View& b) {
  Call call = call_of<Binary>(like, BinaryParams{op});
  call[&Binary::out] = out, call[&Binary::a] = a, call[&Binary::b] = b;
  return call;
}

void Folder::fold(Call& conv, const Call& norm, std::vector<Call>& to) {
  const View w = conv[&Conv::w], b = conv[&Conv::bias];
  const View &weight = norm[&Norm::weight], &bias = norm[&Norm::bias], &mean = norm[&Norm::running_mean];
  const auto vector = [&] { return temporary({w.shape[0]}, {1}, w); };
  const auto binary = [&](BinaryOp op, const View& out, const View& x, const View& y) {
    to.push_back(binary_of(norm, op, out, x, y));
    return out;
  };
  View eps;
  eps.kind = View::Kind::Number, eps.dtype = w.dtype, eps.device = w.device;
  eps.number = norm.params<NormParams>().eps;
  View scale = vector(), shift = vector();
  const View var = binary(BinaryOp::Add, vector(), norm[&Norm::running_var], eps);
  to.push_back(unary_of(norm, UnaryOp::Rsqrt, scale, var));
  if (weight.kind == View::Kind::Memory) scale = binary(BinaryOp::Mul, vector(), scale, weight);
  if (b.kind == View::Kind::Memory) binary(BinaryOp::Sub, shift, b, mean);
  else to.push_back(unary_of(norm, UnaryOp::Neg, shift, mean));
  shift = binary(BinaryOp::Mul, vector(), shift, scale);
  if (bias.kind == View::Kind::Memory) shift = binary(BinaryOp::Add, vector(), shift, bias);
  View along = scale;  // (O) as the weights have it
  along.shape = w.shape, along.strides = Strides::filled(w.shape.size(), 0);
  along.strides[0] = 1;
  const View scaled = temporary(w.shape, is_dense(w.shape, w.strides) ? w.strides : contiguous_strides(w.shape), w);
  conv[&Conv::w] = binary(BinaryOp::Mul, scaled, w, along);
  conv[&Conv::bias] = shift;
  conv[&Conv::y] = norm[&Norm::y];
}

}  // namespace

void fold_norms(Program& program) { Folder(program).run(); }

}  // namespace tapir::inline v0::ir
