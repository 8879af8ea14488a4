#pragma once
#include <iosfwd>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/state_dict.h"
#include "../core/tensor.h"
#include "../core/versioned.h"
#include "fields.h"
#include "hooks.h"

namespace tapir::inline v0::nn {

struct LoadOptions {
  bool strict = true;             // missing and unexpected names are errors
  std::string strip_prefix = {};  // removed from names that begin with it: "module.", "_orig_mod."
};

// Note [Chains]
// Module::to() and its like return a Module&. A struct with TAPIR_FIELDS has them once more (TAPIR_CHAINS): they return the struct, a
// temporary one by value, so that `auto net = Net().to("cuda")` moves. They are templates: a function of the struct's own of that name goes first.
/// What to() takes.
template <class T>
concept Place = std::convertible_to<T, Device> || std::same_as<T, DType> || std::same_as<T, MemoryFormat>;

/// A bool, at first true, and what compiled programs know of the module: Note [What a compiled program takes for constant].
class TrainingFlag : public tapir::detail::Versioned {
 public:
  TrainingFlag() : Versioned(true) {}
  TrainingFlag(const TrainingFlag& o) : Versioned(bool(o)) {}
  TrainingFlag(TrainingFlag&&) noexcept = default;
  TrainingFlag& operator=(const TrainingFlag& o) { return *this = bool(o); }
  TrainingFlag& operator=(TrainingFlag&&) noexcept = default;
  TrainingFlag& operator=(bool on) {
    set_flag(on);
    return *this;
  }
  operator bool() const { return flag(); }
};

/// Base of every module: a plain struct that lists its fields once.
///     struct Net : nn::Module {
///       nn::Linear fc{784, 10};
///       Tensor forward(const Tensor& x) { return fc(x); }
///       TAPIR_FIELDS(fc)
///     };
/// Modules are values: moving is free, copying is clone(). They are called like functions: net(x).
class Module {
  detail::Extras extras_;  // before `training`: small fields of a derived struct may stand behind it, unlisted

 public:
  Module() = default;
  Module(const Module&) = delete;             // modules are not copied: net.clone(), or std::move(net)
  Module& operator=(const Module&) = delete;  // modules are not copied: net.clone(), or std::move(net)
  Module(Module&& o) noexcept : extras_(std::move(o.extras_)), training(std::move(o.training)) { own_extras(); }
  Module& operator=(Module&& o) noexcept {
    training = std::move(o.training), std::swap(extras_, o.extras_);
    own_extras(), o.own_extras();
    return *this;
  }
  virtual ~Module() = default;
  [[no_unique_address]] TrainingFlag training;

  /// The fields as listed, containers opened. ValueError where a derived struct has no TAPIR_FIELDS of its own.
  std::vector<Field> fields();
  /// The direct children with their names.
  std::vector<std::pair<std::string, Module*>> named_children();
  /// This module ("") and all below, parents first.
  std::vector<std::pair<std::string, Module*>> named_modules(const std::string& prefix = "");

  /// Trained tensors with names like "blocks.0.fc.weight"; own ones before children's, a tied one once.
  std::vector<std::pair<std::string, Tensor>> named_parameters();
  std::vector<Tensor> parameters();
  std::vector<std::pair<std::string, Tensor>> named_buffers();
  /// Parameters and buffers under PyTorch's names; the tensors share memory with the module. A tied one stands under each name.
  StateDict state_dict();
  /// Copies values in, converting dtype and device. ValueError lists missing, unexpected and mis-shaped names in one message;
  /// the module is then as before.
  void load_state_dict(const StateDict& state, const LoadOptions& options = {});

  // These return the module, as what it is: Note [Chains].
  /// Moves every tensor, or converts the floating-point ones, inside its existing handle, so that optimizers follow. to(kCUDA, kFloat16)
  /// does both.
  Module& to(Device device);
  Module& to(DType dtype);
  /// Lays rank-4 tensors out in that format.
  Module& to(MemoryFormat format);
  Module& cuda() { return to(kCUDA); }
  Module& cpu() { return to(kCPU); }
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  Module& requires_grad_(bool on = true);
  void zero_grad(bool set_to_none = true);
  /// f(module) for this module and all below, children first.
  template <class F> void apply(F&& f) {
    for (auto& [name, child] : named_children()) child->apply(f);
    f(*this);
  }
  int64_t num_parameters();
  /// forward(x) of a module whose type is not known; a struct's own takes what its forward takes.
  Tensor operator()(const Tensor& x) { return tapir_call(x); }

