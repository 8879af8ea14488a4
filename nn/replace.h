#pragma once
#include "module.h"

// Note [Modules in the place of others]
// A model is a struct whose members have types, so another module cannot be put into `fc`. It can stand behind it: its owner hangs from
// the pointer that `fc` has for its hooks, and a call of `fc` goes to it. A call of any other module costs no more than before, one
// branch. Fields, and with them state_dict, to(), parameters() and printing, are the other module's under the name of `fc`; hooks stay
// with `fc`; clone() copies both. What reads members of `fc` itself (fc.weight) sees what was left there.
namespace tapir::inline v0::nn {

namespace detail {
template <class Self, class F> struct FormOf;
template <class Self, class R, class... A> struct FormOf<Self, R(A...)> : Form<R(A...)> {
  R call(const A&... a) final { return static_cast<Self*>(this)->held(a...); }
};
template <class M, class... Forms> struct ReplacementOf final : Replacement,
                                                                FormOf<ReplacementOf<M, Forms...>, Forms>... {
  M held;
  explicit ReplacementOf(M m) : held(std::move(m)) {}
  Module& module() override { return held; }
  Replacement* clone(CloneMemo& memo) override { return new ReplacementOf(clone_field(held, memo)); }
};
void set_replacement(Module& module, Replacement* adopted);
}  // namespace detail

/// From now on `other` is called in the place of `module`, with these forms of call: replace<Tensor(Tensor)>(net.fc, std::move(mine)).
/// ValueError where `module` has computed parameters.
template <class... Forms, ModuleField M> void replace(Module& module, M other) {
  detail::set_replacement(module, new detail::ReplacementOf<M, Forms...>(std::move(other)));
}
/// The module that stands in its place, or null.
Module* replaced_by(Module& module);

}  // namespace tapir::inline v0::nn
