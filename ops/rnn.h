#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

enum class RnnOp : uint8_t;  // core/params.h: Tanh, Relu, Lstm, Gru

/// G gates of H units, 4 (i, f, g, o), 3 (r, z, n) or 1; P is H, or the rows of weight_hr.
struct RnnWeights {
  Tensor weight_ih, weight_hh;        // (G H, in), (G H, P)
  Tensor bias_ih = {}, bias_hh = {};  // (G H), both or none
  Tensor weight_hr = {};              // (P, H): only of Lstm
};
struct RnnLayerOptions {
  bool reverse = false;  // from the last step to the first
  Tensor batch_sizes =
      {};  // rows of each step, for packed rows: int64 on the host, above 0, none larger than the one before
};
struct RnnResult {
  Tensor output, h, c;
};

/// One recurrent layer in one direction. x: (T, B, in) -> output (T, B, P), or with batch_sizes packed rows (N, in) -> (N, P);
/// h: (B, P), c: (B, H) of Lstm: the states before and after. Hochreiter and Schmidhuber 1997; Cho et al. 2014, arXiv 1406.1078.
RnnResult rnn_layer(RnnOp op, const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& weights,
                    const RnnLayerOptions& options = {});

/// One step: x (B, in), h (B, H) -> the new h.
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const RnnWeights& weights);
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const RnnWeights& weights);
Tensor gru_cell(const Tensor& x, const Tensor& h, const RnnWeights& weights);
/// The new (h, c).
std::pair<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const RnnWeights& weights);

}  // namespace tapir::inline v0
