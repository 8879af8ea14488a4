// Whole models: outputs, loss, gradients, buffers, and five steps of training with each optimizer.
#include <tapir/compile/compile.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/lstm_lm.h>
#include <tapir/models/resnet.h>
#include <tapir/models/seq2seq.h>
#include <tapir/models/vgg.h>

#include <cmath>

#include "run.h"

namespace conformance {

namespace {
/// A model and how it is called: with the tensors of the case's inputs.
struct Model {
  nn::AnyModule module;
  std::function<Tensor(nn::Module&, const std::vector<Tensor>&)> forward;
};
template <class M> Model model(M m) {
  return {std::move(m),
          [](nn::Module& held, const std::vector<Tensor>& in) { return static_cast<M&>(held)(in.at(0)); }};
}

struct Mlp : nn::Module {
  std::vector<nn::Linear> layers;
  explicit Mlp(const Json& config) {
    const std::vector<int64_t> dims = config["dims"];
    for (size_t i = 0; i + 1 < dims.size(); ++i) layers.emplace_back(dims[i], dims[i + 1]);
  }
  Tensor forward(const Tensor& x) {
    Tensor h = layers[0](x);
    for (size_t i = 1; i < layers.size(); ++i) h = layers[i](relu(h));
    return h;
  }
  TAPIR_FIELDS(layers)
};

struct LeNet : nn::Module {
  nn::Conv2d conv1{1, 4, 5, {.padding = 2}}, conv2{4, 8, 5};
  nn::Linear fc1{200, 24}, fc2{24, 16}, fc3;
  explicit LeNet(const Json& config) : fc3(16, config["classes"]) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = avg_pool2d(tanh(conv2(max_pool2d(relu(conv1(x)), 2))), 2);
    return fc3(relu(fc2(relu(fc1(flatten(h, 1))))));
  }
  TAPIR_FIELDS(conv1, conv2, fc1, fc2, fc3)
};

Model resnet(const Json& c) {
  const models::ResNetOptions o{.num_classes = c["classes"], .width = c["width"], .small_images = true};
  const std::array<int64_t, 4> layers = c["layers"];
  if (c["block"] == "bottleneck") return model(models::ResNet<models::Bottleneck>(layers, o));
  return model(models::ResNet<models::BasicBlock>(layers, o));
}
Model vgg(const Json& c) {
  std::vector<int64_t> channels;
  for (const Json& item : c["cfg"]) channels.push_back(item.is_string() ? models::kMaxPool : item.get<int64_t>());
  return model(models::VGG(channels, {.num_classes = c["classes"], .dropout = 0, .pooled = 2, .hidden = {16}}));
}

/// Tokens; 0 is padding.
struct TextClassifier : nn::Module {
  Parameter pos;
  nn::Embedding embed;
  nn::TransformerEncoder encoder;
  nn::Linear head;
  explicit TextClassifier(const Json& c)
      : pos(zeros({c["length"].get<int64_t>(), c["dim"].get<int64_t>()})),
        embed(c["vocab"], c["dim"], {.padding_idx = 0}),
        encoder(nn::TransformerEncoderLayer(c["dim"], c["heads"],
                                            {.dim_feedforward = c["ff"].get<int64_t>(),
                                             .dropout = 0,
                                             .activation = "gelu",
                                             .batch_first = true,
                                             .norm_first = c["norm_first"].get<bool>()}),
                c["layers"]),
        head(c["dim"], c["classes"]) {}
  Tensor forward(const Tensor& tokens) {
    const Tensor padding = eq(tokens, 0), x = embed(tokens) + narrow(pos, 0, 0, tokens.size(1));
    const Tensor h = encoder(x, nn::EncoderMasks{.src_key_padding_mask = padding});
    const Tensor kept = unsqueeze(logical_not(padding).to(h.dtype()), 2);
    return head(sum(h * kept, 1) / sum(kept, 1));
  }
  TAPIR_FIELDS(pos, embed, encoder, head)
};

Model seq2seq(const Json& c) {
  return {models::Seq2Seq(c["src_vocab"], c["tgt_vocab"], c["dim"]),
          [](nn::Module& held, const std::vector<Tensor>& in) {
            return static_cast<models::Seq2Seq&>(held)(in.at(0), in.at(1));
          }};
}
const std::map<std::string, std::function<Model(const Json&)>> makers = {
    {"mlp", [](const Json& c) { return model(Mlp(c)); }},
    {"lenet", [](const Json& c) { return model(LeNet(c)); }},
    {"resnet18", resnet},
    {"resnet50", resnet},
    {"vgg", vgg},
    {"text_classifier", [](const Json& c) { return model(TextClassifier(c)); }},
    {"seq2seq", seq2seq},
    {"lstm_lm",
     [](const Json& c) {
       return model(models::LSTMLanguageModel(
           c["vocab"], c["dim"], {.num_layers = c["layers"].get<int64_t>(), .tied = c["tied"].get<bool>()}));
     }},
    {"gpt2",
     [](const Json& c) {
       models::GPT2Config g{c["vocab_size"], c["n_positions"], c["n_embd"], c["n_layer"], c["n_head"]};
       g.dropout = 0;
       return model(models::GPT2LMHeadModel(g));
     }},
};

Tensor loss_of(const Tensor& logits, const Tensor& target) {
  return logits.dim() == 3 ? cross_entropy(flatten(logits, 0, 1), flatten(target)) : cross_entropy(logits, target);
}

class ModelCase {
 public:
  ModelCase(const Family& family, const Json& json) : family_(family), json_(json) {
    for (const Json& v : json["inputs"]) inputs_.push_back(family.decode(v).tensor);
    target_ = family.decode(json["target"]).tensor;
  }
  std::string run() {
    Model m = fresh();
    m.module->train();
    const Tensor y = m.forward(*m.module, inputs_), loss = loss_of(y, target_);
    if (std::string t = differs("outputs", y, json_["outputs"].is_array() ? json_["outputs"][0] : json_["outputs"]);
        !t.empty())
      return t;
    if (std::string t = differs("loss", loss, json_["loss"]); !t.empty()) return t;
    loss.backward();
    const Json& grads = json_["grad"]["state"];
    for (auto& [name, p] : m.module->named_parameters())
      if (std::string t = differs("grad " + name, p.grad(), grads.at(name)); !t.empty()) return t;
    const StateDict after = m.module->state_dict();
    const Json state_after = json_.value("state_after", Json::object());
    for (auto& [name, want] : state_after.items())
      if (std::string t = differs("state_after " + name, after.at(name), want); !t.empty()) return t;
    Model other = fresh();
    other.module->eval();
    NoGrad guard;
    const Json& eval = json_["eval_outputs"];
    if (std::string t =
            differs("eval_outputs", other.forward(*other.module, inputs_), eval.is_array() ? eval[0] : eval);
        !t.empty())
      return t;
    for (const Json& training : json_["training"])
      if (std::string t = train(training); !t.empty()) return training["optimizer"].get<std::string>() + ": " + t;
    return "";
  }

