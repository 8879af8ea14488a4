// The methods of Tensor that are operations: each forwards to the function of its name.
#include "ops.h"
#include "pinned.h"

namespace tapir::inline v0 {

Tensor Tensor::to(DType dtype) const { return tapir::to(*this, dtype); }
Tensor Tensor::to(Device device, bool non_blocking) const { return tapir::to(*this, device, non_blocking); }
Tensor Tensor::to(Device device, DType dtype, bool non_blocking) const {
  return tapir::to(*this, device, dtype, non_blocking);
}
Tensor Tensor::to(MemoryFormat format) const { return tapir::contiguous(*this, format); }
Tensor Tensor::cpu() const { return tapir::to(*this, kCPU); }
Tensor Tensor::cuda() const { return tapir::to(*this, kCUDA); }
Tensor Tensor::pin_memory() const { return tapir::pin_memory(*this); }
bool Tensor::is_pinned() const { return tapir::is_pinned(*this); }
Tensor Tensor::contiguous(MemoryFormat format) const { return tapir::contiguous(*this, format); }
Tensor Tensor::clone() const { return tapir::clone(*this); }
Tensor Tensor::view(const Shape& shape) const { return tapir::view(*this, shape); }
Tensor Tensor::reshape(const Shape& shape) const { return tapir::reshape(*this, shape); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const { return tapir::flatten(*this, start_dim, end_dim); }
Tensor Tensor::permute(const Dims& dims) const { return tapir::permute(*this, dims); }
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const { return tapir::transpose(*this, dim0, dim1); }
Tensor Tensor::t() const { return tapir::t(*this); }
Tensor Tensor::squeeze() const { return tapir::squeeze(*this); }
Tensor Tensor::squeeze(const Dims& dims) const { return tapir::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int64_t dim) const { return tapir::unsqueeze(*this, dim); }
Tensor Tensor::expand(const Shape& shape) const { return tapir::expand(*this, shape); }
Tensor Tensor::select(int64_t dim, int64_t index) const { return tapir::select(*this, dim, index); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return tapir::narrow(*this, dim, start, length);
}
Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) const {
  return tapir::slice(*this, dim, start, end, step);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const { return tapir::split(*this, size, dim); }
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const { return tapir::chunk(*this, chunks, dim); }
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const { return tapir::index_select(*this, dim, index); }
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return tapir::gather(*this, dim, index); }
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return tapir::masked_fill(*this, mask, value); }
Tensor Tensor::add(const Operand& other) const { return tapir::add(*this, other); }
Tensor Tensor::sub(const Operand& other) const { return tapir::sub(*this, other); }
Tensor Tensor::mul(const Operand& other) const { return tapir::mul(*this, other); }
Tensor Tensor::div(const Operand& other) const { return tapir::div(*this, other); }
Tensor Tensor::pow(const Operand& exponent) const { return tapir::pow(*this, exponent); }
Tensor Tensor::neg() const { return tapir::neg(*this); }
Tensor Tensor::abs() const { return tapir::abs(*this); }
Tensor Tensor::exp() const { return tapir::exp(*this); }
Tensor Tensor::log() const { return tapir::log(*this); }
Tensor Tensor::sqrt() const { return tapir::sqrt(*this); }
Tensor Tensor::sigmoid() const { return tapir::sigmoid(*this); }
Tensor Tensor::tanh() const { return tapir::tanh(*this); }
Tensor Tensor::relu() const { return tapir::relu(*this); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return tapir::clamp(*this, min, max);
}
Tensor Tensor::eq(const Operand& other) const { return tapir::eq(*this, other); }
Tensor Tensor::ne(const Operand& other) const { return tapir::ne(*this, other); }
Tensor Tensor::lt(const Operand& other) const { return tapir::lt(*this, other); }
Tensor Tensor::le(const Operand& other) const { return tapir::le(*this, other); }
Tensor Tensor::gt(const Operand& other) const { return tapir::gt(*this, other); }
Tensor Tensor::ge(const Operand& other) const { return tapir::ge(*this, other); }
Tensor Tensor::sum(const Dims& dims, const ReduceOptions& options) const { return tapir::sum(*this, dims, options); }
Tensor Tensor::mean(const Dims& dims, const ReduceOptions& options) const { return tapir::mean(*this, dims, options); }
Tensor Tensor::var(const Dims& dims, const VarOptions& options) const { return tapir::var(*this, dims, options); }
Tensor Tensor::std(const Dims& dims, const VarOptions& options) const { return tapir::std(*this, dims, options); }
Tensor Tensor::max() const { return tapir::max(*this); }
Tensor Tensor::min() const { return tapir::min(*this); }
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const {
  return tapir::argmax(*this, dim, {.keepdim = keepdim});
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const {
  return tapir::argmin(*this, dim, {.keepdim = keepdim});
}
Tensor Tensor::any() const { return tapir::any(*this); }
Tensor Tensor::all() const { return tapir::all(*this); }
Tensor Tensor::norm() const { return tapir::norm(*this); }
Tensor Tensor::softmax(int64_t dim) const { return tapir::softmax(*this, dim); }
Tensor Tensor::log_softmax(int64_t dim) const { return tapir::log_softmax(*this, dim); }
Tensor Tensor::matmul(const Tensor& other) const { return tapir::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return tapir::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return tapir::bmm(*this, other); }

/// A method writes the memory, never the handle; the functions take what they return.
static Tensor& handle(const Tensor& x) { return const_cast<Tensor&>(x); }
Tensor& Tensor::add_(const Operand& other, Scalar alpha) const { return tapir::add_(handle(*this), other, alpha); }
Tensor& Tensor::sub_(const Operand& other, Scalar alpha) const { return tapir::sub_(handle(*this), other, alpha); }
Tensor& Tensor::mul_(const Operand& other) const { return tapir::mul_(handle(*this), other); }
Tensor& Tensor::div_(const Operand& other) const { return tapir::div_(handle(*this), other); }
Tensor& Tensor::copy_(const Tensor& source) const { return tapir::copy_(handle(*this), source); }
Tensor& Tensor::fill_(Scalar value) const { return tapir::fill_(handle(*this), value); }
Tensor& Tensor::zero_() const { return tapir::zero_(handle(*this)); }
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return tapir::clamp_(handle(*this), min, max);
}
Tensor& Tensor::relu_() const { return tapir::relu_(handle(*this)); }
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  return tapir::masked_fill_(handle(*this), mask, value);
}
Tensor& Tensor::uniform_(double from, double to) const { return tapir::uniform_(handle(*this), from, to); }
Tensor& Tensor::normal_(double mean, double std) const { return tapir::normal_(handle(*this), mean, std); }

}  // namespace tapir::inline v0
