// Module cases: state, outputs, gradients of inputs and parameters, changed buffers.
#include "run.h"

namespace conformance {

namespace {
struct ModuleArgs : Args {
  const Family& family;
  const Json& json;
  ModuleArgs(const Family& family, const Json& json) : family(family), json(json) {
    for (auto& [name, v] : json["kwargs"].items()) named[name] = family.decode(v);
  }
};
using Make = std::function<nn::AnyModule(ModuleArgs&)>;
std::map<std::string, Make>& makers();

Padding padding_of(Args& a) {
  const Value* v = a.find("padding");
  if (!v) return 0;
  return v->kind == Value::Kind::String ? Padding(v->text) : Padding(dims_of(*v));
}
nn::Conv2dOptions conv_options(Args& a) {
  return {a.dims("stride", 1),    padding_of(a),           a.dims("dilation", 1),
          a.integer("groups", 1), a.boolean("bias", true), a.text("padding_mode", "zeros")};
}
nn::BatchNormOptions batch_norm_options(Args& a) {
  nn::BatchNormOptions o{a.number("eps", 1e-5), 0.1, a.boolean("affine", true), a.boolean("track_running_stats", true)};
  if (auto it = a.named.find("momentum"); it != a.named.end())
    o.momentum = a.has("momentum") ? std::optional(a.number("momentum")) : std::nullopt;
  return o;
}
template <class M> nn::AnyModule batch_norm_module(ModuleArgs& a) {
  return M(a.integer("num_features"), batch_norm_options(a));
}

nn::AnyModule make_module(const Family& family, const Json& json) {
  auto it = makers().find(json["module"]);
  if (it == makers().end()) throw Refused("unbound module " + json["module"].get<std::string>());
  ModuleArgs args(family, json);
  nn::AnyModule m = it->second(args);
  args.check_all_used();
  return m;
}

std::map<std::string, Make>& makers() {
  static std::map<std::string, Make> table{
      {"Linear",
       [](ModuleArgs& a) -> nn::AnyModule {
         return nn::Linear(a.integer("in_features"), a.integer("out_features"), {.bias = a.boolean("bias", true)});
       }},
      {"Conv2d",
       [](ModuleArgs& a) -> nn::AnyModule {
         return nn::Conv2d(a.integer("in_channels"), a.integer("out_channels"), a.dims("kernel_size"), conv_options(a));
       }},
      {"Identity", [](ModuleArgs&) -> nn::AnyModule { return nn::Identity(); }},
      {"Flatten",
       [](ModuleArgs& a) -> nn::AnyModule { return nn::Flatten(a.integer("start_dim", 1), a.integer("end_dim", -1)); }},
      {"BatchNorm1d", batch_norm_module<nn::BatchNorm1d>},
      {"BatchNorm2d", batch_norm_module<nn::BatchNorm2d>},
      {"LayerNorm",
       [](ModuleArgs& a) -> nn::AnyModule {
         return nn::LayerNorm(a.dims("normalized_shape"),
                              {a.number("eps", 1e-5), a.boolean("elementwise_affine", true), a.boolean("bias", true)});
       }},
      {"MaxPool2d",
       [](ModuleArgs& a) -> nn::AnyModule {
         a.find("return_indices");
         return nn::MaxPool2d(a.dims("kernel_size"), {a.dims("stride"), a.dims("padding", 0), a.dims("dilation", 1),
                                                      a.boolean("ceil_mode", false)});
       }},
      {"AvgPool2d",
       [](ModuleArgs& a) -> nn::AnyModule {
         AvgPoolOptions o{a.dims("stride"), a.dims("padding", 0), a.boolean("ceil_mode", false),
                          a.boolean("count_include_pad", true)};
         if (a.has("divisor_override")) o.divisor_override = a.integer("divisor_override");
         return nn::AvgPool2d(a.dims("kernel_size"), o);
       }},
      {"AdaptiveAvgPool2d",
       [](ModuleArgs& a) -> nn::AnyModule {
         Dims size;
         const Value& v = a.need("output_size");
         if (v.kind != Value::Kind::List) size = dims_of(v);
         for (const Value& item : v.list) size.push_back(item.none() ? -1 : scalar_of(item).to_int());
         return nn::AdaptiveAvgPool2d(size);
       }},
      {"ReLU", [](ModuleArgs& a) -> nn::AnyModule { return nn::ReLU({a.boolean("inplace", false)}); }},
      {"Sigmoid", [](ModuleArgs&) -> nn::AnyModule { return nn::Sigmoid(); }},
      {"Tanh", [](ModuleArgs&) -> nn::AnyModule { return nn::Tanh(); }},
      {"SiLU", [](ModuleArgs&) -> nn::AnyModule { return nn::SiLU(); }},
      {"GELU", [](ModuleArgs& a) -> nn::AnyModule { return nn::GELU(a.text("approximate", "none")); }},
      {"LeakyReLU", [](ModuleArgs& a) -> nn::AnyModule { return nn::LeakyReLU(a.number("negative_slope", 0.01)); }},
      {"Softmax", [](ModuleArgs& a) -> nn::AnyModule { return nn::Softmax(a.integer("dim")); }},
      {"LogSoftmax", [](ModuleArgs& a) -> nn::AnyModule { return nn::LogSoftmax(a.integer("dim")); }},
      {"Dropout",
       [](ModuleArgs& a) -> nn::AnyModule {
         return nn::Dropout(a.number("p", 0.5), {.inplace = a.boolean("inplace", false)});
       }},
      {"Embedding",
       [](ModuleArgs& a) -> nn::AnyModule {
         EmbeddingOptions o;
         if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
         if (a.has("max_norm")) o.max_norm = a.number("max_norm");
         o.norm_type = a.number("norm_type", 2), o.scale_grad_by_freq = a.boolean("scale_grad_by_freq", false);
         return nn::Embedding(a.integer("num_embeddings"), a.integer("embedding_dim"), o);
       }},
      {"Sequential",
       [](ModuleArgs& a) -> nn::AnyModule {
         nn::Sequential s;
         for (const Json& child : a.json["children"]) s.items.push_back(make_module(a.family, child));
         return s;
       }},
  };
  return table;
}

Reduction reduction_of(Args& a) {
  const std::string name = a.text("reduction", "mean");
  return name == "none" ? Reduction::None : name == "sum" ? Reduction::Sum : Reduction::Mean;
}
/// Losses take two inputs: they are called by their own type.
using LossCall = std::function<Tensor(ModuleArgs&, const Tensor&, const Tensor&)>;
const std::map<std::string, LossCall> losses{
    {"CrossEntropyLoss",
     [](ModuleArgs& a, const Tensor& x, const Tensor& y) {
       return nn::CrossEntropyLoss({a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100),
                                    a.number("label_smoothing", 0.0)})(x, y);
     }},
    {"NLLLoss",
     [](ModuleArgs& a, const Tensor& x, const Tensor& y) {
       return nn::NLLLoss({a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100)})(x, y);
     }},
    {"MSELoss",
     [](ModuleArgs& a, const Tensor& x, const Tensor& y) {
       return nn::MSELoss({{}, reduction_of(a)})(x, y);
     }},
    {"L1Loss",
     [](ModuleArgs& a, const Tensor& x, const Tensor& y) {
       return nn::L1Loss({{}, reduction_of(a)})(x, y);
     }},
    {"BCEWithLogitsLoss",
     [](ModuleArgs& a, const Tensor& x, const Tensor& y) {
       return nn::BCEWithLogitsLoss({a.optional_tensor("weight"), reduction_of(a), a.optional_tensor("pos_weight")})(x,
                                                                                                                     y);
     }},
};

