#pragma once
#include <optional>
#include <string>
#include <vector>

#include "module.h"
#include "packed_sequence.h"

namespace tapir::inline v0 {
enum class RnnOp : uint8_t;
struct RnnResult;
}  // namespace tapir::inline v0
namespace tapir::inline v0::nn {

struct RNNOptions {
  int64_t num_layers = 1;
  std::string nonlinearity = "tanh";  // or relu
  bool bias = true;
  bool batch_first = false;    // (B, T, ...) instead of (T, B, ...); states stay (layers, B, ...)
  double dropout = 0;          // in training, of the outputs of every layer but the last
  bool bidirectional = false;  // outputs of both directions side by side
};
struct GRUOptions {
  int64_t num_layers = 1;
  bool bias = true, batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
};
struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true, batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;  // above 0: h has that size, made of the hidden state by weight_hr
};
struct LSTMState {
  Tensor h, c;
};

/// What RNN, GRU and LSTM share. Weights are weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0, then those with _reverse,
/// then layer 1; all start uniform in +-1/sqrt(hidden_size).
struct RNNBase : Module {
  RnnOp op;
  int64_t input_size, hidden_size, num_layers, proj_size;
  bool bias, batch_first, bidirectional;
  double dropout;
  std::vector<Parameter> weights;
  void tapir_rename(std::vector<Field>& fields) override;
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(op, input_size, hidden_size, num_layers, proj_size, bias, batch_first, bidirectional, dropout,
                       weights)

 protected:
  RNNBase(RnnOp op, int64_t input_size, int64_t hidden_size, const LSTMOptions& options);
  struct Result {
    Tensor output;
    LSTMState state;
  };
  /// batch_sizes: of packed rows.
  Result run(const Tensor& input, const LSTMState& state, const Tensor& batch_sizes);
  Result run(const Tensor& input, const LSTMState& state);
  PackedSequence run(const PackedSequence& input, LSTMState& state);
  /// Layer and direction number `at` over x (T, B, in) or packed rows, from the state (h, c).
  virtual RnnResult run_layer(int64_t at, const Tensor& x, const LSTMState& state, const Tensor& batch_sizes);
  std::string weight_name(size_t i) const;
  int64_t per_layer() const { return (bias ? 4 : 2) + (proj_size > 0); }

 private:
  DType weight_type() const;
  Shape state_shape(int64_t batch, bool cell) const;
  void check_input(const Tensor& input, bool packed) const;
  void check_state(const LSTMState& state, int64_t batch) const;
};

/// h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), in layers and directions. Input (T, B, input_size), or (T, input_size), or packed;
/// state (layers * directions, B, hidden_size), zeros where absent -> {output (T, B, directions * hidden_size), h_n}.
struct RNN : RNNBase {
  struct Output {
    Tensor output, h_n;
  };
  struct Packed {
    PackedSequence output;
    Tensor h_n;
  };
  std::string nonlinearity;
  RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {});
  Output forward(const Tensor& input, const Tensor& state = {});
  Packed forward(const PackedSequence& input, const Tensor& state = {});
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNBase, nonlinearity)
};

/// Gated recurrent units, shapes as RNN. Cho et al. 2014, arXiv 1406.1078.
struct GRU : RNNBase {
  using Output = RNN::Output;
  using Packed = RNN::Packed;
  GRU(int64_t input_size, int64_t hidden_size, const GRUOptions& options = {});
  Output forward(const Tensor& input, const Tensor& state = {});
  Packed forward(const PackedSequence& input, const Tensor& state = {});
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNBase)
};

/// Long short-term memory: `auto [output, state] = lstm(x, {h0, c0})`. Shapes as RNN; h has proj_size where that is above 0.
/// Hochreiter and Schmidhuber 1997; Sak et al. 2014, arXiv 1402.1128.
struct LSTM : RNNBase {
  struct Output {
    Tensor output;
    LSTMState state;
  };
  struct Packed {
    PackedSequence output;
    LSTMState state;
  };
  LSTM(int64_t input_size, int64_t hidden_size, const LSTMOptions& options = {});
  Output forward(const Tensor& input, const LSTMState& state = {});
  Packed forward(const PackedSequence& input, const LSTMState& state = {});
  Output operator()(const Tensor& input, const LSTMState& state);
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNBase)
};

struct RNNCellOptions {
  bool bias = true;
  std::string nonlinearity = "tanh";  // or relu
};
struct CellOptions {
  bool bias = true;
};

/// What the cells share.
struct RNNCellBase : Module {
  RnnOp op;
  int64_t input_size, hidden_size;
  Parameter weight_ih, weight_hh, bias_ih, bias_hh;
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(op, input_size, hidden_size, weight_ih, weight_hh, bias_ih, bias_hh)

 protected:
  RNNCellBase(RnnOp op, int64_t input_size, int64_t hidden_size, bool bias);
  LSTMState step(const Tensor& input, const LSTMState& state);
};
/// One step: input (B, input_size) or (input_size), h (B, hidden_size) or (hidden_size) or absent -> the new h.
struct RNNCell : RNNCellBase {
  RNNCell(int64_t input_size, int64_t hidden_size, const RNNCellOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& h = {});
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNCellBase)
};
struct GRUCell : RNNCellBase {
  GRUCell(int64_t input_size, int64_t hidden_size, const CellOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& h = {});
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNCellBase)
};
/// `auto [h, c] = cell(x, {h, c})`
struct LSTMCell : RNNCellBase {
  LSTMCell(int64_t input_size, int64_t hidden_size, const CellOptions& options = {});
  LSTMState forward(const Tensor& input, const LSTMState& state = {});
  LSTMState operator()(const Tensor& input, const LSTMState& state);
  TAPIR_DECLARE_FIELDS_WITH_BASE(RNNCellBase)
};

}  // namespace tapir::inline v0::nn
