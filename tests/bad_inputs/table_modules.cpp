// Modules: options, hooks, what holds what, what was moved from, initialisation.
#include <tapir/models/bert.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/models/unet.h>
#include <tapir/models/vit.h>

#include <memory>

#include "table.h"

using namespace bad_inputs;

namespace {
struct Net : nn::Module {
  nn::Linear fc{3, 3};
  Tensor forward(const Tensor& x) { return fc(x); }
  TAPIR_FIELDS(fc)
};
/// A module that holds itself.
struct Ring : nn::Module {
  std::shared_ptr<Ring> next;
  Tensor forward(const Tensor& x) { return x; }
  TAPIR_FIELDS(next)
};
struct OpenRing {
  std::shared_ptr<Ring> ring = std::make_shared<Ring>();
  OpenRing() { ring->next = ring; }
  ~OpenRing() { ring->next.reset(); }
};
nn::Sequential deep(int levels, nn::Sequential inner = nn::Sequential(nn::Linear(2, 2))) {
  for (int i = 0; i < levels; ++i) {
    nn::Sequential outer;
    outer.push_back(std::move(inner));
    inner = std::move(outer);
  }
  return inner;
}
using Tensors = std::vector<Tensor>;
Tensor row() { return ones({3}).requires_grad_(); }
}  // namespace

V(701, ("LSTM", "num_layers from 1 to 65536", "4611686018427387904"), nn::LSTM(3, 4, {.num_layers = int64_t(1) << 62}))
V(702, ("LSTM", "hidden_size", "9223372036854775807"), nn::LSTM(3, kMost))
V(703, ("LSTMCell", "hidden_size", "9223372036854775807"), nn::LSTMCell(2, kMost))
V(704, ("TransformerEncoder", "num_layers", "1099511627776"),
  nn::TransformerEncoder(nn::TransformerEncoderLayer(8, 2, {.dim_feedforward = 8}), int64_t(1) << 40))
V(705, ("TransformerDecoder", "num_layers", "9223372036854775807"),
  nn::TransformerDecoder(nn::TransformerDecoderLayer(8, 2, {.dim_feedforward = 8}), kMost))
V(706, ("Transformer", "num_encoder_layers", "1152921504606846976"),
  nn::Transformer(8, 2, {.num_encoder_layers = int64_t(1) << 60, .dim_feedforward = 8}))
V(707, ("GPT2Model", "n_layer", "1099511627776"),
  models::GPT2LMHeadModel({.vocab_size = 5, .n_positions = 4, .n_embd = 8, .n_layer = int64_t(1) << 40, .n_head = 2}))
V(708, ("LlamaModel", "num_hidden_layers", "1125899906842624"),
  models::LlamaForCausalLM({.vocab_size = 5,
                            .hidden_size = 8,
                            .intermediate_size = 8,
                            .num_hidden_layers = int64_t(1) << 50,
                            .num_attention_heads = 2,
                            .num_key_value_heads = 2}))
V(709, ("BertEncoder", "num_hidden_layers", "9223372036854775807"),
  models::BertModel({.vocab_size = 5,
                     .hidden_size = 8,
                     .num_hidden_layers = kMost,
                     .num_attention_heads = 2,
                     .intermediate_size = 8}))
V(710, ("VisionTransformer", "layers", "9223372036854775807"),
  models::VisionTransformer({.image_size = 8, .patch_size = 4, .layers = kMost, .heads = 1, .hidden = 4, .mlp = 4}))
V(711, ("UNet", "depth from 1 to 24", "64"), models::UNet({.width = 2, .depth = 64}))
V(712, ("UNet", "width", "9223372036854775807"), models::UNet({.width = kMost, .depth = 2}))
V(713, ("AdaptiveLogSoftmaxWithLoss", "cutoffs", "below n_classes (10)", "got 5, 3"),
  nn::AdaptiveLogSoftmaxWithLoss(4, 10, {5, 3}))
