#pragma once
#include <iosfwd>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "../core/host_state.h"
#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/state_dict.h"
#include "../core/tensor.h"
#include "fields.h"
#include "hooks.h"

namespace tapir::inline v0::nn {

struct LoadOptions {
  bool strict = true;             // missing and unexpected names are errors
  std::string strip_prefix = {};  // removed from names that begin with it: "module.", "_orig_mod."
};

/// A bool, at first true, of which compiled programs learn that it has changed: Note [What a compiled program takes for constant].
class TrainingFlag {
 public:
  TrainingFlag() = default;
  TrainingFlag(const TrainingFlag& o) { *this = bool(o); }
  ~TrainingFlag() { *this = true; }
  TrainingFlag& operator=(const TrainingFlag& o) { return *this = bool(o); }
  TrainingFlag& operator=(bool on) {
    if (on != on_) host_state.flip(this);
    on_ = on;
    return *this;
  }
  operator bool() const { return on_; }

 private:
  bool on_ = true;
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
  Module(Module&& o) noexcept : extras_(std::move(o.extras_)), training(o.training) { own_extras(); }
  Module& operator=(Module&& o) noexcept {
    training = o.training, std::swap(extras_, o.extras_);
    own_extras(), o.own_extras();
    host_state.changes.fetch_add(
        1, std::memory_order_relaxed);  // for compiled programs, though the old weights may live on
    return *this;
  }
  virtual ~Module() = default;
  TrainingFlag training;

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

  /// Moves or converts every floating-point tensor inside its existing handle, so that optimizers follow.
  void to(Device device);
  void to(DType dtype);
  /// Lays rank-4 tensors out in that format.
  void to(MemoryFormat format);
  void train(bool on = true);
  void eval() { train(false); }
  void requires_grad_(bool on = true);
  void zero_grad(bool set_to_none = true);
  /// f(module) for this module and all below, children first.
  template <class F> void apply(F&& f) {
    for (auto& [name, child] : named_children()) child->apply(f);
    f(*this);
  }
  int64_t num_parameters();

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
  virtual void tapir_fields(std::vector<Field>&) = 0;
  virtual Module* tapir_clone(CloneMemo&) = 0;
  /// forward(x) of a module whose type is not known.
  virtual Tensor tapir_call(const Tensor& x) = 0;
  virtual const std::type_info& tapir_type() const = 0;  // the struct in which the line stands
  virtual void tapir_rename(std::vector<Field>&) {}      // names that no list of members can give: weight_ih_l0
  virtual bool tapir_is_list() const { return false; }   // a list's own field adds no name: "0.weight"
  template <class F, class... S> static void tapir_zip(F&&, S&...) {}
  void tapir_check_type() const;
  detail::Extras& tapir_extras() { return extras_; }
  /// For clone(): takes the extras back from where a move brought them, and copies the parametrizations there.
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
class AnyModule {
 public:
  AnyModule() = default;
  explicit AnyModule(Module* adopted) : p_(adopted) {}
  template <ModuleField M> AnyModule(M module) : p_(new M(std::move(module))) {}
  AnyModule(AnyModule&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  AnyModule& operator=(AnyModule&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~AnyModule() { delete p_; }
  Module& operator*() const { return *p_; }
  Module* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  Tensor operator()(const Tensor& x) const { return p_->tapir_call(x); }

 private:
  Module* p_ = nullptr;
};

namespace detail {

Tensor clone_tensor(const Tensor& x, CloneMemo& memo);

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
    } else {
      auto to = out.begin();  // std::array
      for (auto& e : f) *to++ = clone_field(e, memo);
    }
    return out;
  } else if constexpr (NamedField<T>) return T(f.first, clone_field(f.second, memo));
  else if constexpr (requires { f.release(); }) {  // std::unique_ptr
    using E = std::remove_cvref_t<decltype(*f)>;
    if constexpr (ModuleField<E>) return f ? T(static_cast<E*>(f->tapir_clone(memo))) : T();
    else return f ? T(new E(clone_field(*f, memo))) : T();
  } else if constexpr (requires { f.has_value(); }) {  // std::optional
    T out;
    if (f) out.emplace(clone_field(*f, memo));
    return out;
  } else return T(f);
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

// What both have in common.
#define TAPIR_LIST_FIELDS(Base, ...)                                                                                \
 public:                                                                                                            \
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
  }
