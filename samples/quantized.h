#pragma once
// What quantization costs and gains: a trained network in float32 and in fewer bits. Printed with --quantize.
#include <chrono>

#include "run.h"

namespace samples {

/// One row for each form of `net`: score(net), the time that took, and the bytes of its tensors. `example`: a batch of inputs; with
/// `convolutions` it also is what ranges of activations are measured on.
template <class Net, class Score>
void print_quantized(Net& net, const Tensor& example, bool convolutions, const char* what, Score&& score) {
  NoGrad guard;
  net.eval();
  double first = 0;
  train::Table table({"network", what, "seconds", "speed", "bytes"});
  const auto row = [&](const char* name, Net& q) {
    q(example);
    const auto start = std::chrono::steady_clock::now();
    const double value = score(q);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (first == 0) first = seconds;
    double bytes = 0;
    for (auto& [key, t] : q.state_dict()) bytes += double(t.numel() * size_of(t.dtype()));
    table.row({name, train::fixed(value, value < 10 ? 4 : 2), train::fixed(seconds, 2),
               train::fixed(first / seconds, 2), train::bytes_text(bytes)});
  };
  row("float32", net);
  if (convolutions) {
    Net q = quant::quantize(net, example, [&](Net& prepared) { prepared(example); });
    row("static int8", q);
  }
  Net dynamic = quant::quantize_dynamic(net);
  row("dynamic int8", dynamic);
  Net weights = quant::quantize_weights(net);
  row("int8 weights", weights);
  try {
    Net half = quant::quantize_weights(net, {.bits = 4, .group = 32});
    row("int4 weights", half);
  } catch (const ValueError& e) {  // an input size that groups do not divide
    std::printf("%s\n", e.what());
  }
}

}  // namespace samples
