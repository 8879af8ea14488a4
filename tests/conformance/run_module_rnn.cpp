// Recurrent networks.
#include "modules.h"

namespace conformance {

namespace {
template <class O> O sequence_options(ModuleArgs& a) {
  O o;
  o.num_layers = a.integer("num_layers", 1), o.bias = a.boolean("bias", true);
  o.batch_first = a.boolean("batch_first", false), o.dropout = a.number("dropout", 0.0);
  o.bidirectional = a.boolean("bidirectional", false);
  if constexpr (requires { o.nonlinearity; }) o.nonlinearity = a.text("nonlinearity", "tanh");
  if constexpr (requires { o.proj_size; }) o.proj_size = a.integer("proj_size", 0);
  return o;
}
/// The state at input i: one tensor, or (h, c).
template <class State> State state_of(Args& in, size_t i) {
  const Value* v = in.at(i);
  if (!v) return {};
  if constexpr (std::is_same_v<State, Tensor>) return v->tensor;
  else return {v->list.at(0).tensor, v->list.at(1).tensor};
}
template <class M, class State, class Options> Bound sequence(ModuleArgs& a) {
  M m(a.integer("input_size"), a.integer("hidden_size"), sequence_options<Options>(a));
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            M& m = static_cast<M&>(held);
            const auto flat = [](const Tensor& output, const auto& state) -> std::vector<Tensor> {
              if constexpr (std::is_same_v<State, Tensor>) return {output, state};
              else return {output, state.h, state.c};
            };
            const Value& x = *in.at(0);
            const State state = state_of<State>(in, 1);
            if (x.kind != Value::Kind::List) {
              auto [output, after] = m(x.tensor, state);
              return flat(output, after);
            }
            std::vector<int64_t> lengths;
            for (const Value& n : x.list.at(1).list) lengths.push_back(n.integer);
            const nn::PackOptions pack{x.list.at(2).boolean, x.list.at(3).boolean};
            auto [output, after] = m(nn::pack_padded_sequence(x.list.at(0).tensor, lengths, pack), state);
            return flat(nn::pad_packed_sequence(output).padded, after);
          }};
}
template <class M, class Options> Bound cell(ModuleArgs& a) {
  Options o{a.boolean("bias", true)};
  if constexpr (requires { o.nonlinearity; }) o.nonlinearity = a.text("nonlinearity", "tanh");
  return {M(a.integer("input_size"), a.integer("hidden_size"), o),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            M& m = static_cast<M&>(held);
            if constexpr (std::is_same_v<M, nn::LSTMCell>) {
              auto [h, c] = m(input(in, 0), state_of<nn::LSTMState>(in, 1));
              return {h, c};
            } else {
              return {m(input(in, 0), input(in, 1))};
            }
          }};
}
}  // namespace

void bind_module_rnn() {
  auto& table = module_makers();
  table["RNN"] = sequence<nn::RNN, Tensor, nn::RNNOptions>;
  table["GRU"] = sequence<nn::GRU, Tensor, nn::GRUOptions>;
  table["LSTM"] = sequence<nn::LSTM, nn::LSTMState, nn::LSTMOptions>;
  table["RNNCell"] = cell<nn::RNNCell, nn::RNNCellOptions>;
  table["GRUCell"] = cell<nn::GRUCell, nn::CellOptions>;
  table["LSTMCell"] = cell<nn::LSTMCell, nn::CellOptions>;
}

}  // namespace conformance