V(714, ("AdaptiveLogSoftmaxWithLoss", "cutoffs", "got none"), nn::AdaptiveLogSoftmaxWithLoss(4, 10, {}))
V(715, ("MultiheadAttention", "kdim", "-1"), nn::MultiheadAttention(8, 2, {.kdim = -1}))
V(716, ("RNN", "tanh or relu", "bytes) ..."), nn::RNN(3, 4, {.nonlinearity = std::string(1000000, 'x')}))
V(717, ("GELU", "none or tanh", "\\x1b[31mred\\x00"), nn::GELU(std::string("\x1b[31mred\0", 9))(ones({2})))
V(718, ("spectral_norm", "at most 10000", "1099511627776"), nn::Linear l(2, 2);
  nn::spectral_norm(l, {.n_power_iterations = int64_t(1) << 40}))
V(719, ("spectral_norm", "eps", "nan"), nn::Linear l(2, 2); nn::spectral_norm(l, {.eps = kNan}))
V(720, ("xavier_uniform_", "gain", "nan"), nn::init::xavier_uniform_(ones({2, 2}), kNan))
V(721, ("xavier_normal_", "gain", "-1"), nn::init::xavier_normal_(ones({2, 2}), -1))
V(722, ("init", "slope", "nan"), nn::init::kaiming_uniform_(ones({2, 2}), {.a = kNan}))
FINE(723, expect(nn::init::xavier_uniform_(ones({0, 0})).numel() == 0))
V(724, ("backward hook", "float32 (3,)", "float32 (2,)"), Net net;
  net.register_full_backward_hook([](nn::Module&, Tensors& inputs, Tensors&) { inputs[0] = ones({2}); });
  sum(net(row())).backward())
V(725, ("backward pre-hook", "float32 (3,)", "float32 (9,)"), Net net;
  net.register_full_backward_pre_hook([](nn::Module&, Tensors& outputs) { outputs[0] = ones({9}); });
  sum(net(row())).backward())
V(726, ("backward hook", "float32 (3,)", "float64 (3,)"), Net net;
  net.register_full_backward_hook([](nn::Module&, Tensors& inputs, Tensors&) { inputs[0] = inputs[0].to(kFloat64); });
  sum(net(row())).backward())
V(727, ("forward pre-hook", "1 inputs", "got 0"), Net net;
  net.register_forward_pre_hook([](nn::Module&, Tensors& inputs) { inputs.clear(); }); net(row()))
V(728, ("forward hook", "1 outputs", "got 5"), Net net;
  net.register_forward_hook([](nn::Module&, Tensors&, Tensors& outputs) { outputs.resize(5); }); net(row()))
FINE(
    729, Net net; const int64_t id = net.register_forward_hook([](nn::Module&, Tensors&, Tensors&) { throw 5; });
    int caught = 0; try { net(row()); } catch (int i) { caught = i; } expect(caught == 5, "the hook's own exception");
    net.remove_hook(id); expect(net(row()).defined()))
FINE(730, auto net = std::make_unique<Net>();
     net->register_forward_hook([&](nn::Module&, Tensors&, Tensors&) { net.reset(); }); expect((*net)(row()).defined()))
FINE(731, Net net; std::vector<int64_t> ids; int calls = 0;
     for (int i = 0; i < 5; ++i) ids.push_back(net.register_forward_hook([&](nn::Module&, Tensors&, Tensors&) {
       ++calls;
       for (const int64_t id : ids) net.remove_hook(id);
     }));
     net(row()), net(row()); expect(calls == 5, "those that stood there at the beginning"))
V(732, ("LSTM", "4 weights", "got 0"), nn::LSTM lstm(2, 2); nn::LSTM taken = std::move(lstm); lstm(ones({2, 1, 2})))
V(733, ("undefined", "fc: Linear"), Net net; Net taken = std::move(net); net(row()))
V(734, ("undefined", "Embedding"), nn::Embedding e(2, 2); nn::Embedding taken = std::move(e); e(tensor({0})))
V(735, ("Unexpected key(s)", "fc.weight"), Net net; Net taken = std::move(net); net.load_state_dict(taken.state_dict()))
V(736, ("AnyModule", "empty"), nn::AnyModule()->eval())
V(737, ("AnyModule", "empty"), nn::Sequential s; s.items.emplace_back(); s[0].eval())
V(738, ("Module", "3000 modules inside one another", "hold itself"), OpenRing open; open.ring->parameters())
V(739, ("Module", "3000 modules inside one another", "hold itself"), OpenRing open; open.ring->eval())
V(740, ("Module", "3000 modules inside one another", "hold itself"), OpenRing open; open.ring->named_modules())
V(741, ("clone", "cycle of shared pointers"), OpenRing open; open.ring->clone())
FINE(742, OpenRing open; expect(has(open.ring->str(), "Ring(...)"), "a text that ends"))
FINE(743, nn::Sequential net = deep(2000); expect(net(ones({2})).numel() == 2 && net.named_modules().size() == 2002);
     net.eval(); expect(net.clone().parameters().size() == 2 && net.str().size() < 100000))