 private:
  Model fresh() const {
    Model m = makers.at(json_["model"])(json_["config"]);
    m.module->to(dtype_from_name(json_["dtype"].get<std::string>()));
    m.module->to(run_device);
    StateDict state;
    for (auto& [name, v] : json_["state"].items()) state.append(name, family_.expected(v));
    m.module->load_state_dict(state);
    return m;
  }
  std::string differs(const std::string& what, const Tensor& got, const Json& want) const {
    const std::string text = compare(got.detach(), family_.expected(want), want);
    return text.empty() ? "" : what + ": " + text;
  }
  std::unique_ptr<optim::Optimizer> optimizer_of(nn::Module& module, const Json& t) const {
    const Json& o = t["options"];
    if (t["optimizer"] == "SGD")
      return std::make_unique<optim::SGD>(
          module.parameters(),
          optim::SGDOptions{.lr = o["lr"], .momentum = o["momentum"], .weight_decay = o["weight_decay"]});
    if (t["optimizer"] == "AdamW")
      return std::make_unique<optim::AdamW>(
          module.parameters(), optim::AdamWOptions{.lr = o["lr"], .eps = o["eps"], .weight_decay = o["weight_decay"]});
    return nullptr;
  }
  /// Trains as eager code does and compiled, whose last steps are replays.
  std::string train(const Json& t) const {
    EnableGrad guard;
    std::vector<Tensor> after[2];
    for (bool compiled : {false, true}) {
      Model m = fresh();
      m.module->train();
      const auto optimizer = optimizer_of(*m.module, t);
      if (!optimizer) return "unknown optimizer";
      auto step = compile(
          [&] {
            optimizer->zero_grad();
            const Tensor loss = loss_of(m.forward(*m.module, inputs_), target_);
            loss.backward();
            optimizer->step();
            return loss;
          },
          {.enabled = compiled, .background = false});
      for (size_t i = 0; i < 10; ++i) {
        const double got = step().item();
        if (i + 1 == t["losses"].size())
          for (auto& [name, p] : m.module->named_parameters())
            if (std::string text = summary(p, t["params_after"].at(name)); !text.empty()) return name + ": " + text;
        if (i >= t["losses"].size()) continue;
        const double want = t["losses"][i];
        if (!(std::fabs(got - want) <= t["atol"].get<double>() + 1e-5 * std::fabs(want)))
          return tapir::format("{}loss {}: {}, expected {}", compiled ? "compiled " : "", int64_t(i), got, want);
      }
      if (compiled && run_device.is_cpu() && step.programs() != 1) return "it was not compiled: " + step.explain();
      for (const Tensor& p : m.module->parameters()) after[compiled].push_back(p.detach().clone());
    }
    for (size_t i = 0; i < after[0].size(); ++i)
      if (!isclose(after[0][i], after[1][i], {.rtol = 1e-3, .atol = 1e-4}).all().item<bool>())
        return tapir::format("parameter {} after ten compiled steps is not that of eager ones", int64_t(i));
    return "";
  }
  /// Mean, 2-norm and first values of a trained parameter.
  static std::string summary(const Tensor& p, const Json& want) {
    const std::vector<double> v = p.detach().to(kFloat64).to_vector<double>();
    const double atol = want["atol"], n = double(v.size());
    double total = 0, squares = 0;
    for (double x : v) total += x, squares += x * x;
    if (!(std::fabs(total / n - want["mean"].get<double>()) <= atol))
      return tapir::format("mean {}, expected {}", total / n, want["mean"].get<double>());
    if (!(std::fabs(std::sqrt(squares) - want["norm"].get<double>()) <= atol * std::sqrt(n)))
      return tapir::format("norm {}, expected {}", std::sqrt(squares), want["norm"].get<double>());
    for (size_t i = 0; i < want["first"].size(); ++i)
      if (!(std::fabs(v[i] - want["first"][i].get<double>()) <= atol))
        return tapir::format("value {}: {}, expected {}", int64_t(i), v[i], want["first"][i].get<double>());
    return "";
  }

  const Family& family_;
  const Json& json_;
  std::vector<Tensor> inputs_;
  Tensor target_;
};
}  // namespace

std::optional<std::string> run_models(const Family& family, const Json& json) {
  if (!makers.contains(json["model"])) return std::nullopt;
  return ModelCase(family, json).run();
}

}  // namespace conformance
