#pragma once
// The machinery behind TAPIR_FIELDS: macros that visit a list, and the check that nothing was left out of it.
//
// Note [The layout check]
// The list gives each listed field's offset and size. Whatever lies before, between or behind them must be too small for the
// smallest thing that may not be forgotten, a Tensor: 8 bytes at a multiple of 8. The assertion stands in the body of a virtual
// function, so it is compiled with the struct, used or not (in a class template: with the first constructor used).
// It compares sizes, not types. Rule for users: list every field; it is then also printed. A bool or an int in padding may be
// left out; a std::string may not, since it cannot be told from a forgotten tensor. offsetof in classes with a base is
// "conditionally supported": g++ and clang do, virtual bases excepted.
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/each.h"
#include "../core/modes.h"
#include "../core/tensor.h"
#include "field_types.h"

namespace tapir::inline v0 {

namespace nn::detail {
/// A tensor of a module. Like a plain one, but that its memory knows when it leaves that place: compiled programs look there.
struct Member : Tensor {
  Member() = default;
  Member(Tensor t) : Tensor(std::move(t)) {}
  Member(const Member&) = default;
  Member(Member&& o) noexcept : Tensor(std::move(o)) { leave(); }
  Member& operator=(const Member& o) { return *this = Member(static_cast<const Tensor&>(o)); }
  Member& operator=(Member&& o) noexcept {
    leave();
    Tensor::operator=(std::move(o));
    leave();
    return *this;
  }
  ~Member() { leave(); }

 private:
  void leave() const {
    if (defined() && !modes.cloning) impl().storage->handles.fetch_add(1, std::memory_order_relaxed);
  }
};
}  // namespace nn::detail

/// A tensor that is trained and saved: undefined when the module has none (no bias).
struct Parameter : nn::detail::Member {
  Parameter() = default;
  Parameter(Tensor t, bool requires_grad = true) : Member(std::move(t)) {
    if (defined() && requires_grad) requires_grad_();
  }
};
/// A tensor that is saved, not trained: running statistics.
struct Buffer : nn::detail::Member {
  Buffer() = default;
  Buffer(Tensor t) : Member(std::move(t)) {}
};

namespace nn {

/// One entry of a module's field list, containers opened ("blocks.0").
struct Field {
  enum class Kind : uint8_t { Parameter, Buffer, Tensor, Module, Plain };
  std::string name;
  Kind kind;
  tapir::Tensor* tensor = nullptr;
  nn::Module* module = nullptr;
  std::string text;  // "bias=True", of plain fields
};

namespace detail {

struct Span {
  size_t begin, end;
};
/// Bytes of gaps that could hold a Tensor, from the end of the base to the end of the struct.
template <size_t N> constexpr size_t unlisted_bytes(size_t base, size_t end, std::array<Span, N> fields) {
  for (size_t i = 1; i < N; ++i)  // by begin; <algorithm> is too heavy for a public header
    for (size_t k = i; k > 0 && fields[k].begin < fields[k - 1].begin; --k) std::swap(fields[k], fields[k - 1]);
  size_t at = base, missing = 0;
  const auto advance = [&](Span f) {
    const size_t slot = (at + alignof(Tensor) - 1) / alignof(Tensor) * alignof(Tensor);
    if (slot + sizeof(Tensor) <= f.begin) missing += f.begin - slot;
    if (f.end > at) at = f.end;
  };
  for (Span f : fields) advance(f);
  advance({end, end});
  return missing;
}
template <size_t N> constexpr bool listed_twice(const std::array<Span, N>& f) {
  for (size_t i = 0; i < N; ++i)
    for (size_t k = 0; k < i; ++k)
      if (f[i].begin == f[k].begin) return true;
  return false;
}
/// Where T's fields end: a field of a derived struct may stand in the padding behind them.
template <class T> constexpr size_t end_of_fields() {
  if constexpr (std::is_final_v<T>) return sizeof(T);
  else {
    struct Next : T {
      char c;
    };
    _Pragma("GCC diagnostic push")
        _Pragma("GCC diagnostic ignored \"-Winvalid-offsetof\"") return __builtin_offsetof(Next, c);
    _Pragma("GCC diagnostic pop")
  }
}
/// True or False; a number as Python prints it: 1.0, 0.0001, 1e-05.
inline const char* bool_text(bool b) { return b ? "True" : "False"; }
std::string float_text(double value);
/// One number where one was given.
inline std::string dims_text(const Dims& d) { return d.size() == 1 ? std::to_string(d[0]) : d.str(); }
std::string plain_text(const char* name, Scalar value);
std::string plain_text(const char* name, const std::string& value);
std::string plain_text(const char* name, const Dims& value);

/// Appends field f under that name to the list.
template <class T> void list_field(std::vector<Field>& out, const std::string& name, T& f) {
  using Kind = Field::Kind;
  if constexpr (TensorField<T>) {
    const Kind kind = std::is_same_v<T, Parameter> ? Kind::Parameter
                      : std::is_same_v<T, Buffer>  ? Kind::Buffer
                                                   : Kind::Tensor;
    out.push_back({name, kind, &f, nullptr, ""});
  } else if constexpr (ModuleField<T>) {
    if constexpr (!std::is_abstract_v<T>)
      static_assert(std::is_same_v<decltype(f.tapir_self()), T*>,
                    "the type of this field is a module without TAPIR_FIELDS of its own");
    out.push_back({name, Kind::Module, nullptr, &f, ""});
  } else if constexpr (RangeField<T>) {
    [[maybe_unused]] size_t i = 0;
    for (auto& e : f) {
      if constexpr (NamedField<std::remove_cvref_t<decltype(e)>>) list_field(out, name + "." + e.first, e.second);
      else if constexpr (MapField<T>) list_field(out, name + "." + std::to_string(e.first), e.second);
      else list_field(out, name + "." + std::to_string(i++), e);
    }
  } else if constexpr (HandleField<T>) {
    if constexpr (requires { sizeof(*f); })
      if (f) list_field(out, name, *f);
  } else if constexpr (std::is_arithmetic_v<T>)
    out.push_back({name, Kind::Plain, nullptr, nullptr, plain_text(name.c_str(), Scalar(f))});
  else if constexpr (std::is_same_v<std::remove_const_t<T>, std::string> ||
                     std::is_same_v<std::remove_const_t<T>, Dims>)
    out.push_back({name, Kind::Plain, nullptr, nullptr, plain_text(name.c_str(), f)});
}

}  // namespace detail
}  // namespace nn
}  // namespace tapir::inline v0

#define TAPIR_FIELD_VISIT(x) visit(#x, s.x...);
#define TAPIR_FIELD_NAME(x) +sizeof(this->x)
#define TAPIR_FIELD_SPAN(x) {__builtin_offsetof(Self, x), __builtin_offsetof(Self, x) + sizeof(Self::x)},
#define TAPIR_FIELD_ONE(x) +1
#define TAPIR_FIELD_OWNED(x)                                                                                       \
  static_assert(!::tapir::nn::detail::shares<decltype(Self::x)>,                                                   \
                "field " #x " is a reference or a raw pointer: hold the module or tensor itself");                 \
  static_assert(!::tapir::nn::detail::hidden_field<decltype(Self::x)>,                                             \
                "field " #x                                                                                        \
                " holds a tensor or a module that parameters() and clone() do not see; they see those in vector, " \
                "array, optional, "                                                                                \
                "unique_ptr, shared_ptr, map and pairs with a name in a vector, and in structs with TAPIR_FIELDS");
