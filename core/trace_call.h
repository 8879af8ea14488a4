#pragma once
// A kernel call as a list of arguments, and back: shared by the tables that stand before a device's own (core/trace.cpp,
// compile/record.cpp). Not for public headers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <vector>

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
inline void flatten(std::vector<TraceArg>& to, const TensorView& v) { to.push_back({.view = v}); }
inline void flatten(std::vector<TraceArg>& to, std::span<const TensorView> list) {
  to.push_back({.kind = TraceArg::Kind::List, .list = {list.begin(), list.end()}});
}
inline void flatten(std::vector<TraceArg>& to, const OptimizerLists& l) {
  for (const auto& list : {l.params, l.grads, l.first, l.second, l.third}) flatten(to, list);
}
inline void flatten(std::vector<TraceArg>& to, const OptimizerScalars& s) {
  for (const TensorView* v : {&s.lr, &s.step, &s.inv_scale, &s.found_inf, &s.beta1, &s.numbers}) flatten(to, *v);
}
template <class P> void flatten(std::vector<TraceArg>& to, const P& params) {
  static_assert(std::is_trivially_copyable_v<P>);
  P exact = params;
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&exact);  // equal parameters have equal bytes
#endif
  TraceArg a{.kind = TraceArg::Kind::Bytes, .bytes = std::string(reinterpret_cast<const char*>(&exact), sizeof(P))};
  if constexpr (requires { params.op; }) a.op = int(params.op), a.op_name = name_of_op(params.op);
  if constexpr (std::is_same_v<P, Scalar>) a.finite = std::isfinite(params.to_double());
  to.push_back(std::move(a));
}

using Rest = std::span<const TraceArg>;
inline const TraceArg& take_arg(Rest& rest, TraceArg::Kind kind) {
  check(!rest.empty() && rest.front().kind == kind, "[call_entry] expected {}, got {}",
        kind == TraceArg::Kind::View   ? "a view"
        : kind == TraceArg::Kind::List ? "a list"
                                       : "parameters",
        rest.empty() ? "nothing" : "another kind");
  const TraceArg& first = rest.front();
  rest = rest.subspan(1);
  return first;
}
template <class T> T take(Rest& rest) {
  const auto view = [&] { return take_arg(rest, TraceArg::Kind::View).view; };
  const auto list = [&] { return std::span<const TensorView>(take_arg(rest, TraceArg::Kind::List).list); };
  if constexpr (std::is_same_v<T, TensorView>) return view();
  else if constexpr (std::is_same_v<T, std::span<const TensorView>>) return list();
  else if constexpr (std::is_same_v<T, OptimizerLists>) return T{list(), list(), list(), list(), list()};
  else if constexpr (std::is_same_v<T, OptimizerScalars>) return T{view(), view(), view(), view(), view(), view()};
  else {
    const std::string& bytes = take_arg(rest, TraceArg::Kind::Bytes).bytes;
    check(bytes.size() == sizeof(T), "[call_entry] expected {} bytes of parameters, got {}", int64_t(sizeof(T)),
          int64_t(bytes.size()));
    alignas(T) char raw[sizeof(T)];
    std::memcpy(raw, bytes.data(), sizeof(T));
    return *std::launder(reinterpret_cast<T*>(raw));
  }
}

template <auto Member> inline constexpr const char* entry_name = "";
#define X(entry) template <> inline constexpr const char* entry_name<&BackendTable::entry> = #entry;
TAPIR_KERNEL_ENTRIES(X)
#undef X

template <auto Member, class = decltype(Member)> struct TableEntry;
template <auto Member, class R, class... A> struct TableEntry<Member, R (*BackendTable::*)(Context&, A...)> {
  template <class Around> static R call(Context& ctx, A... args) {
    std::vector<TraceArg> list;
    (flatten(list, args), ...);
    return Around::run(entry_name<Member>, ctx, std::move(list),
                       [&] { return (Around::real(ctx).*Member)(ctx, args...); });
  }
  static void replay(const BackendTable& table, Context& ctx, Rest rest) {
    const std::tuple<std::remove_cvref_t<A>...> values{take<std::remove_cvref_t<A>>(rest)...};
    check(rest.empty(), "[call_entry] expected no more arguments, got {}", int64_t(rest.size()));
    std::apply([&](const auto&... v) { (void)(table.*Member)(ctx, v...); }, values);
  }
};

}  // namespace detail

/// Puts `Around` before every kernel entry that `table` has: Around::run(entry, ctx, args, call) returns what call() does, which goes to
/// the table that Around::real(ctx) names.
template <class Around> void wrap_entries(BackendTable& table) {
#define X(entry) \
  if (table.entry) table.entry = detail::TableEntry<&BackendTable::entry>::template call<Around>;
  TAPIR_KERNEL_ENTRIES(X)
#undef X
}

}  // namespace tapir::inline v0