  // Hooks around each call, Note [Module hooks]. Each returns a number for remove_hook; a hook may remove itself. Vectors keep their length.
  /// hook(module, inputs): it may replace the tensors among the arguments.
  template <class F> int64_t register_forward_pre_hook(F hook) {
    return add_hook_of(HookKind::ForwardPre, std::move(hook));
  }
  /// hook(module, inputs, outputs): it may replace those of the result.
  template <class F> int64_t register_forward_hook(F hook) { return add_hook_of(HookKind::Forward, std::move(hook)); }
  /// hook(module, grad_outputs), before the module's own gradients; it may replace them.
  template <class F> int64_t register_full_backward_pre_hook(F hook) {
    return add_hook_of(HookKind::BackwardPre, std::move(hook));
  }
  /// hook(module, grad_inputs, grad_outputs), after them: it may replace grad_inputs, which go on.
  template <class F> int64_t register_full_backward_hook(F hook) {
    return add_hook_of(HookKind::Backward, std::move(hook));
  }
  void remove_hook(int64_t id);

  /// As PyTorch prints it: Linear(in_features=2, out_features=3, bias=True), children indented.
  std::string str();
  /// What stands between the parentheses of a module without children; the plain fields by default.
  virtual std::string extra_repr();

  // Written by TAPIR_FIELDS.
  virtual void tapir_fields(std::vector<Field>&) = 0;  // abstract? The struct lacks its last line, TAPIR_FIELDS(a, b)
  virtual Module* tapir_clone(CloneMemo&) = 0;
  virtual Tensor tapir_call(const Tensor& x) = 0;
  virtual const std::type_info& tapir_type() const = 0;  // the struct in which the line stands
  virtual void tapir_rename(std::vector<Field>&) {}      // names that no list of members can give: weight_ih_l0
  virtual bool tapir_is_list() const { return false; }   // a list's own field adds no name: "0.weight"
  template <class F, class... S> static void tapir_zip(F&&, S&...) {}
  void tapir_check_type() const;
  detail::Extras& tapir_extras() { return extras_; }
  /// For clone(): takes back what a move brought there, all but the fields, and copies the parametrizations.
  void tapir_clone_extras(Module& to, CloneMemo& memo);

