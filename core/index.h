#pragma once
#include <optional>
#include <vector>

#include "tensor.h"

namespace tapir::inline v0 {

struct NoneType {
  template <class T> constexpr operator std::optional<T>() const { return {}; }
};
/// A new dimension of extent 1, and what is left out: Slice(1, None), clamp(x, None, 3).
inline constexpr NoneType None{};

/// A range of positions along one dimension, as in Python: Slice(2, 8), Slice(1, None, 2), Slice().
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, int64_t step = 1)
      : start(start), stop(stop), step(step) {}
};
struct EllipsisType {};
/// As many full slices as are needed.
inline constexpr EllipsisType Ellipsis{};

/// One item between the brackets of x[...]: an integer, Slice, None, Ellipsis, bool, or a tensor of integers or bools.
class Index {
 public:
  enum class Kind : uint8_t { Integer, Slice, None, Ellipsis, Bool, Tensor };
  template <std::integral Int> Index(Int i)
      : kind(std::same_as<Int, bool> ? Kind::Bool : Kind::Integer), integer(int64_t(i)) {}
  Index(const tapir::Slice& s) : kind(Kind::Slice), slice(s) {}
  Index(NoneType) : kind(Kind::None) {}
  Index(EllipsisType) : kind(Kind::Ellipsis) {}
  Index(const tapir::Tensor& t) : kind(Kind::Tensor), tensor(t) {}

  Kind kind;
  int64_t integer = 0;
  tapir::Slice slice;
  tapir::Tensor tensor;
};

/// What x[...] gives: a Tensor once it is read, a place to write once it is assigned to.
class Indexed {
 public:
  Indexed(const Tensor& base, std::vector<Index> items) : base_(base), items_(std::move(items)) {}
  /// The selected elements: a view where only integers, slices, None and Ellipsis were given, else a copy.
  Tensor value() const;
  operator Tensor() const { return value(); }
  // Only x[i] itself is written to: `auto row = x[0]; row = row * 10;` would write into x, and does not compile.
  /// x[i] = y writes y, broadcast and converted, into x.
  const Indexed& operator=(const Operand& source) const&&;
  const Indexed& operator=(const Indexed& source) const&& { return std::move(*this) = Operand(source.value()); }
  Indexed(const Indexed&) = default;
  const Indexed& operator+=(const Operand& other) const&&;
  const Indexed& operator-=(const Operand& other) const&&;
  const Indexed& operator*=(const Operand& other) const&&;
  const Indexed& operator/=(const Operand& other) const&&;
  const Indexed& operator%=(const Operand& other) const&&;
  const Indexed& operator&=(const Operand& other) const&&;
  const Indexed& operator|=(const Operand& other) const&&;
  const Indexed& operator^=(const Operand& other) const&&;
  const Indexed& operator<<=(const Operand& other) const&&;
  const Indexed& operator>>=(const Operand& other) const&&;
  Indexed operator[](const Index& index) const { return value()[index]; }
  Indexed operator[](std::initializer_list<Index> indices) const { return value()[indices]; }

#define TAPIR_FORWARD(method) \
  template <class... A> decltype(auto) method(A&&... a) const { return value().method(std::forward<A>(a)...); }
  TAPIR_FORWARD(dim)
  TAPIR_FORWARD(numel)
  TAPIR_FORWARD(size)
  TAPIR_FORWARD(stride)
  TAPIR_FORWARD(dtype)
  TAPIR_FORWARD(device)
  TAPIR_FORWARD(is_contiguous)
  TAPIR_FORWARD(str)
  TAPIR_FORWARD(requires_grad)
  TAPIR_FORWARD(detach)
  TAPIR_FORWARD(backward)
  TAPIR_FORWARD(to)
  TAPIR_FORWARD(cpu)
  TAPIR_FORWARD(cuda)
  TAPIR_FORWARD(contiguous)
  TAPIR_FORWARD(clone)
  TAPIR_FORWARD(view)
  TAPIR_FORWARD(reshape)
  TAPIR_FORWARD(flatten)
  TAPIR_FORWARD(permute)
  TAPIR_FORWARD(transpose)
  TAPIR_FORWARD(t)
  TAPIR_FORWARD(squeeze)
  TAPIR_FORWARD(unsqueeze)
  TAPIR_FORWARD(expand)
  TAPIR_FORWARD(select)
  TAPIR_FORWARD(narrow)
  TAPIR_FORWARD(slice)
  TAPIR_FORWARD(split)
  TAPIR_FORWARD(chunk)
  TAPIR_FORWARD(index_select)
  TAPIR_FORWARD(gather)
  TAPIR_FORWARD(masked_fill)
  TAPIR_FORWARD(add)
  TAPIR_FORWARD(sub)
  TAPIR_FORWARD(mul)
  TAPIR_FORWARD(div)
  TAPIR_FORWARD(pow)
  TAPIR_FORWARD(neg)
  TAPIR_FORWARD(abs)
  TAPIR_FORWARD(exp)
  TAPIR_FORWARD(log)
  TAPIR_FORWARD(sqrt)
  TAPIR_FORWARD(sigmoid)
  TAPIR_FORWARD(tanh)
  TAPIR_FORWARD(relu)
  TAPIR_FORWARD(clamp)
  TAPIR_FORWARD(eq)
  TAPIR_FORWARD(ne)
  TAPIR_FORWARD(lt)
  TAPIR_FORWARD(le)
  TAPIR_FORWARD(gt)
  TAPIR_FORWARD(ge)
  TAPIR_FORWARD(sum)
  TAPIR_FORWARD(mean)
  TAPIR_FORWARD(var)
  TAPIR_FORWARD(std)
  TAPIR_FORWARD(max)
  TAPIR_FORWARD(min)
  TAPIR_FORWARD(argmax)
  TAPIR_FORWARD(argmin)
  TAPIR_FORWARD(any)
  TAPIR_FORWARD(all)
  TAPIR_FORWARD(norm)
  TAPIR_FORWARD(softmax)
  TAPIR_FORWARD(log_softmax)
  TAPIR_FORWARD(matmul)
  TAPIR_FORWARD(mm)
  TAPIR_FORWARD(bmm)
#undef TAPIR_FORWARD
  /// A copy, since value() is gone after the call.
  Shape shape() const { return value().shape(); }
  template <class T = double> T item(SourceLocation where = SourceLocation::current()) const {
    return value().template item<T>(where);
  }
  template <Element T> std::vector<T> to_vector(SourceLocation where = SourceLocation::current()) const {
    return value().template to_vector<T>(where);
  }
  void add_(const Operand& other) const&& { std::move(*this) += other; }
  void sub_(const Operand& other) const&& { std::move(*this) -= other; }
  void mul_(const Operand& other) const&& { std::move(*this) *= other; }
  void div_(const Operand& other) const&& { std::move(*this) /= other; }
  void fill_(Scalar value) const&& { std::move(*this) = Operand(value); }
  void zero_() const&& { std::move(*this) = Operand(0); }
  void copy_(const Tensor& source) const&& { std::move(*this) = Operand(source); }

 private:
  Tensor base_;
  std::vector<Index> items_;
};

inline Operand::Operand(const Indexed& x) : held_(x.value()) { tensor_ = &held_; }

}  // namespace tapir::inline v0
