#pragma once
// One unit of a recurrent layer at one step, and its gradient: what both devices compute once the sums of the gates are there. The gates are
// PyTorch's: LSTM i f g o (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), GRU r z n with the reset gate behind
// the product (the form of cuDNN).
#include "formula.h"

namespace tapir::inline v0::formulas {

template <class T> struct LstmUnit { T in, forget, cell, out, c, h; };
/// From the sums of its gates and the cell's state before.
template <class T> TAPIR_FORMULA LstmUnit<T> lstm_unit(T in_sum, T forget_sum, T cell_sum, T out_sum, T before) {
  const T in = math::sigmoid(in_sum), forget = math::sigmoid(forget_sum), cell = math::tanh(cell_sum);
  const T out = math::sigmoid(out_sum), c = forget * before + in * cell;
  return {in, forget, cell, out, c, out * math::tanh(c)};
}
/// Of the gates' sums; c: what reaches the cell's state before.
template <class T> struct LstmGradient { T in, forget, cell, out, c; };
/// g = dh, dc: what later steps sent; `before` is the cell's state that the unit began with.
template <class T>
TAPIR_FORMULA LstmGradient<T> lstm_gradient(T g, T dc, T in, T forget, T cell, T out, T c, T before) {
  const T th = math::tanh(c), d = dc + g * out * (T(1) - th * th);
  return {d * cell * in * (T(1) - in), d * before * forget * (T(1) - forget), d * in * (T(1) - cell * cell),
          g * th * out * (T(1) - out), d * forget};
}

template <class T> struct GruUnit { T reset, update, fresh, h; };
/// new_sum: what the input adds to n; state_sum: what the state adds, which r gates.
template <class T> TAPIR_FORMULA GruUnit<T> gru_unit(T reset_sum, T update_sum, T new_sum, T state_sum, T before) {
  const T reset = math::sigmoid(reset_sum), update = math::sigmoid(update_sum);
  const T fresh = math::tanh(new_sum + reset * state_sum);
  return {reset, update, fresh, (T(1) - update) * fresh + update * before};
}
/// fresh: of the input's part of n's sum; state: of the state's part; h: what reaches the state before beside W_hh.
template <class T> struct GruGradient { T reset, update, fresh, state, h; };
template <class T> TAPIR_FORMULA GruGradient<T> gru_gradient(T g, T reset, T update, T fresh, T state_sum, T before) {
  const T dn = g * (T(1) - update) * (T(1) - fresh * fresh), dr = dn * state_sum * reset * (T(1) - reset);
  return {dr, g * (before - fresh) * update * (T(1) - update), dn, dn * reset, g * update};
}

/// RnnOp::Relu keeps NaN.
template <class T> TAPIR_FORMULA T rnn_unit(bool relu, T sum) {
  return relu ? (sum < T(0) ? T(0) : sum) : math::tanh(sum);
}
/// Of its output y.
template <class T> TAPIR_FORMULA T rnn_gradient(bool relu, T g, T y) {
  return relu ? (y > T(0) ? g : T(0)) : g * (T(1) - y * y);
}

}  // namespace tapir::inline v0::formulas