 private:
  template <class F> int64_t add_hook_of(HookKind kind, F hook) {
    return add_hook(kind, new detail::ModuleHookOf<F>(std::move(hook)));
  }
  int64_t add_hook(HookKind kind, detail::ModuleHook* adopted);
  void own_extras() {
    if (extras_) [[unlikely]]
      extras_.set_owner(this);
  }
  template <class Visit> void walk_tensors(const std::string& prefix, Visit&& visit);
};

/// std::cout << net
std::ostream& operator<<(std::ostream& out, Module& module);

/// A module on the heap whose type may be known by its base only; moves, does not copy.
class AnyModule : public tapir::detail::Owner<Module, tapir::detail::Delete> {
 public:
  AnyModule() = default;
  explicit AnyModule(Module* adopted) : Owner(adopted) {}
  template <ModuleField M> AnyModule(M module) : Owner(new M(std::move(module))) {}
  /// ValueError for an empty one.
  Module& operator*() const {
    check(bool(*this), "[AnyModule] expected a module, got an empty one");
    return *get();
  }
  Module* operator->() const { return &**this; }
  Tensor operator()(const Tensor& x) const { return (**this).tapir_call(x); }
};

namespace detail {

Tensor clone_tensor(const Tensor& x, CloneMemo& memo);

template <class T> auto clone_field(T& f, CloneMemo& memo);
template <class P> struct SharedCopy final : CloneMemo::Shared {
  P copy;
  SharedCopy(const void* from, P copy) : Shared(from, typeid(P)), copy(std::move(copy)) {}
};
/// What a shared pointer holds is cloned once for all that hold it; a module is known by its whole, since pointers name its bases too.
/// Plain data stays shared.
template <template <class> class P, class E> P<E> clone_shared(P<E>& f, CloneMemo& memo) {
  if constexpr (!holds<E, 5>()) return f;
  else {
    using Known = P<std::conditional_t<ModuleField<E>, Module, E>>;
    const void* from = f.get();
    if constexpr (ModuleField<E>) from = dynamic_cast<const void*>(f.get());
    if (!f) return f;
    for (CloneMemo::Shared* s : memo.shared)
      if (s->from == from && s->type == typeid(Known)) {
        Known& copy = static_cast<SharedCopy<Known>*>(s)->copy;
        return P<E>(copy, static_cast<E*>(copy.get()));
      }
    for (const void* p : memo.open)
      check(p != from, "[clone] expected modules that do not hold themselves, got a cycle of shared pointers");
    memo.open.push_back(from);
    P<E> copy;
    if constexpr (ModuleField<E>) copy = P<E>(static_cast<E*>(f->tapir_clone(memo)));
    else copy = P<E>(new E(clone_field(*f, memo)));
    memo.open.pop_back();
    memo.shared.push_back(new SharedCopy<Known>(from, copy));
    return copy;
  }
}

template <class T> auto clone_field(T& f, CloneMemo& memo) {
  if constexpr (TensorField<T>) {
    T out;
    static_cast<Tensor&>(out) = clone_tensor(f, memo);
    return out;
  } else if constexpr (std::is_same_v<T, AnyModule>) return f ? AnyModule(f->tapir_clone(memo)) : AnyModule();
  else if constexpr (ModuleField<T>) {
    // The one constructor that everybody's struct has is its move. So the fields move into the new struct and back (neither
    // can throw), and are then cloned one by one. This is why clone() is not const.
    static_assert(std::is_nothrow_move_constructible_v<T>, "clone() needs a module that can be moved without throwing");
    f.tapir_check_type();
    ScopedMode cloning(modes.cloning, true);
    T out(std::move(f));
    const auto assign = [](auto& to, auto&& from) {
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(to)>>) to = std::move(from);
    };
    T::tapir_zip([&](auto, auto& mine, auto& moved) { assign(mine, std::move(moved)); }, f, out);
    static_cast<Module&>(f).tapir_clone_extras(out, memo);
    T::tapir_zip([&](auto, auto& mine, auto& copy) { assign(copy, clone_field(mine, memo)); }, f, out);
    return out;
  } else if constexpr (RangeField<T>) {
    T out{};
    if constexpr (requires { typename T::mapped_type; }) {
      for (auto& e : f) out.emplace(e.first, clone_field(e.second, memo));
    } else if constexpr (requires { out.push_back(std::move(*f.begin())); }) {
      for (auto& e : f) out.push_back(clone_field(e, memo));
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      auto to = out.begin();  // std::array
      for (auto& e : f) *to++ = clone_field(e, memo);
    } else {
      static_assert(!holds<T, 5>(), "clone() cannot copy a field that is such a range of modules or tensors");
      return T(f);
    }
    return out;
  } else if constexpr (NamedField<T>) return T(f.first, clone_field(f.second, memo));
  else if constexpr (!HandleField<T>) return T(f);
  else if constexpr (SharedField<T>) return clone_shared(f, memo);
  else if constexpr (requires { f.release(); }) {  // std::unique_ptr
    using E = std::remove_cvref_t<decltype(*f)>;
    if constexpr (ModuleField<E>) return f ? T(static_cast<E*>(f->tapir_clone(memo))) : T();
    else return f ? T(new E(clone_field(*f, memo))) : T();
  } else if constexpr (requires { f.has_value(); }) {  // std::optional
    T out;
    if (f) out.emplace(clone_field(*f, memo));
    return out;
  } else {
    static_assert(!holds<T, 5>(), "clone() cannot copy a field that is such a handle of a module or tensor");
    return T(f);
  }
}
template <class M> Module* clone_as_base(M& m, CloneMemo& memo) {
  if constexpr (std::is_nothrow_move_constructible_v<M>) return new M(clone_field(m, memo));
  else fail(ErrorKind::Value, "[clone] a module that cannot be moved cannot be cloned");
}
template <class M, class... Nothing> auto clone(M& m, Nothing...) {
  CloneMemo memo;
  return clone_field(m, memo);
}
template <class M> void list_fields(std::vector<Field>& out, M& m) {
  M::tapir_zip([&](const char* name, auto& f) { list_field(out, name, f); }, m);
}
[[noreturn]] void no_forward(Module& module);
template <class M> Tensor call_erased(M& m, const Tensor& x) {
  if constexpr (requires {
                  { m.forward(x) } -> std::convertible_to<Tensor>;
                })
    return m(x);
  else no_forward(m);
}

/// Names the innermost module in the text of a ValueError that leaves the outermost call.
class CallScope {
 public:
  explicit CallScope(const char* type) : call_{type, modes.module}, range_(profiler::Kind::Module, type) {}
  [[noreturn]] void rethrow(Module& module, const ValueError& error) const;

