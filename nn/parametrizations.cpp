#include "parametrizations.h"

#include <algorithm>
#include <cmath>

#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/distance.h"
#include "../ops/matmul.h"
#include "../ops/random.h"
#include "../ops/shape.h"
#include "../ops/unary.h"
#include "../ops/vector_norm.h"
#include "conv.h"
#include "hooks_impl.h"
#include "replace.h"

namespace tapir::inline v0::nn {
namespace {

struct WeightNorm : Module {
  std::optional<int64_t> dim;
  explicit WeightNorm(std::optional<int64_t> dim) : dim(dim) {}
  Tensor norms(const Tensor& v) const {
    Dims over;
    for (int64_t d = 0; d < v.dim(); ++d)
      if (!dim || d != *dim) over.push_back(d);
    if (over.empty()) return tapir::abs(v);
    return linalg::vector_norm(v, 2, over, {.keepdim = dim.has_value()});
  }
  Tensor forward(const Tensor& g, const Tensor& v) { return mul(v, div(g, norms(v))); }
  std::string extra_repr() override { return ""; }
  TAPIR_FIELDS(dim)
};

struct SpectralNorm : Module {
  int64_t dim, iterations;
  double eps;
  Buffer _u, _v;
  SpectralNorm(const Tensor& w, int64_t dim, int64_t iterations, double eps)
      : dim(dim), iterations(iterations), eps(eps) {
    if (w.dim() < 2) return;
    NoGrad guard;
    const Tensor m = matrix(w.detach());
    _u = normalize(randn(m.shape()[0], {.dtype = w.dtype(), .device = w.device()}), {.dim = 0, .eps = eps});
    _v = normalize(randn(m.shape()[1], {.dtype = w.dtype(), .device = w.device()}), {.dim = 0, .eps = eps});
    iterate(m, 15);
  }
  Tensor matrix(const Tensor& w) const { return flatten(transpose(w, 0, dim), 1); }
  void iterate(const Tensor& m, int64_t times) {
    NoGrad guard;
    for (int64_t i = 0; i < times; ++i) {
      _u.copy_(normalize(mv(m, _v), {.dim = 0, .eps = eps}));
      _v.copy_(normalize(mv(m.t(), _u), {.dim = 0, .eps = eps}));
    }
  }
  Tensor forward(const Tensor& w) {
    if (w.dim() < 2) return normalize(w, {.dim = 0, .eps = eps});
    const Tensor m = matrix(w);
    if (training) iterate(m.detach(), iterations);
    const Tensor u = _u.clone(), v = _v.clone();  // the next call writes to them before this one's backward
    return div(w, dot(u, mv(m, v)));
  }
  std::string extra_repr() override { return ""; }
  TAPIR_FIELDS(dim, iterations, eps, _u, _v)
};

Field* find_parameter(std::vector<Field>& fields, const std::string& name) {
  for (Field& f : fields)
    if (f.name == name && f.kind == Field::Kind::Parameter && f.tensor->defined()) return &f;
  return nullptr;
}
/// The field as a tensor, for as long as the module does not move.
Tensor& parameter_of(const char* op, Module& module, const std::string& name) {
  check(!replaced_by(module), "[{}] expected a module that is called itself, another one stands in its place", op);
  std::vector<Field> fields = module.fields();
  const Field* f = find_parameter(fields, name);
  check(f != nullptr, "[{}] the module has no parameter {} of its own, or it is computed already", op, name);
  return *f->tensor;
}
int64_t wrapped(const char* op, int64_t dim, const Tensor& w) {
  check(dim >= -w.dim() && dim < w.dim(),
        "[{}] dimension out of range (expected to be in range of [{}, {}], but got {})", op, -w.dim(), w.dim() - 1,
        dim);
  return dim < 0 ? dim + w.dim() : dim;
}
void install(Module& module, const std::string& name, std::unique_ptr<ParametrizationList> list) {
  module.tapir_extras().of(module).computed.push_back({name, std::move(list)});
  module.training.changed();
  detail::compute_parameters(module);
}
/// A trained tensor like w, with its own memory.
Parameter parameter_like(const Tensor& value, const Tensor& w) {
  return Parameter(value.detach().clone(), w.requires_grad());
}
}  // namespace

Tensor ParametrizationList::compute() {
  check(!steps.empty(), "[ParametrizationList] expected a step, got none");
  AnyModule& step = steps[0];
  if (auto* w = dynamic_cast<WeightNorm*>(&*step)) return (*w)(original0, original1);
  return step(original);
}

void weight_norm(Module& module, const WeightNormOptions& o) {
  const Tensor w = parameter_of("weight_norm", module, o.name);
  std::optional<int64_t> dim = o.dim;
  if (dim && *dim == -1) dim.reset();  // as in PyTorch: the whole
  if (dim) dim = wrapped("weight_norm", *dim, w);
  WeightNorm step(dim);
  auto list = std::make_unique<ParametrizationList>();
  list->original0 = parameter_like(step.norms(w.detach()), w), list->original1 = parameter_like(w, w);
  list->steps.emplace_back(std::move(step));
  install(module, o.name, std::move(list));
}

void spectral_norm(Module& module, const SpectralNormOptions& o) {
  const Tensor w = parameter_of("spectral_norm", module, o.name);
  check(o.n_power_iterations > 0 && o.n_power_iterations <= 10000,
        "[spectral_norm] expected n_power_iterations to be positive and at most 10000, got {}", o.n_power_iterations);
  check(o.eps >= 0 && std::isfinite(o.eps), "[spectral_norm] expected a finite eps of at least 0, got {}", o.eps);
  auto* conv = dynamic_cast<ConvBase*>(&module);
  const int64_t dim = wrapped("spectral_norm", o.dim.value_or(conv && !conv->output_padding.empty() ? 1 : 0), w);
  auto list = std::make_unique<ParametrizationList>();
  list->original = parameter_like(w, w);
  list->steps.emplace_back(SpectralNorm(w, dim, o.n_power_iterations, o.eps));
  install(module, o.name, std::move(list));
}

static detail::ModuleExtras::Computed* find_computed(Module& module, const std::string& name) {
  if (!module.tapir_extras()) return nullptr;
  for (auto& c : module.tapir_extras().get()->computed)
    if (c.name == name) return &c;
  return nullptr;
}
bool is_parametrized(Module& module, const std::string& name) { return find_computed(module, name) != nullptr; }

void remove_parametrizations(Module& module, const std::string& name) {
  auto* computed = find_computed(module, name);
  check(computed != nullptr, "[remove_parametrizations] parameter {} is not parametrized", name);
  const Tensor now = computed->list->compute();
  auto& all = module.tapir_extras().get()->computed;
  all.erase(all.begin() + (computed - all.data()));
  module.training.changed();
  std::vector<Field> fields;
  module.tapir_fields(fields);
  for (Field& f : fields)
    if (f.name == name) *f.tensor = parameter_like(now, now);
}

namespace detail {
void compute_parameters(Module& module) {
  auto& computed = module.tapir_extras().get()->computed;
  if (computed.empty()) return;
  std::vector<Field> fields;
  module.tapir_fields(fields);
  for (auto& c : computed)
    for (Field& f : fields)
      if (f.name == c.name) *f.tensor = c.list->compute();
}
}  // namespace detail

TAPIR_DEFINE_FIELDS(ParametrizationList)

}  // namespace tapir::inline v0::nn
