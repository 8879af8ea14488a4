#include "module.h"

#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ostream>

#include "../autograd/grad_batches.h"
#include "../core/checks.h"
#include "../core/modes.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "hooks_impl.h"
#include "replace.h"

namespace tapir::inline v0::nn {

using Kind = Field::Kind;

namespace detail {

std::string float_text(double v) {
  char text[400];
  const bool fixed = v == 0 || (std::abs(v) >= 1e-4 && std::abs(v) < 1e16);
  const auto form = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const std::string s(text, std::to_chars(text, text + sizeof(text), v, form).ptr);
  return fixed && s.find('.') == s.npos ? s + ".0" : s;
}
std::string plain_text(const char* name, Scalar v) {
  if (v.is_float()) return tapir::format("{}={}", name, float_text(v.to_double()));
  return v.is_bool() ? tapir::format("{}={}", name, bool_text(v.to_bool())) : tapir::format("{}={}", name, v.to_int());
}
std::string plain_text(const char* name, const std::string& v) { return tapir::format("{}='{}'", name, v); }
std::string plain_text(const char* name, const Dims& v) { return tapir::format("{}={}", name, v); }

Tensor clone_tensor(const Tensor& x, CloneMemo& memo) {
  if (!x.defined()) return {};
  for (auto& [from, copy] : memo.tensors)
    if (from == x.impl_or_null()) return copy;
  Tensor copy = x.detach().clone();
  if (x.is_leaf() && x.requires_grad()) copy.requires_grad_();
  memo.tensors.emplace_back(x.impl_or_null(), copy);
  return copy;
}

static std::string type_name(const std::type_info& type) {
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  std::string name = text ? text : type.name();
  std::free(text);
  const size_t colon = name.substr(0, name.find('<')).rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

/// An error on its way out of nested calls, with the module it began in; whoever catches it sees a ValueError.
struct ErrorInModule : ValueError {
  ErrorInModule(const ValueError& error, const Module* module) : ValueError(error), module(module) {}
  const Module* module;  // compared only: it may be gone
};
void CallScope::rethrow(Module& module, const ValueError& error) const {
  const auto* from_below = dynamic_cast<const ErrorInModule*>(&error);
  if (call_.outer) {
    if (from_below) throw;
    throw ErrorInModule(error, &module);
  }
  const Module* failed = from_below ? from_below->module : &module;
  std::string where;  // a module that is no field of the outermost one has no name
  for (auto& [name, m] : module.named_modules())
    if (m == failed)
      where = tapir::format(" (in module {}{})", name.empty() ? std::string() : name + ": ", type_name(typeid(*m)));
  throw ValueError(error.what() + where);
}

void no_forward(Module& module) {
  const std::string name = type_name(typeid(module));
  CallScope(typeid(module).name())
      .rethrow(module,
               ValueError(tapir::format("[{}] this module has no forward(Tensor) that returns a Tensor", name)));
}

}  // namespace detail

namespace detail {
void no_such_form(Module& module) {
  const Module& instead = *replaced_by(module);
  fail(ErrorKind::Value, "[{}] the module that stands in the place of {} is not called with such arguments",
       type_name(typeid(instead)), type_name(typeid(module)));
}
void set_replacement(Module& module, Replacement* adopted) {
  std::unique_ptr<Replacement> other(adopted);
  check(module.tapir_extras().of(module).computed.empty(),
        "[replace] {} has computed parameters: remove_parametrizations first", type_name(typeid(module)));
  module.tapir_extras().get()->replacement = std::move(other);
  module.training.changed();
}
}  // namespace detail
Module* replaced_by(Module& module) {
  const detail::Extras& extras = module.tapir_extras();
  return extras && extras.get()->replacement ? &extras.get()->replacement->module() : nullptr;
}

void Module::tapir_check_type() const {
  check(typeid(*this) == tapir_type(), "[{}] a struct derived from module {} has no TAPIR_FIELDS of its own",
        detail::type_name(typeid(*this)), detail::type_name(tapir_type()));
}

std::vector<Field> Module::fields() {
  training.asked();
  if (Module* other = replaced_by(*this)) return other->fields();
  tapir_check_type();
  std::vector<Field> out;
  tapir_fields(out);
  tapir_rename(out);
  if (tapir_is_list())
    for (Field& f : out) f.name.erase(0, f.name.find('.') + 1);
  if (extras_)
    for (auto& c : extras_.get()->computed) {
      std::erase_if(out, [&](const Field& f) { return f.name == c.name; });
      out.push_back({"parametrizations." + c.name, Kind::Module, nullptr, c.list.get(), ""});
    }
  return out;
}

void Module::tapir_clone_extras(Module& to, CloneMemo& memo) {
  training = std::move(to.training);
  if (!to.extras_) return;
  std::swap(extras_, to.extras_), own_extras();
  if (detail::Replacement* other = extras_.get()->replacement.get())
    to.extras_.of(to).replacement.reset(other->clone(memo));
  for (auto& c : extras_.get()->computed)
    to.extras_.of(to).computed.push_back(
        {c.name, std::unique_ptr<ParametrizationList>(static_cast<ParametrizationList*>(c.list->tapir_clone(memo)))});
}

std::vector<std::pair<std::string, Module*>> Module::named_children() {
  std::vector<std::pair<std::string, Module*>> out;
  for (Field& f : fields())
    if (f.module) out.emplace_back(f.name, f.module);
  return out;
}

namespace {
/// One module below another, on the way through all of them.
class Level {
 public:
  Level() {
    check(depth < kMost, "[Module] expected at most {} modules inside one another, got more: does one hold itself?",
          kMost);
    ++depth;
  }
  ~Level() { --depth; }
  Level(const Level&) = delete;
  /// Deeper than a text shows: each level indents all below.
  bool is_deep() const { return depth > 100; }