 private:
  ModuleCall call_;
  ScopedMode<const ModuleCall*> mode_{modes.module, &call_};
  profiler::Range range_;
};
template <class M, class... A> decltype(auto) call(M& m, A&&... a) {
  CallScope scope(typeid(M).name());
  auto& base = const_cast<std::remove_const_t<M>&>(m);
  try {
    base.training.asked();
    if (base.tapir_extras()) [[unlikely]]
      return call_hooked(base, m, std::forward<A>(a)...);
    return m.forward(std::forward<A>(a)...);
  } catch (const ValueError& e) {
    scope.rethrow(base, e);
  }
}

}  // namespace detail
}  // namespace tapir::inline v0::nn

/// The fields of a module, in the order that names, state_dict and printing follow. Stands last in the struct.
#define TAPIR_FIELDS(...) TAPIR_FIELDS_WITH_BASE(::tapir::nn::Module __VA_OPT__(, ) __VA_ARGS__)
/// For a struct that derives from a finished module: the base's fields come first.
#define TAPIR_FIELDS_WITH_BASE(Base, ...)                                                                            \
  TAPIR_LIST_FIELDS(Base __VA_OPT__(, ) __VA_ARGS__)                                                                 \
  const std::type_info& tapir_type() const override { return tapir_layout(*this); }                                  \
  void tapir_fields(std::vector<::tapir::nn::Field>& out) override { ::tapir::nn::detail::list_fields(out, *this); } \
  ::tapir::nn::Module* tapir_clone(::tapir::nn::CloneMemo& memo) override {                                          \
    return ::tapir::nn::detail::clone_as_base(*this, memo);                                                          \
  }                                                                                                                  \
  ::tapir::Tensor tapir_call(const ::tapir::Tensor& x) override { return ::tapir::nn::detail::call_erased(*this, x); }

// For a header that many files include (it costs them half as much): the struct ends in
// TAPIR_DECLARE_FIELDS(weight, bias), and one source file says TAPIR_DEFINE_FIELDS(Linear, Bilinear).
#define TAPIR_DECLARE_FIELDS(...) TAPIR_DECLARE_FIELDS_WITH_BASE(::tapir::nn::Module __VA_OPT__(, ) __VA_ARGS__)
#define TAPIR_DECLARE_FIELDS_WITH_BASE(Base, ...)                          \
  TAPIR_LIST_FIELDS(Base __VA_OPT__(, ) __VA_ARGS__)                       \
  const std::type_info& tapir_type() const override;                       \
  void tapir_fields(std::vector<::tapir::nn::Field>& out) override;        \
  ::tapir::nn::Module* tapir_clone(::tapir::nn::CloneMemo& memo) override; \
  ::tapir::Tensor tapir_call(const ::tapir::Tensor& x) override;
