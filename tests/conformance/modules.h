// The table that binds names of recorded modules to ours; each kind of modules has a file run_module_<kind>.cpp.
#pragma once
#include <functional>

#include "case.h"

namespace conformance {

/// A module's constructor arguments; those that are modules themselves are made by module().
struct ModuleArgs : Args {
  const Family& family;
  const Json& json;
  ModuleArgs(const Family& family, const Json& json);
  struct Bound module(const std::string& name);
};

/// Calls a module of known type with the recorded inputs: positional ones (a list is a tuple of states; a packed sequence is the list
/// data, lengths, batch_first, enforce_sorted) and input_kwargs. An undefined tensor is an output that is None.
using Forward = std::function<std::vector<Tensor>(nn::Module&, Args&)>;
struct Bound {
  nn::AnyModule module;
  Forward forward;
};
using Make = std::function<Bound(ModuleArgs&)>;
std::map<std::string, Make>& module_makers();
/// The module that this JSON describes; Refused where a name is not bound or an argument not known.
Bound make_module(const Family& family, const Json& json);

void bind_module_layers();
void bind_module_activation();
void bind_module_loss();
void bind_module_rnn();
void bind_module_transformer();

/// The input tensor at i; undefined where there is none.
inline Tensor input(Args& in, size_t i) {
  const Value* v = in.at(i);
  return v ? v->tensor : Tensor();
}
/// m called with N tensors gives one.
template <size_t N = 1, class M> Bound bound(M m) {
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            return [&]<size_t... I>(std::index_sequence<I...>) {
              return std::vector<Tensor>{static_cast<M&>(held)(input(in, I)...)};
            }
            (std::make_index_sequence<N>());
          }};
}
/// The module inside, known to be an M.
template <class M> M take(Bound b) {
  M* m = dynamic_cast<M*>(&*b.module);
  if (!m) throw Refused("a module of another type was expected");
  return std::move(*m);
}

}  // namespace conformance