bool is_bound(const Json& json) {
  if (losses.contains(json["module"])) return true;
  if (!makers().contains(json["module"])) return false;
  for (const Json& child : json.value("children", Json::array()))
    if (!is_bound(child)) return false;
  return true;
}
}  // namespace

std::optional<std::string> run_module(const Family& family, const Json& json) {
  if (!is_bound(json)) return std::nullopt;
  std::vector<Tensor> inputs;
  for (const Json& v : json["inputs"]) inputs.push_back(family.decode(v).tensor);
  const Json grads = json.value("grad", Json::object());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (grads.contains("inputs") && grads["inputs"].contains("inputs." + std::to_string(i))) inputs[i].requires_grad_();
  Tensor out;
  nn::AnyModule module;
  if (auto it = losses.find(json["module"]); it != losses.end()) {
    ModuleArgs args(family, json);
    out = it->second(args, inputs.at(0), inputs.at(1));
    args.check_all_used();
  } else {
    module = make_module(family, json);
    const DType dtype = dtype_from_name(json["dtype"].get<std::string>());
    module->to(dtype);
    module->to(run_device);
    StateDict state;
    for (auto& [name, v] : json["state"].items()) state.append(name, family.expected(v));
    module->load_state_dict(state);
    module->train(json["train"].get<bool>());
    if (auto* pool = dynamic_cast<nn::MaxPool2d*>(&*module); pool && json["kwargs"].value("return_indices", false)) {
      auto [values, places] = pool->forward_with_indices(inputs.at(0));
      if (std::string text = compare(places, family.expected(json["outputs"][1]), json["outputs"][1]); !text.empty())
        return "outputs.1: " + text;
      out = values;
    } else out = module(inputs.at(0));
  }
  if (std::string text = compare(out, family.expected(json["outputs"][0]), json["outputs"][0]); !text.empty())
    return "outputs.0: " + text;
  if (grads.contains("outputs") && out.requires_grad()) out.backward(family.decode(grads["outputs"][0]).tensor);
  const Json input_grads = grads.value("inputs", Json::object()), state_grads = grads.value("state", Json::object()),
             state_after = json.value("state_after", Json::object());
  for (auto& [path, want] : input_grads.items()) {
    const Tensor& x = inputs.at(std::stoul(path.substr(path.find('.') + 1)));
    if (std::string text = compare(x.grad().defined() ? x.grad() : zeros_like(x.detach()), family.expected(want), want);
        !text.empty())
      return "grad " + path + ": " + text;
  }
  if (!module) return "";
  for (auto& [name, p] : module->named_parameters()) {
    const Json want = state_grads.value(name, Json());
    if (want.is_null()) continue;
    if (std::string text = compare(p.grad().defined() ? p.grad() : zeros_like(p.detach()), family.expected(want), want);
        !text.empty())
      return "grad " + name + ": " + text;
  }
  const StateDict after = module->state_dict();
  for (auto& [name, want] : state_after.items())
    if (std::string text = compare(after.at(name), family.expected(want), want); !text.empty())
      return "state_after " + name + ": " + text;
  return "";
}

}  // namespace conformance
