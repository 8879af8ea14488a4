#include "hooks.h"

#include <algorithm>
#include <atomic>

#include "../autograd/record.h"
#include "hooks_impl.h"
#include "module.h"

namespace tapir::inline v0::nn {
namespace detail {

ModuleExtras& Extras::of(Module& owner) {
  if (!*this) static_cast<Owner&>(*this) = Owner(new ModuleExtras);
  get()->owner = &owner;
  return **this;
}
void Extras::set_owner(Module* owner) const { get()->owner = owner; }
static void drop(ModuleExtras* p) {
  if (--p->refs == 0) delete p;
}
void release(ModuleExtras* p) {
  p->owner = nullptr;
  drop(p);
}

namespace {
/// A counted reference for as long as a call or a node lives.
struct Ref {
  ModuleExtras* p;
  explicit Ref(ModuleExtras* p) : p(p) { ++p->refs; }
  Ref(const Ref& o) : Ref(o.p) {}
  Ref& operator=(const Ref&) = delete;
  ~Ref() { drop(p); }
};

/// What the two nodes of one call share.
struct BackwardCall {
  Ref extras;
  std::vector<Tensor> grad_outputs;
  std::vector<int64_t> places;  // of the inputs that pass through the node
  size_t inputs = 0;
};

/// ValueError where a hook put a gradient of another shape, dtype or device into the place of one; undefined stands for 0.
void check_alike(const char* hook, const std::vector<Tensor>& before, const std::vector<Tensor>& now) {
  for (size_t i = 0; i < now.size(); ++i) {
    const Tensor &was = before[i], &is = now[i];
    if (!was.defined() || !is.defined() || is.is_same(was)) continue;
    check(is.shape() == was.shape() && is.dtype() == was.dtype() && is.device() == was.device(),
          "[{}] expected a gradient like that of position {}, {} on {}, got {} on {}", hook, int64_t(i), was,
          was.device(), is, is.device());
  }
}

/// The identity; its backward runs hooks.
struct HookNode final : Node {
  std::shared_ptr<BackwardCall> call;
  bool at_inputs;
  HookNode(std::shared_ptr<BackwardCall> call, bool at_inputs) : call(std::move(call)), at_inputs(at_inputs) {}
  void free_saved() override {}
  Grads apply(const Grads& g, Needs) override {
    std::vector<Tensor> given;
    for (uint32_t i = 0; i < num_outputs; ++i) given.push_back(g[i]);
    const std::vector<Tensor> before = given;
    ModuleExtras& extras = *call->extras.p;
    if (at_inputs) {
      std::vector<Tensor> all(call->inputs);
      for (size_t i = 0; i < given.size(); ++i) all[size_t(call->places[i])] = given[i];
      extras.run(HookKind::Backward, all, call->grad_outputs);
      check(all.size() == call->inputs, "[backward hook] expected {} gradients of inputs, got {}",
            int64_t(call->inputs), int64_t(all.size()));
      for (size_t i = 0; i < given.size(); ++i) given[i] = all[size_t(call->places[i])];
      check_alike("backward hook", before, given);
      call->grad_outputs.clear();  // under create_graph their history leads back here
    } else {
      std::vector<Tensor> none, grad_inputs(call->inputs);
      extras.run(HookKind::BackwardPre, given, none);
      check(given.size() == num_outputs, "[backward pre-hook] expected {} gradients, got {}", int64_t(num_outputs),
            int64_t(given.size()));
      check_alike("backward pre-hook", before, given);
      call->grad_outputs = given;
      if (call->places.empty()) {
        extras.run(HookKind::Backward, grad_inputs, call->grad_outputs);
        call->grad_outputs.clear();
      }
    }
    Grads out;
    for (Tensor& t : given) out.push_back(std::move(t));
    return out;
  }
};

/// Those of x that want a gradient pass through a node.
std::vector<int64_t> pass_through(std::vector<Tensor>& x, const std::shared_ptr<BackwardCall>& call, bool at_inputs) {
  std::vector<int64_t> places;
  std::vector<Tensor> from, to;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].defined() && x[i].requires_grad()) places.push_back(int64_t(i)), from.push_back(x[i]);
  if (from.empty() || !modes.grad) return {};
  for (const Tensor& t : from) to.push_back(t.detach());
  tie_outputs(NodeBuilder::make<HookNode>("module_hooks", std::span<const Tensor>(from), call, at_inputs), to);
  for (size_t i = 0; i < places.size(); ++i) x[size_t(places[i])] = to[i];
  return places;
}
}  // namespace

struct HookedCall::State {
  Ref extras;
  std::shared_ptr<BackwardCall> backward;
};
HookedCall::HookedCall(Module& module) : state_(new State{Ref(module.tapir_extras().get()), nullptr}) {}
HookedCall::~HookedCall() { delete state_; }

void HookedCall::before(std::vector<Tensor>& inputs) {
  ModuleExtras& extras = *state_->extras.p;
  std::vector<Tensor> none;
  const size_t n = inputs.size();
  extras.run(HookKind::ForwardPre, inputs, none);
  check(inputs.size() == n, "[forward pre-hook] expected {} inputs, got {}", int64_t(n), int64_t(inputs.size()));
  compute_parameters(*extras.owner);
  if (!extras.has(HookKind::Backward) && !extras.has(HookKind::BackwardPre)) return;
  state_->backward = std::make_shared<BackwardCall>(BackwardCall{state_->extras, {}, {}, n});
  state_->backward->places = pass_through(inputs, state_->backward, true);
}
Replacement* HookedCall::replacement() const { return state_->extras.p->replacement.get(); }
void HookedCall::after(std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  const size_t n = outputs.size();
  std::vector<bool> there;
  for (const Tensor& y : outputs) there.push_back(y.defined());
  state_->extras.p->run(HookKind::Forward, inputs, outputs);
  check(outputs.size() == n, "[forward hook] expected {} outputs, got {}", int64_t(n), int64_t(outputs.size()));
  for (size_t i = 0; i < n; ++i)
    check(outputs[i].defined() || !there[i], "[forward hook] expected a tensor as output {}, got an undefined one",
          int64_t(i));
  if (state_->backward) pass_through(outputs, state_->backward, false);
}

}  // namespace detail

int64_t Module::add_hook(HookKind kind, detail::ModuleHook* adopted) {
  static std::atomic<int64_t> last_id{0};
  std::shared_ptr<detail::ModuleHook> hook(adopted);
  extras_.of(*this).hooks.push_back({++last_id, kind, std::move(hook)});
  training.changed();  // compiled programs lack it
  return last_id;
}
void Module::remove_hook(int64_t id) {
  if (extras_ && std::erase_if(extras_.get()->hooks, [id](auto& h) { return h.id == id; })) training.changed();
}

}  // namespace tapir::inline v0::nn