#define TAPIR_DEFINE_FIELDS(...) TAPIR_EACH(TAPIR_DEFINE_FIELDS_OF, __VA_ARGS__)
#define TAPIR_DEFINE_FIELDS_OF(Type)                                                                              \
  const std::type_info& Type::tapir_type() const { return tapir_layout(*this); }                                  \
  void Type::tapir_fields(std::vector<::tapir::nn::Field>& out) { ::tapir::nn::detail::list_fields(out, *this); } \
  ::tapir::nn::Module* Type::tapir_clone(::tapir::nn::CloneMemo& memo) {                                          \
    return ::tapir::nn::detail::clone_as_base(*this, memo);                                                       \
  }                                                                                                               \
  ::tapir::Tensor Type::tapir_call(const ::tapir::Tensor& x) { return ::tapir::nn::detail::call_erased(*this, x); }

// Note [Chains]
#define TAPIR_CHAINS                                                          \
  template <::tapir::nn::Place... TapirAt> auto& to(TapirAt... at)& {         \
    return (::tapir::nn::Module::to(at), ..., *this);                         \
  }                                                                           \
  template <::tapir::nn::Place... TapirAt> auto to(TapirAt... at)&& {         \
    return (::tapir::nn::Module::to(at), ..., std::move(*this));              \
  }                                                                           \
  TAPIR_CHAIN(class = void, cuda, (), ())                                     \
  TAPIR_CHAIN(class = void, cpu, (), ())                                      \
  TAPIR_CHAIN(class = void, eval, (), ())                                     \
  TAPIR_CHAIN(std::integral TapirOn = bool, train, (TapirOn on = true), (on)) \
  TAPIR_CHAIN(std::integral TapirOn = bool, requires_grad_, (TapirOn on = true), (on))
// clang-format off
#define TAPIR_CHAIN(T, name, parameters, arguments)                                           \
  template <T> auto& name parameters & { return ::tapir::nn::Module::name arguments, *this; } \
  template <T> auto name parameters && { return ::tapir::nn::Module::name arguments, std::move(*this); }
// clang-format on

// What both have in common.
#define TAPIR_LIST_FIELDS(Base, ...)                                                                                \
 public:                                                                                                            \
  void tapir_names() { (void)(size_t() TAPIR_EACH(TAPIR_FIELD_NAME, __VA_ARGS__)); } /* first, for a plain error */ \
  auto tapir_self()->std::remove_cvref_t<decltype(*this)>*;                                                         \
  template <class TapirVisit, class... TapirSelf> static void tapir_zip(TapirVisit&& visit, TapirSelf&... s) {      \
    Base::tapir_zip(visit, static_cast<Base&>(s)...);                                                               \
    TAPIR_EACH(TAPIR_FIELD_VISIT, __VA_ARGS__)                                                                      \
  }                                                                                                                 \
  template <class Self> static const std::type_info& tapir_layout(const Self&) {                                    \
    TAPIR_EACH(TAPIR_FIELD_OWNED, __VA_ARGS__)                                                                      \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Winvalid-offsetof\"") constexpr std::array<   \
        ::tapir::nn::detail::Span, 0 TAPIR_EACH(TAPIR_FIELD_ONE, __VA_ARGS__)>                                      \
        spans{{TAPIR_EACH(TAPIR_FIELD_SPAN, __VA_ARGS__)}};                                                         \
    _Pragma("GCC diagnostic pop") constexpr size_t unlisted = ::tapir::nn::detail::unlisted_bytes(                  \
        ::tapir::nn::detail::end_of_fields<Base>(), ::tapir::nn::detail::end_of_fields<Self>(), spans);             \
    static_assert(unlisted == 0, "TAPIR_FIELDS(" #__VA_ARGS__ ") leaves out a field of this struct");               \
    static_assert(!::tapir::nn::detail::listed_twice(spans), "TAPIR_FIELDS(" #__VA_ARGS__ ") names a field twice"); \
    return typeid(Self);                                                                                            \
  }                                                                                                                 \
  template <class... Nothing>                                                                                       \
  requires(sizeof...(Nothing) == 0) auto clone(Nothing... n) { return ::tapir::nn::detail::clone(*this, n...); }    \
  template <class... TapirArgs> decltype(auto) operator()(TapirArgs&&... a) {                                       \
    return ::tapir::nn::detail::call(*this, std::forward<TapirArgs>(a)...);                                         \
  }                                                                                                                 \
  TAPIR_CHAINS
