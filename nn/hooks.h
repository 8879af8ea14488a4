#pragma once
// Note [Module hooks]
// A module without hooks, parametrizations and a replacement holds one null pointer for them, and a call costs one branch. Hooks see the tensors among
// the arguments (undefined ones too, so that positions stay) and those of the result, whatever holds them (core/each_tensor.h), unless
// they are const: a reference to what the module keeps. Other arguments pass by unseen. Hooks move with their module and are not cloned.
// A backward hook sees the gradients of the whole module: its inputs and outputs pass through nodes that do nothing else. It runs once
// those of the inputs are complete, or, where no input wants a gradient, as soon as those of the outputs are; not when the module is gone.
#include <cstdint>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "../core/each_tensor.h"
#include "../core/handle.h"
#include "fields.h"

namespace tapir::inline v0::nn {

/// The copies that a clone() has made, so that what fields share is shared by their copies.
struct CloneMemo {
  /// What shared pointers hold, under its address and type.
  struct Shared {
    const void* from;
    const std::type_info& type;
    Shared(const void* from, const std::type_info& type) : from(from), type(type) {}
    virtual ~Shared() = default;
  };
  std::vector<std::pair<TensorImpl*, Tensor>> tensors;
  std::vector<Shared*> shared;
  std::vector<const void*> open;  // whose clones are being made
  CloneMemo() = default;
  CloneMemo(const CloneMemo&) = delete;
  ~CloneMemo() {
    for (Shared* s : shared) delete s;
  }
};

enum class HookKind : uint8_t { ForwardPre, Forward, BackwardPre, Backward };

namespace detail {

/// A hook of any kind: (inputs), (inputs, outputs), (grad_outputs) or (grad_inputs, grad_outputs).
struct ModuleHook {
  virtual ~ModuleHook() = default;
  virtual void call(Module& module, std::vector<Tensor>& a, std::vector<Tensor>& b) = 0;
};
template <class F> struct ModuleHookOf final : ModuleHook {
  F f;
  explicit ModuleHookOf(F f) : f(std::move(f)) {}
  void call(Module& m, std::vector<Tensor>& a, std::vector<Tensor>& b) override {
    if constexpr (std::is_invocable_v<F&, Module&, std::vector<Tensor>&, std::vector<Tensor>&>) f(m, a, b);
    else f(m, a);
  }
};

/// One form of call, R(A...), of a module that stands in another's place.
template <class F> struct Form;
template <class R, class... A> struct Form<R(A...)> { virtual R call(const A&... a) = 0; };
/// Owns that module (nn/replace.h).
struct Replacement {
  virtual ~Replacement() = default;
  virtual Module& module() = 0;
  virtual Replacement* clone(CloneMemo& memo) = 0;
};
[[noreturn]] void no_such_form(Module& module);

struct ModuleExtras;
void release(ModuleExtras* p);
/// What few modules have: hooks, parameters that are computed of others, a module in their place. Empty in all others.
class Extras : public tapir::detail::Owner<ModuleExtras> {
 public:
  /// Made where there are none.
  ModuleExtras& of(Module& owner);
  void set_owner(Module* owner) const;
};

/// One call of a module with extras.
class HookedCall {
 public:
  explicit HookedCall(Module& module);
  ~HookedCall();
  HookedCall(const HookedCall&) = delete;
  void before(std::vector<Tensor>& inputs);
  void after(std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  Replacement* replacement() const;

 private:
  struct State;
  State* state_;
};

/// The tensors of a module's result; none may be hidden in it.
template <class R> std::vector<Tensor> tensors_of(R& result) {
  std::vector<Tensor> out;
  const auto visit = [&]<class T>(T& leaf) {
    if constexpr (TensorField<T> || std::is_same_v<T, Indexed>) out.push_back(leaf);
    else
      static_assert(!holds<T, 5>(),
                    "the result of forward holds tensors that are not seen: they are seen in pairs, tuples, ranges, "
                    "optionals, aggregates of at most 8 fields, and in the std::tie that tensors() returns");
  };
  tapir::detail::each_leaf(result, visit);
  return out;
}

template <class T> decltype(auto) hooked_argument(T&& given, Tensor* seen) {
  if constexpr (TensorField<std::remove_cvref_t<T>>) return *seen;
  else return std::forward<T>(given);
}
template <class A> using PlainArgument =
    std::conditional_t<std::is_convertible_v<A, Tensor>, Tensor, std::remove_cvref_t<A>>;

/// forward, or that of the module in this one's place, between the hooks.
template <class M, class... A> auto call_hooked(Module& base, M& m, A&&... a)
    -> decltype(m.forward(std::forward<A>(a)...)) {
  using R = decltype(m.forward(std::forward<A>(a)...));
  HookedCall hooked(base);
  std::vector<Tensor> inputs, outputs;
  constexpr size_t n = sizeof...(A);
  size_t place[n + 1] = {}, i = 0;  // of each argument among the inputs
  const auto collect = [&](auto& x) {
    place[i++] = inputs.size();
    if constexpr (TensorField<std::remove_cvref_t<decltype(x)>>) inputs.push_back(x);
  };
  (collect(a), ...);
  hooked.before(inputs);
  const auto run = [&]<size_t... At>(std::index_sequence<At...>)->R {
    if constexpr (!std::is_reference_v<R>)
      if (Replacement* other = hooked.replacement()) {
        auto* form = dynamic_cast<Form<R(PlainArgument<A>...)>*>(other);
        if (!form) no_such_form(base);
        return form->call(hooked_argument(std::forward<A>(a), inputs.data() + place[At])...);
      }
    return m.forward(hooked_argument(std::forward<A>(a), inputs.data() + place[At])...);
  };
  if constexpr (std::is_void_v<R>) {
    run(std::make_index_sequence<n>());
    hooked.after(inputs, outputs);
  } else {
    R y = run(std::make_index_sequence<n>());
    each_tensor(y, [&](Tensor& t) { outputs.push_back(t); });
    hooked.after(inputs, outputs);
    size_t k = 0;
    each_tensor(y, [&](Tensor& t) { t = outputs[k++]; });
    return static_cast<R>(y);
  }
}

}  // namespace detail
}  // namespace tapir::inline v0::nn
