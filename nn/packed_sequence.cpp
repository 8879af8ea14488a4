#include "packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "../core/fail_as.h"
#include "../ops/create.h"
#include "../ops/indexing.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"

namespace tapir::inline v0::nn {
namespace {

using Numbers = std::vector<int64_t>;

Tensor indices(const Numbers& values, Device device) { return tensor(values).to(device); }
Shape without_first_two(const Tensor& x, const Shape& front) {
  Shape shape = front;
  for (int64_t d = 2; d < x.dim(); ++d) shape.push_back(x.size(d));
  return shape;
}
/// Rows of each step, of lengths in descending order.
Numbers steps_of(const Numbers& lengths) {
  Numbers rows(size_t(lengths.empty() ? 0 : lengths[0]));
  for (int64_t n : lengths)
    for (int64_t t = 0; t < n; ++t) ++rows[size_t(t)];
  return rows;
}
/// Where step t of sequence b stands among T x B (or B x T) rows.
int64_t place(int64_t t, int64_t b, int64_t steps, int64_t batch, bool batch_first) {
  return batch_first ? b * steps + t : t * batch + b;
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& x, const Numbers& lengths, const PackOptions& o) {
  constexpr const char* name = "pack_padded_sequence";
  check(x.dim() >= 2, "[{}] expected padded sequences (T, B, ...), got {}", name, x);
  const int64_t steps = x.size(o.batch_first), batch = x.size(!o.batch_first);
  check(batch > 0, "[{}] cannot pack an empty tensor, got {}", name, x);
  check(int64_t(lengths.size()) == batch, "[{}] expected len(lengths) to be equal to the batch size {}, got {}", name,
        batch, int64_t(lengths.size()));
  Numbers order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t n = lengths[size_t(b)];
    check(n > 0 && n <= steps, "[{}] expected lengths in [1, {}], got {} at position {}", name, steps, n, b);
    check(!o.enforce_sorted || b == 0 || n <= lengths[size_t(b - 1)],
          "[{}] expected lengths sorted in decreasing order where enforce_sorted is true, got {} after {} at position "
          "{}",
          name, n, b ? lengths[size_t(b - 1)] : n, b);
  }
  const auto length = [&](int64_t b) { return lengths[size_t(b)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  Numbers sorted, places, back(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted.push_back(length(order[i])), back[size_t(order[i])] = int64_t(i);
  const Numbers rows = steps_of(sorted);
  for (int64_t t = 0; t < int64_t(rows.size()); ++t)
    for (int64_t i = 0; i < rows[size_t(t)]; ++i)
      places.push_back(place(t, order[size_t(i)], steps, batch, o.batch_first));
  const Tensor flat = reshape(x, without_first_two(x, {steps * batch}));
  PackedSequence packed{index_select(flat, 0, indices(places, x.device())), tensor(rows)};
  if (!o.enforce_sorted)
    packed.sorted_indices = indices(order, x.device()), packed.unsorted_indices = indices(back, x.device());
  return packed;
}

PackedSequence pack_padded_sequence(const Tensor& x, const Tensor& lengths, const PackOptions& o) {
  check(lengths.defined() && lengths.dim() == 1 && lengths.device().is_cpu() && is_integral(lengths.dtype()),
        "[pack_padded_sequence] expected lengths (B) of an integer dtype on the CPU, got {}", lengths);
  return pack_padded_sequence(x, lengths.to_vector<int64_t>(), o);
}

PaddedSequence pad_packed_sequence(const PackedSequence& packed, const PadOptions& o) {
  constexpr const char* name = "pad_packed_sequence";
  check(packed.batch_sizes.defined() && packed.batch_sizes.numel() > 0 && packed.data.dim() > 0,
        "[{}] expected a packed sequence", name);
  const Numbers rows = packed.batch_sizes.to_vector<int64_t>();
  const int64_t longest = int64_t(rows.size()), batch = rows[0], steps = o.total_length.value_or(longest);
  check(steps >= longest, "[{}] expected total_length to be at least the length of the longest sequence, {}, got {}",
        name, longest, steps);
  check(batch <= packed.data.size(0), "[{}] expected data with a row for each of {} sequences, got {}", name, batch,
        packed.data);
  check(steps < int64_t(1) << 40, "[{}] expected total_length below 2^40, got {}", name, steps);
  for (int64_t t = 0, before = batch; t < longest; before = rows[size_t(t++)])
    check(rows[size_t(t)] > 0 && rows[size_t(t)] <= before,
          "[{}] expected batch_sizes above 0 that do not grow, got {} at step {}", name, rows[size_t(t)], t);
  Numbers order(static_cast<size_t>(batch));
  std::iota(order.begin(), order.end(), 0);
  if (packed.sorted_indices.defined()) {
    Numbers given = packed.sorted_indices.to_vector<int64_t>(), sorted = given;
    std::sort(sorted.begin(), sorted.end());
    check(sorted == order, "[{}] expected sorted_indices with each of the {} sequences once, got {}", name, batch,
          packed.sorted_indices);
    order = std::move(given);
  }
  PaddedSequence out{{}, Numbers(size_t(batch), 0)};
  Numbers places;
  for (int64_t t = 0; t < longest; ++t)
    for (int64_t i = 0; i < rows[size_t(t)]; ++i) {
      ++out.lengths[size_t(order[size_t(i)])];
      places.push_back(place(t, order[size_t(i)], steps, batch, o.batch_first));
    }
  check(int64_t(places.size()) == packed.data.size(0), "[{}] expected data with {} rows by batch_sizes, got {}", name,
        int64_t(places.size()), packed.data);
  Shape flat = packed.data.shape(), shape = o.batch_first ? Shape{batch, steps} : Shape{steps, batch};
  flat[0] = steps * batch;
  for (int64_t d = 1; d < flat.size(); ++d) shape.push_back(flat[d]);
  const Tensor blank = full(flat, o.padding_value, {.dtype = packed.data.dtype(), .device = packed.data.device()});
  out.padded = view(index_copy(blank, 0, indices(places, packed.data.device()), packed.data), shape);
  return out;
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadOptions& o) try {
  constexpr const char* name = "pad_sequence";
  check(!sequences.empty(), "[{}] expected at least one sequence, got none", name);
  int64_t steps = o.total_length.value_or(0);
  for (const Tensor& s : sequences) {
    check(s.dim() > 0, "[{}] expected sequences (T, ...), got {}", name, s);
    steps = std::max(steps, s.size(0));
  }
  std::vector<Tensor> padded;
  for (const Tensor& s : sequences) {
    Shape rest = s.shape();
    rest[0] = steps - s.size(0);
    padded.push_back(cat({s, full(rest, o.padding_value, {.dtype = s.dtype(), .device = s.device()})}));
  }
  return stack(padded, o.batch_first ? 0 : 1);
} catch (...) {
  fail_as("pad_sequence");
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted) try {
  Numbers lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.defined() && s.dim() > 0 ? s.size(0) : 0);
  return pack_padded_sequence(pad_sequence(sequences), lengths, {.enforce_sorted = enforce_sorted});
} catch (...) {
  fail_as("pack_sequence");
}

}  // namespace tapir::inline v0::nn
