// What two recordings of one function do differently, in words that differ too.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../../core/dispatch.h"
#include "../../core/trace_call.h"
#include "../program/params_fields.h"
#include "recorded.h"

namespace tapir::inline v0::ir {
namespace {

/// "dtype: float32 before, int64 now"; empty where both are the same.
template <class T> std::string unlike(std::string_view what, const T& before, const T& now) {
  if (before == now) return "";
  return tapir::format("{}: {} before, {} now", what, before, now);
}
/// Numbers by their bits: -0 is not 0, and a NaN is itself.
std::string unlike(std::string_view what, const double& before, const double& now) {
  const auto bits = [](double v) { return std::bit_cast<uint64_t>(v); };
  const auto text = [&](double v) {
    return tapir::format("{}", v) + (std::isnan(v) ? tapir::format(" of bits {}", bits(v) & 0xFFFFFFFFFFFFF) : "");
  };
  return bits(before) == bits(now) ? "" : tapir::format("{}: {} before, {} now", what, text(before), text(now));
}
std::string unlike(std::string_view what, const Scalar& before, const Scalar& now) {
  if (before.kind() != now.kind()) {
    const auto text = [](Scalar s) { return s.is_float() ? "a float" : s.is_int() ? "an integer" : "a bool"; };
    return unlike(std::string(what) + "'s type", std::string(text(before)), std::string(text(now)));
  }
  return before.is_float() ? unlike(what, before.to_double(), now.to_double())
                           : unlike(what, before.to_int(), now.to_int());
}
std::string first(std::initializer_list<std::string> all) {
  for (const std::string& s : all)
    if (!s.empty()) return s;
  return "";
}

// ---- views ----

std::string text_of(View::Kind kind) {
  return kind == View::Kind::Absent ? "nothing" : kind == View::Kind::Memory ? "a tensor" : "a number";
}
std::string text_of(Block::Kind kind) {
  return kind == Block::Kind::Temporary ? "made inside" : kind == Block::Kind::Outside ? "from outside" : "a constant";
}
/// Which piece of memory: by its number, in the order in which the call meets them.
std::string text_of(const Program& p, int block) {
  return block < 0 ? "none" : tapir::format("%{} ({})", block, text_of(p.blocks[size_t(block)].kind));
}
std::string unlike(std::string_view what, const Program& p, const View& a, const Program& q, const View& b) {
  if (same(a, b)) return "";
  const auto aspect = [&](const char* of) { return std::string(what) + (*of ? ", " : "") + of; };
  const std::string why =
      first({unlike(aspect(""), text_of(a.kind), text_of(b.kind)), unlike(aspect("dtype"), a.dtype, b.dtype),
             unlike(aspect("device"), a.device, b.device)});
  if (!why.empty()) return why;
  if (a.kind == View::Kind::Number) return unlike(what, a.number, b.number);
  return first({unlike(aspect("shape"), Dims(a.shape), Dims(b.shape)),
                unlike(aspect("strides"), Dims(a.strides), Dims(b.strides)),
                a.block == b.block ? "" : unlike(aspect("memory"), text_of(p, a.block), text_of(q, b.block)),
                unlike(aspect("offset in its memory"), a.offset, b.offset)});
}

// ---- parameters ----

struct AnyField {
  template <class T> void operator()(const char*, const T&) const {}
};
template <class T> std::string unlike_field(const std::string& name, const T& x, const T& y) {
  if constexpr (requires { each_field(x, AnyField()); }) {
    std::string why;
    each_field(x, [&]<class V>(const char* field, const V& v) {
      if (!why.empty()) return;
      const auto at = reinterpret_cast<const char*>(&v) - reinterpret_cast<const char*>(&x);
      const V& w = *reinterpret_cast<const V*>(reinterpret_cast<const char*>(&y) + at);
      why = unlike_field(name.empty() ? field : name + "." + field, v, w);
    });
    return why;
  } else if constexpr (std::is_array_v<T>) {
    std::string why;
    for (size_t i = 0; why.empty() && i < std::extent_v<T>; ++i)
      why = unlike_field(name + tapir::format("[{}]", int64_t(i)), x[i], y[i]);
    return why;
  } else if constexpr (std::is_same_v<T, DType>) return unlike(name, x, y);
  else if constexpr (std::is_enum_v<T>)
    return x == y ? "" : unlike(name, std::string(detail::name_of_op(x)), std::string(detail::name_of_op(y)));
  else return unlike(name, x, y);
}

/// Random numbers are counted from the beginning of the call.
template <class P> P relative(P params, uint64_t start) {
  if constexpr (requires { params.offset; })
    if (draws(params)) params.offset -= start, params.seed = 0;
  return params;
}
std::string unlike_params(const Call& a, const Call& b, uint64_t start_a, uint64_t start_b) {
  std::string why;
  entry::with_entry(a.entry, [&]<class E>() {
    const E any{};
    entry::each_field(any, [&]<class T>(const T&) {
      using P = std::remove_const_t<std::remove_pointer_t<T>>;
      if constexpr (!entry::OneOperand<T> && !entry::ManyOperands<T>)
        why = unlike_field(std::is_same_v<P, Scalar> ? "the number" : "", relative(a.params<P>(), start_a),
                           relative(b.params<P>(), start_b));
    });
  });
  return why;
}

// ---- calls ----

Reason unlike(const Recorded& r, const Call& a, const Recorded& s, const Call& b) {
  bool numbers = false;  // from where in the call, the bytes do not say
  with_numbers(a, [&]<class>(const auto&) { numbers = true; });
  if (same(a, b) && !(numbers && r.offset != s.offset)) return {};
  if (a.entry != b.entry || a.operands.size() != b.operands.size() ||
      (a.custom && a.operands.back().bytes != b.operands.back().bytes))
    return text_of(a) + " before, " + text_of(b) + " now";
  std::string why = first({unlike("device", a.device, b.device),
                           unlike("deterministic", a.modes.deterministic, b.modes.deterministic),
                           unlike("flush_denormals", a.modes.flush_denormals, b.modes.flush_denormals)});
  bool number = false;
  if (why.empty() && !a.operands.empty() && a.operands.back().kind == TraceArg::Kind::Bytes) {  // says more than shapes
    why = unlike_params(a, b, r.offset, s.offset);
    number = !why.starts_with("op: ");
  }
  for (size_t o = 0; why.empty() && o < a.operands.size(); ++o) {
    const Operand &x = a.operands[o], &y = b.operands[o];
    const std::string name = tapir::format("operand {}", int64_t(o) + 1);
    why = unlike(name + ", tensors", int64_t(x.views.size()), int64_t(y.views.size()));
    for (size_t i = 0; why.empty() && i < x.views.size(); ++i) {
      number = x.views[i].kind == View::Kind::Number && y.views[i].kind == View::Kind::Number;
      why = unlike(x.views.size() == 1 ? name : name + tapir::format("[{}]", int64_t(i)), r.program, x.views[i],
                   s.program, y.views[i]);
    }
  }
  if (why.empty()) return "";
  return text_of(b) + ", " + why +
         (number ? ": a number that changes must be an argument or a tensor" : ": what changes must be an argument");
}

// ---- what lies outside ----

/// The first call that names a block, and the view that does.
std::pair<const Call*, const View*> user_of(const Program& p, size_t block) {
  for (const Call& call : p.calls)
    for (const Operand& o : call.operands)
      for (const View& v : o.views)
        if (v.kind == View::Kind::Memory && v.block == int(block)) return {&call, &v};
  return {};
}
Reason text_of_user(const Program& p, size_t block) {
  const auto [call, view] = user_of(p, block);
  return call ? text_of(*call) + tapir::format(", {} {}: ", view->dtype, Dims(view->shape)) : Reason();
}
/// Where both are.
std::string elsewhere(const char* what, const void* before, const void* now) {
  if (before == now) return "";
  char text[96];
  std::snprintf(text, sizeof(text), "%p before, %p now", before, now);
  return tapir::format("{}, at {}", what, text);
}

/// Constants: the first number that differs, as the type that it is read as.
Reason unlike_values(const Recorded& r, const Recorded& s, size_t block) {
  const std::string &x = r.program.blocks[block].values, &y = s.program.blocks[block].values;
  if (x.size() != y.size()) return unlike("bytes of numbers from the host", int64_t(x.size()), int64_t(y.size()));
  const View* const v = user_of(s.program, block).second;
  const DType dtype = v ? v->dtype : kUInt8;
  const int64_t size = size_of(dtype), byte = std::mismatch(x.begin(), x.end(), y.begin()).first - x.begin(),
                at = byte / size;
  const auto number = [&](const std::string& from) {
    return for_all("compile", dtype, [&]<class T>() {
      T value;
      std::memcpy(&value, from.data() + at * size, sizeof(T));
      return Scalar(value);
    });
  };
  const std::string why = unlike(tapir::format("number {}", at), number(x), number(y));
  return text_of_user(s.program, block) +
         (why.empty() ? tapir::format("bits of number {} of the host's", at) : "of the host's numbers, " + why) +
         ": what changes must be an argument or a tensor";
}

Reason unlike_block(const Recorded& r, const Recorded& s, size_t i) {
  const Block &x = r.program.blocks[i], &y = s.program.blocks[i];
  std::string why = first({unlike("memory", text_of(x.kind), text_of(y.kind)),
                           unlike("an argument, a result or a gradient", bool(r.moves[i]), bool(s.moves[i])),
                           r.moves[i] ? "" : unlike("bytes of memory", x.bytes, y.bytes)});
  if (why.empty() && x.values != y.values) return unlike_values(r, s, i);
  if (why.empty()) why = elsewhere("another tensor than before", r.roots[i].get(), s.roots[i].get());
  return why.empty() ? Reason() : text_of_user(s.program, i) + why + ": what changes must be an argument";
}

std::string unlike_gradient(const Recorded& r, const Recorded& s, size_t i) {
  const auto& x = r.grads[i];
  const auto at = std::find_if(s.grads.begin(), s.grads.end(), [&](auto& g) { return g.leaf->is_same(*x.leaf); });
  if (at == s.grads.end())
    return elsewhere("the gradient of another parameter", &x.leaf->impl(), &s.grads[i].leaf->impl());
  const auto& y = *at;
  if (x.relevant == y.relevant && x.had == y.had && same(x.start, y.start) && same(x.end, y.end)) return "";
  const std::string name = tapir::format("the gradient of a parameter {} {}", y.leaf->dtype(), Dims(y.leaf->shape()));
  return first({unlike(name + ", read or added to", x.relevant, y.relevant),
                x.relevant ? unlike(name + ", there at the start", x.had, y.had) : "",
                unlike(name + ", at the start", r.program, x.start, s.program, y.start),
                unlike(name + ", at the end", r.program, x.end, s.program, y.end)});
}

}  // namespace

Reason difference(const Recorded& a, const Recorded& b) {
  const Program &p = a.program, &q = b.program;
  const auto count = [](const auto& list) { return int64_t(list.size()); };
  for (size_t i = 0; i < std::min(p.calls.size(), q.calls.size()); ++i)
    if (Reason why = unlike(a, p.calls[i], b, q.calls[i]); !why.empty()) return why;
  const size_t both = std::min(p.calls.size(), q.calls.size());
  Reason why = unlike("kernel calls", count(p.calls), count(q.calls));
  if (!why.empty()) return why + ", from " + text_of((p.calls.size() > both ? p : q).calls[both]) + " on";
  why = unlike("gradients that change", count(a.grads), count(b.grads));
  for (size_t i = 0; why.empty() && i < a.grads.size(); ++i) why = unlike_gradient(a, b, i);
  if (why.empty())
    why = first({unlike("tensors among the arguments", count(p.inputs), count(q.inputs)),
                 unlike("tensors among the results", count(p.outputs), count(q.outputs)),
                 unlike("pieces of memory", count(p.blocks), count(q.blocks)),
                 unlike("random numbers drawn", int64_t(a.numbers), int64_t(b.numbers)),
                 unlike("tensors from outside", count(a.storages), count(b.storages))});
  const auto compare = [&](const char* what, const auto& before, const auto& now, View Recorded::GradSlot::*last) {
    const auto gradient = [&](auto& g) { return block_of(g.*last) >= 0; };  // behind the function's: compared by leaf
    const auto count = before.size() - size_t(std::count_if(a.grads.begin(), a.grads.end(), gradient));
    for (size_t i = 0; why.empty() && i < count; ++i)
      if (!same(before[i], now[i])) why = unlike(tapir::format("{} {}", what, int64_t(i) + 1), p, before[i], q, now[i]);
  };
  compare("argument", p.inputs, q.inputs, &Recorded::GradSlot::start);
  compare("result", p.outputs, q.outputs, &Recorded::GradSlot::end);
  for (size_t i = 0; why.empty() && i < p.blocks.size(); ++i) why = unlike_block(a, b, i);
  for (size_t i = 0; why.empty() && i < a.storages.size(); ++i) {
    why = elsewhere("another tensor than before", a.storages[i].storage.get(), b.storages[i].storage.get());
    if (!why.empty()) why = text_of_user(q, size_t(b.storages[i].block)) + why + ": what changes must be an argument";
  }
  return why;
}

}  // namespace tapir::inline v0::ir
