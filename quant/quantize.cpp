#include "quantize.h"

#include <algorithm>
#include <typeinfo>

#include "../nn/norm.h"
#include "../nn/replace.h"
#include "../ops/arithmetic.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/shape.h"
#include "../ops/unary.h"
#include "float8.h"

namespace tapir::inline v0::quant {
namespace {

using nn::Module;

bool skipped(const std::string& name, const std::vector<std::string>& skip) {
  return std::any_of(skip.begin(), skip.end(), [&](const std::string& s) {
    return name == s || (name.size() > s.size() && name.starts_with(s) && name[s.size()] == '.');
  });
}
/// ValueError where a layer trains in 8-bit floats: what stands in its place keeps its weights from the other forms.
void refuse_float8(const char* op, Module& model, const std::vector<std::string>& skip) {
  for (auto& [name, m] : model.named_modules())
    if (Module* const other = nn::replaced_by(*m); other && !skipped(name, skip))
      check(!dynamic_cast<Float8Linear*>(other) && !dynamic_cast<Float8Conv1D*>(other),
            "[{}] expected a model without float8_training_(), layer {} has been replaced; load its state_dict into "
            "a fresh model",
            op, name);
}
/// f(name, module) for every module that nothing stands in the place of yet. ValueError for a name in `skip` that nothing has.
template <class F> void for_modules(const char* op, Module& model, const std::vector<std::string>& skip, F&& f) {
  const auto all = model.named_modules();
  for (const std::string& s : skip)
    check(std::any_of(all.begin(), all.end(), [&](auto& m) { return skipped(m.first, {s}); }),
          "[{}] expected names of modules in skip, got {}", op, s);
  for (auto& [name, m] : all)
    if (!skipped(name, skip) && !nn::replaced_by(*m)) f(name, *m);
}
template <class M> M* exactly(Module& m) { return typeid(m) == typeid(M) ? static_cast<M*>(&m) : nullptr; }

/// All of m but its hooks, which stay where they are called.
template <class M> M taken(M& m) {
  M out(std::move(m));
  std::swap(m.tapir_extras(), out.tapir_extras());
  if (m.tapir_extras()) m.tapir_extras().set_owner(&m);
  return out;
}
/// The weight (O, K) of a linear layer of either kind, or none.
Tensor linear_weight(Module& m) {
  if (auto* l = exactly<nn::Linear>(m)) return l->weight.detach();
  if (auto* l = exactly<nn::Conv1D>(m)) return t(l->weight.detach());
  return {};
}
/// A linear layer becomes Q(weight, bias, more...).
template <class Q, class... More> bool replace_linear(Module& m, const More&... more) {
  const Tensor w = linear_weight(m);
  if (!w.defined()) return false;
  const auto change = [&](auto& l) {
    nn::replace<Tensor(Tensor)>(l, Q(w, l.bias, more...));
    l.weight = Parameter(), l.bias = Parameter();
  };
  if (auto* l = exactly<nn::Linear>(m)) change(*l);
  else change(*exactly<nn::Conv1D>(m));
  return true;
}

/// A linear layer M becomes F, which holds the same parameters, if tensor cores take its sizes.
template <class M, class F> bool replace_by_float8(Module& m) {
  M* layer = exactly<M>(m);
  if (!layer) return false;
  const Tensor& w = layer->weight;  // none where it is computed, which replace() refuses
  if (w.defined() && (w.size(0) % 16 != 0 || w.size(1) % 16 != 0)) return false;
  F other(*layer);
  other.training = layer->training;
  nn::replace<Tensor(Tensor)>(*layer, std::move(other));
  return true;
}

using Lstm = nn::LSTM;

template <class M> bool observe(Module& m, const ObserverOptions& o) {
  M* layer = exactly<M>(m);
  if (!layer) return false;
  Observed<M> other(taken(*layer), o);
  other.training = layer->training;
  nn::replace<Tensor(Tensor)>(*layer, std::move(other));
  return true;
}
bool pads_with_zeros(Module& m) {
  auto* conv = dynamic_cast<nn::ConvBase*>(&m);
  return !conv || conv->padding_mode == "zeros";
}

template <class M> Observed<M>* observed(Module& m) { return dynamic_cast<Observed<M>*>(nn::replaced_by(m)); }
Observer* observer_of(Module& m) {
  if (auto* o = observed<nn::Linear>(m)) return &o->input;
  if (auto* o = observed<nn::Conv1d>(m)) return &o->input;
  if (auto* o = observed<nn::Conv2d>(m)) return &o->input;
  if (auto* o = observed<nn::Conv3d>(m)) return &o->input;
  return nullptr;
}
template <class M> bool convert_conv(Module& m, const QuantizationParams& input) {
  auto* o = observed<M>(m);
  if (o) nn::replace<Tensor(Tensor)>(m, Conv(std::move(static_cast<nn::ConvBase&>(*o)), input));
  return o != nullptr;
}

/// Are the layer's outputs what a batch norm of y normalises, dimension 1? Those of a linear layer are the last.
bool makes_channels(Module& layer, const Tensor& y) { return y.dim() == 2 || !exactly<nn::Linear>(layer); }

/// Which module's output each batch norm takes: seen in one call, by the tensors themselves.
struct Flow {
  struct Step {
    Module* module;
    Tensor x;  // held, so that no other tensor takes its place
  };
  std::vector<Step> outputs, inputs;
  Module* source_of(Module* norm) const {
    Module* found = nullptr;
    int uses = 0;
    for (const Step& in : inputs) {
      if (in.module == norm) ++uses;
      for (const Step& out : outputs)
        if (in.module == norm && out.x.is_same(in.x) && makes_channels(*out.module, in.x)) found = out.module;
    }
    int calls = 0, readers = 0;
    for (const Step& out : outputs)
      if (out.module == found) {
        ++calls;
        for (const Step& in : inputs) readers += in.x.is_same(out.x);
      }
    return uses == 1 && calls == 1 && readers == 1 ? found : nullptr;
  }
};

/// weight and bias of a convolution or linear layer
std::pair<Parameter*, Parameter*> parameters_of(Module& m) {
  if (auto* l = exactly<nn::Linear>(m)) return {&l->weight, &l->bias};
  if (exactly<nn::Conv1d>(m) || exactly<nn::Conv2d>(m) || exactly<nn::Conv3d>(m)) {
    auto& c = static_cast<nn::ConvBase&>(m);
    return {&c.weight, &c.bias};
  }
  return {};
}
nn::BatchNormBase* batch_norm(Module& m) {
  const bool is = exactly<nn::BatchNorm1d>(m) || exactly<nn::BatchNorm2d>(m) || exactly<nn::BatchNorm3d>(m);
  return is ? static_cast<nn::BatchNormBase*>(&m) : nullptr;
}
/// w' = w f, b' = (b - mean) f + beta with f = gamma / sqrt(var + eps)
void fold(Module& layer, nn::BatchNormBase& norm) {
  auto [w, b] = parameters_of(layer);
  Tensor f = rsqrt(add(norm.running_var, norm.options.eps));
  if (norm.weight.defined()) f = mul(f, norm.weight);
  Tensor bias = mul(b->defined() ? sub(*b, norm.running_mean) : neg(norm.running_mean), f);
  if (norm.bias.defined()) bias = add(bias, norm.bias);
  Shape along = Dims::filled(w->dim(), 1);
  along[0] = f.numel();
  *w = Parameter(mul(*w, view(f, along))), *b = Parameter(bias);
  nn::replace<Tensor(Tensor)>(norm, nn::Identity());
}

}  // namespace

void quantize_dynamic_(Module& model, const DynamicOptions& o) {
  refuse_float8("quantize_dynamic", model, o.skip);
  for_modules("quantize_dynamic", model, o.skip, [&](const std::string&, Module& m) {
    if (replace_linear<DynamicLinear>(m)) return;
    if (auto* lstm = exactly<Lstm>(m)) {
      DynamicLSTM other(taken(*lstm));
      other.training = lstm->training;
      nn::replace<Lstm::Output(Tensor), Lstm::Output(Tensor, nn::LSTMState), Lstm::Packed(nn::PackedSequence),
                  Lstm::Packed(nn::PackedSequence, nn::LSTMState)>(*lstm, std::move(other));
    }
  });
}

void quantize_weights_(Module& model, const WeightsOptions& o) {
  refuse_float8("quantize_weights", model, o.skip);
  check(o.bits == 8 || o.bits == 4, "[quantize_weights] expected 8 or 4 bits, got {}", o.bits);
  const WeightOptions of_layer{o.bits, o.group};
  for_modules("quantize_weights", model, o.skip, [&](const std::string& name, Module& m) {
    const Tensor w = linear_weight(m);
    const int64_t group = o.group ? o.group : o.bits == 4 ? 64 : 1;
    check(!w.defined() || (group > 0 && w.size(1) % group == 0),
          "[quantize_weights] expected a group that divides the {} inputs of {}, got {}: skip it, or choose another",
          w.defined() ? w.size(1) : 0, name, group);
  });
  for_modules("quantize_weights", model, o.skip, [&](const std::string&, Module& m) {
    auto* table = o.embeddings ? exactly<nn::Embedding>(m) : nullptr;
    if (replace_linear<WeightOnlyLinear>(m, of_layer) || !table) return;
    nn::replace<Tensor(Tensor)>(m, Embedding(table->weight));
    table->weight = Parameter();
  });
}

int64_t float8_training_(Module& model, const Float8Options& o) {
  int64_t replaced = 0;
  for_modules("float8_training", model, o.skip, [&](const std::string&, Module& m) {
    replaced += replace_by_float8<nn::Linear, Float8Linear>(m) || replace_by_float8<nn::Conv1D, Float8Conv1D>(m);
  });
  return replaced;
}

int64_t fold_batch_norm_(Module& model, const Tensor& example) {
  NoGrad guard;
  model.eval();
  Flow flow;
  std::vector<std::pair<Module*, int64_t>> hooks;
  std::vector<nn::BatchNormBase*> norms;
  for_modules("fold_batch_norm", model, {}, [&](const std::string&, Module& m) {
    Module* at = &m;
    const auto watch = [&flow, at](Module&, std::vector<Tensor>& in, std::vector<Tensor>& out) {
      if (out.empty()) flow.inputs.push_back({at, in[0]});
      else flow.outputs.push_back({at, out[0]});
    };
    if (parameters_of(m).first) hooks.emplace_back(at, m.register_forward_hook(watch));
    if (auto* norm = batch_norm(m); norm && norm->running_mean.defined()) {
      norms.push_back(norm);
      hooks.emplace_back(at, m.register_forward_pre_hook(watch));
    }
  });
  const Tensor before = model.tapir_call(example).clone();
  for (auto& [m, id] : hooks) m->remove_hook(id);
  int64_t folded = 0;
  for (nn::BatchNormBase* norm : norms)
    if (Module* layer = flow.source_of(norm)) fold(*layer, *norm), ++folded;
  const Tensor after = model.tapir_call(example);
  const double off = amax(abs(sub(after, before))).item(), size = amax(abs(before)).item();
  check(
      off <= 1e-3 * (size + 1e-6),
      "[fold_batch_norm] expected the same result, got one that is off by {} of {}: an output that a batch norm takes "
      "is read elsewhere too",
      off, size);
  return folded;
}

void prepare_(Module& model, const Tensor& example, const StaticOptions& o) {
  refuse_float8("prepare", model, o.skip);
  if (example.defined()) fold_batch_norm_(model, example);
  model.eval();
  for_modules("prepare", model, o.skip, [&](const std::string&, Module& m) {
    if (!pads_with_zeros(m)) return;
    observe<nn::Linear>(m, o.activations) || observe<nn::Conv1d>(m, o.activations) ||
        observe<nn::Conv2d>(m, o.activations) || observe<nn::Conv3d>(m, o.activations);
  });
}

void convert_(Module& model, const ConvertOptions& o) {
  std::vector<std::pair<Module*, QuantizationParams>> all;  // of all before any is changed
  for (auto& [name, m] : model.named_modules())
    if (Observer* observer = observer_of(*m)) {
      if (o.uncalibrated && !observer->has_seen()) {
        Observer none(observer->options);
        none(full({2}, 1.0));
        all.emplace_back(m, none.calculate_qparams());
        continue;
      }
      check(observer->has_seen(), "[convert] module {} saw no data: call the prepared model on calibration data first",
            name);
      all.emplace_back(m, observer->calculate_qparams());
    }
  for (auto& [m, q] : all) {
    if (auto* l = observed<nn::Linear>(*m)) nn::replace<Tensor(Tensor)>(*m, Linear(l->weight, l->bias, q));
    else convert_conv<nn::Conv1d>(*m, q) || convert_conv<nn::Conv2d>(*m, q) || convert_conv<nn::Conv3d>(*m, q);
  }
}

}  // namespace tapir::inline v0::quant