 private:
  static constexpr int kMost = 3000;  // a stack holds them, a sanitized one too
  static inline thread_local int depth = 0;
};
void collect_modules(Module& module, const std::string& name, std::vector<std::pair<std::string, Module*>>& out) {
  const Level level;
  out.emplace_back(name, &module);
  for (auto& [child_name, child] : module.named_children())
    collect_modules(*child, name.empty() ? child_name : name + "." + child_name, out);
}
}  // namespace

std::vector<std::pair<std::string, Module*>> Module::named_modules(const std::string& prefix) {
  std::vector<std::pair<std::string, Module*>> out;
  collect_modules(*this, prefix, out);
  return out;
}

/// visit(name, kind, tensor) for every defined tensor: a module's parameters, its buffers, plain tensors, then its children.
template <class Visit> void Module::walk_tensors(const std::string& prefix, Visit&& visit) {
  const Level level;
  const std::vector<Field> own = fields();
  for (Kind kind : {Kind::Parameter, Kind::Buffer, Kind::Tensor})
    for (const Field& f : own)
      if (f.kind == kind && f.tensor->defined()) visit(prefix + f.name, kind, *f.tensor);
  for (const Field& f : own)
    if (f.module) f.module->walk_tensors(prefix + f.name + ".", visit);
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() {
  std::vector<std::pair<std::string, Tensor>> out;
  std::vector<TensorImpl*> seen;
  walk_tensors("", [&](const std::string& name, Kind kind, Tensor& t) {
    if (kind != Kind::Parameter || std::find(seen.begin(), seen.end(), t.impl_or_null()) != seen.end()) return;
    seen.push_back(t.impl_or_null());
    out.emplace_back(name, t);
  });
  return out;
}

std::vector<Tensor> Module::parameters() {
  std::vector<Tensor> out;
  for (auto& [name, t] : named_parameters()) out.push_back(t);
  return out;
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() {
  std::vector<std::pair<std::string, Tensor>> out;
  walk_tensors("", [&](const std::string& name, Kind kind, Tensor& t) {
    if (kind == Kind::Buffer) out.emplace_back(name, t);
  });
  return out;
}

StateDict Module::state_dict() {
  StateDict state;
  walk_tensors("", [&](const std::string& name, Kind kind, Tensor& t) {
    if (kind != Kind::Tensor) state.append(name, t.detach());
  });
  return state;
}

/// What hinders loading, in PyTorch's words; empty when all is well.
static std::string difference(const StateDict& mine, const StateDict& theirs, bool strict) {
  std::string missing, unexpected, mismatch, hint;
  for (auto& [name, t] : mine) {
    const Tensor* from = theirs.find(name);
    if (!from) missing += tapir::format("{}\"{}\"", missing.empty() ? "" : ", ", name);
    else if (!from->defined()) mismatch += tapir::format("\n\tundefined tensor for {}.", name);
    else if (!(from->shape() == t.shape()))
      mismatch += tapir::format(
          "\n\tsize mismatch for {}: copying a param with shape {} from checkpoint, the shape in current model is {}.",
          name, from->shape(), t.shape());
    else if (is_floating(t.dtype()) ? !is_floating(from->dtype())
                                    : is_floating(from->dtype()) && size_of(t.dtype()) == 1)  // quantized weights
      mismatch += tapir::format("\n\tdtype mismatch for {}: copying {} from checkpoint into {}.", name, from->dtype(),
                                t.dtype());
  }
  for (auto& [name, t] : theirs) {
    if (mine.contains(name)) continue;
    unexpected += tapir::format("{}\"{}\"", unexpected.empty() ? "" : ", ", name);
    for (const char* prefix : {"module.", "_orig_mod."})
      if (name.starts_with(prefix) && mine.contains(std::string_view(name).substr(std::string_view(prefix).size())))
        hint = tapir::format("\n\tThe names begin with \"{}\": load with {.strip_prefix = \"{}\"}.", prefix, prefix);
  }
  if (!strict) missing.clear(), unexpected.clear(), hint.clear();
  std::string text;
  if (!missing.empty()) text += "\n\tMissing key(s) in state_dict: " + missing + ".";
  if (!unexpected.empty()) text += "\n\tUnexpected key(s) in state_dict: " + unexpected + ".";
  return text + hint + mismatch;
}

void Module::load_state_dict(const StateDict& state, const LoadOptions& options) {
  StateDict stripped;
  const bool strip = !options.strip_prefix.empty();
  if (strip)
    for (auto& [name, t] : state)
      stripped.append(name.starts_with(options.strip_prefix) ? name.substr(options.strip_prefix.size()) : name, t);
  const StateDict& from = strip ? stripped : state;
  check_names("load_state_dict", from);
  const StateDict mine = state_dict();
  const std::string text = difference(mine, from, options.strict);
  check(text.empty(), "[load_state_dict] error(s) in loading state_dict for {}:{}", detail::type_name(typeid(*this)),
        text);
  NoGrad guard;
  for (auto& [name, t] : mine) {
    Tensor to = t;
    if (const Tensor* source = from.find(name)) to.copy_(*source);
  }
}

/// Puts `value`'s memory into the existing handle x.
static void set_data(Tensor& x, const Tensor& value) {
  TensorImpl &p = x.impl(), &from = value.impl();
  p.storage->handles.fetch_add(1, std::memory_order_relaxed);
  p.set_storage(from.storage), p.offset = from.offset, p.dtype = from.dtype, p.device = from.device;
  p.strides = from.strides, p.contiguous = from.contiguous;
}
template <class F> static void convert(Tensor& x, F&& f) {
  NoGrad guard;
  Tensor gradient = x.grad();
  x.set_grad({});
  set_data(x, f(x.detach()));
  if (gradient.defined()) x.set_grad(f(gradient.detach()));
}

Module& Module::to(Device device) {
  walk_tensors("", [&](const std::string&, Kind, Tensor& t) {
    if (t.device() != device) convert(t, [&](const Tensor& x) { return tapir::to(x, device); });
  });
  return *this;
}
Module& Module::to(DType dtype) {
  check(is_floating(dtype), "[Module::to] only accepts floating point dtypes, got {}", dtype);
  walk_tensors("", [&](const std::string&, Kind, Tensor& t) {
    if (is_floating(t.dtype()) && t.dtype() != dtype) convert(t, [&](const Tensor& x) { return tapir::to(x, dtype); });
  });
  return *this;
}
Module& Module::to(MemoryFormat format) {
  walk_tensors("", [&](const std::string&, Kind, Tensor& t) {
    if (t.dim() == 4) convert(t, [&](const Tensor& x) { return contiguous(x, format); });
  });
  return *this;
}

Module& Module::train(bool on) {
  const Level level;
  training = on;
  if (Module* other = replaced_by(*this)) other->training = on;
  for (auto& [name, child] : named_children()) child->train(on);
  return *this;
}
Module& Module::requires_grad_(bool on) {
  for (Tensor& p : parameters()) p.requires_grad_(on);
  return *this;
}
void Module::zero_grad(bool set_to_none) { zero_grads(parameters(), set_to_none); }
int64_t Module::num_parameters() {
  int64_t n = 0;
  for (Tensor& p : parameters()) n += p.numel();
  return n;
}

std::string Module::extra_repr() {
  std::string out;
  for (const Field& f : fields())
    if (f.kind == Kind::Plain) out += (out.empty() ? "" : ", ") + f.text;
  return out;
}

static std::string indent(std::string text) {
  for (size_t i = 0; (i = text.find('\n', i)) != text.npos; i += 3) text.insert(i + 1, "  ");
  return text;
}

/// "(0-2): 3 x Block(...)" for equal neighbours of a list, as PyTorch prints them.
static std::string str_of_list(const std::vector<std::pair<std::string, Module*>>& items) {
  std::string out;
  for (size_t i = 0; i < items.size();) {
    const std::string text = items[i].second->str();
    size_t last = i;
    while (last + 1 < items.size() && items[last + 1].second->str() == text) ++last;
    out += last > i ? tapir::format("\n  ({}-{}): {} x {}", items[i].first, items[last].first, int64_t(last - i + 1),
                                    indent(text))
                    : tapir::format("\n  ({}): {}", items[i].first, indent(text));
    i = last + 1;
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, Module& module) { return out << module.str(); }

std::string Module::str() {
  const Level level;
  if (level.is_deep()) return detail::type_name(typeid(*this)) + "(...)";
  if (Module* other = replaced_by(*this)) return other->str();
  const auto children = named_children();
  std::string body;
  for (size_t i = 0; i < children.size();) {
    const auto& [name, child] = children[i];
    const size_t dot = name.find('.');
    if (tapir_is_list() || dot == name.npos) {
      body += tapir::format("\n  ({}): {}", name, indent(child->str()));
      ++i;
      continue;
    }
    std::vector<std::pair<std::string, Module*>> list;  // a std::vector of modules prints as a ModuleList
    const std::string stem = name.substr(0, dot + 1);
    for (; i < children.size() && children[i].first.starts_with(stem); ++i)
      list.emplace_back(children[i].first.substr(dot + 1), children[i].second);
    const bool computed = stem == "parametrizations.";
    body += tapir::format("\n  ({}): {}({}\n  )", stem.substr(0, dot), computed ? "ModuleDict" : "ModuleList",
                          indent(str_of_list(list)));
  }
  const bool computed = extras_ && !extras_.get()->computed.empty();
  const std::string type = (computed ? "Parametrized" : "") + detail::type_name(typeid(*this)), extra = extra_repr();
  if (body.empty()) return type + "(" + extra + ")";
  return type + "(" + (extra.empty() ? "" : "\n  " + extra) + body + "\n)";
}

}  // namespace tapir::inline v0::nn