V(744, ("linear", "(3,)", "(2, 2)", "Linear"), deep(500)(ones({3})))
V(745, ("Linear", "in_features", "-9223372036854775808"), nn::Linear(kLeast, 3))
V(746, ("Conv2d", "divisible by groups", "-9223372036854775808"), nn::Conv2d(2, 2, 3, {.groups = kLeast}))
V(747, ("conv2d", "overflows"), nn::Conv2d(2, 2, 3, {.padding = kMost})(ones({1, 2, 8, 8})))
V(748, ("conv_transpose2d", "overflows"), nn::ConvTranspose2d(2, 2, 3, {.stride = kMost})(ones({1, 2, 8, 8})))
V(749, ("pixel_shuffle", "overflows"), nn::PixelShuffle(int64_t(1) << 32)(ones({1, 0, 2, 2})))
V(750, ("max_unpool2d", "99", "16"), nn::MaxUnpool2d(2)(ones({1, 1, 2, 2}), tensor({0, 1, 2, 99}).view({1, 1, 2, 2})))
V(751, ("embedding_bag", "9 after 0"), nn::EmbeddingBag(3, 2)(tensor({0, 1, 2}), tensor({0, 9})))
V(752, ("pad_packed_sequence", "9223372036854775807 sequences"),
  nn::PackedSequence p = nn::pack_padded_sequence(ones({5, 2, 3}), {5, 3});
  p.batch_sizes = tensor({kMost, int64_t(1)}); nn::pad_packed_sequence(p))
V(753, ("pad_packed_sequence", "total_length", "9223372036854775807"),
  nn::pad_packed_sequence(nn::pack_padded_sequence(ones({5, 2, 3}), {5, 3}), {.total_length = kMost}))
V(754, ("MultiheadAttention", "num_heads", "4 and 0"), nn::MultiheadAttention m(4, 2); m.num_heads = 0;
  m(ones({2, 1, 4}), ones({2, 1, 4}), ones({2, 1, 4})))
V(755, ("LSTM", "weights", "got 4"), nn::LSTM lstm(2, 2); lstm.num_layers = 50; lstm(ones({2, 1, 2})))
V(756, ("GRU", "weights", "got 4"), nn::GRU gru(2, 2); gru.bidirectional = true; gru(ones({2, 1, 2})))
V(757, ("ParametrizationList", "a step"), nn::ParametrizationList().compute())
V(758, ("Conv2d", "groups"), nn::Conv2d conv(2, 2, 3); conv.options.groups = 0; conv(ones({1, 2, 4, 4})))
V(759, ("linear", "(7,)"), nn::Linear l(2, 2); l.bias = Parameter(ones({7})); l(ones({2})))
V(1123, ("forward hook", "output 0", "undefined", "in module Net"), Net net;
  net.register_forward_hook([](nn::Module&, Tensors&, Tensors& outputs) { outputs[0] = Tensor(); }); net(row()))
FINE(
    1124, nn::BatchNorm1d b(2, {.momentum = std::nullopt}); try {
      b(ones({1, 2}));
    } catch (const ValueError&) {} expect(b.num_batches_tracked.item() == 0, "the module as before"))
FINE(
    1125, manual_seed(1); try { nn::MultiheadAttention(4, 3); } catch (const ValueError&) {} try {
      nn::Transformer(8, 3);
    } catch (const ValueError&) {} expect(default_generator().offset() == 0, "random numbers as before"))
V(1126, ("Observer", "width", "e+38"), quant::Observer o({.range = quant::Range::MinMax}); o(tensor({-3e38f, 3e38f}));
  o.calculate_qparams())
