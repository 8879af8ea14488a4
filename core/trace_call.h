#pragma once
// A kernel call as a list of arguments, and back: shared by the tables that stand before a device's own (core/trace.cpp,
// compile/record/record.cpp). Not for public headers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "entry_fields.h"
#include "error.h"
#include "fused.h"
#include "trace.h"

namespace tapir::inline v0 {
namespace detail {

/// The name of an enumerator, cut out of what the compiler writes of a template's argument: "... V = tapir::v0::BinaryOp::Mul; ...".
template <auto V> consteval auto enumerator() {
  std::string_view s = __PRETTY_FUNCTION__;
  s = s.substr(s.find("V = ") + 4);
  s = s.substr(0, s.find_first_of(";]"));
  s = s.substr(s.rfind(':') + 1);
  std::array<char, 24> name{};
  std::copy_n(s.begin(), std::min(s.size(), name.size() - 1), name.begin());
  return name;
}
template <class E> const char* name_of_op(E op) {
  constexpr size_t kMost = 96;
  static constexpr auto names = []<size_t... i>(std::index_sequence<i...>) { return std::array{enumerator<E(i)>()...}; }
  (std::make_index_sequence<kMost>());
  return size_t(op) < kMost ? names[size_t(op)].data() : "?";
}
/// Parameters as bytes.
template <class P> TraceArg bytes_of(const P& params) {
  static_assert(std::is_trivially_copyable_v<P> && !std::is_pointer_v<P>);
  P exact = params;
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&exact);  // equal parameters have equal bytes
#endif
  TraceArg a{.kind = TraceArg::Kind::Bytes, .bytes = std::string(reinterpret_cast<const char*>(&exact), sizeof(P))};
  if constexpr (requires { params.op; }) a.op = int(params.op), a.op_name = name_of_op(params.op);
  if constexpr (std::is_same_v<P, Scalar>) a.finite = std::isfinite(params.to_double());
  return a;
}

/// What the kernel does with an operand of type T, given these parameters.
template <class T, class E> entry::Access access_of(const E& e) {
  if constexpr (requires { E::access(T::kAccess, e.params); }) return E::access(T::kAccess, e.params);
  else return T::kAccess;
}
template <class E> std::vector<TraceArg> args_of(const E& e) {
  std::vector<TraceArg> args;
  entry::each_field(e, [&]<class T>(const T& field) {
    if constexpr (entry::OneOperand<T>) args.push_back({.access = access_of<T>(e), .view = field});
    else if constexpr (entry::ManyOperands<T>)
      args.push_back({.kind = TraceArg::Kind::List, .access = access_of<T>(e), .list = {field.begin(), field.end()}});
    else if constexpr (std::is_pointer_v<T>) args.push_back(bytes_of(*field));
    else args.push_back(bytes_of(field));
  });
  return args;
}

/// An entry's struct that holds what it points to.
template <class E> struct Held { E value{}; };
template <> struct Held<entry::Fused> {
  Held() = default;
  Held(const Held&) = delete;
  FusedParams params{};
  entry::Fused value{.outs = {}, .ins = {}, .params = &params};
};
/// Its parameters, where the field is no operand.
template <class E, class T> auto& params_at(Held<E>& held, T& field) {
  if constexpr (std::is_pointer_v<T>) return held.params;
  else return field;
}
template <class P> void set_params(P& to, std::string_view bytes, entry::Id id) {
  check(bytes.size() == sizeof(P), "[{}] expected {} bytes of parameters, got {}", entry::name_of(id),
        int64_t(sizeof(P)), int64_t(bytes.size()));
  std::memcpy(static_cast<void*>(&to), bytes.data(), sizeof(P));
}

template <class Around, class E> auto around(Context& ctx, const E& e) {
  return Around::run(entry::id_of<E>, ctx, args_of(e), [&] { return entry::kernel_of<E>(Around::real(ctx))(ctx, e); });
}

}  // namespace detail

/// Puts `Around` before every kernel that `table` has: Around::run(id, ctx, args, call) returns what call() does, which goes to the table
/// that Around::real(ctx) names.
template <class Around> void wrap_entries(BackendTable& table) {
#define X(name, E) \
  if (table.name) table.name = detail::around<Around, entry::E>;
  TAPIR_ENTRIES(X)
#undef X
}

}  // namespace tapir::inline v0
