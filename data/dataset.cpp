#include "dataset.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../core/checks.h"
#include "../core/parallel.h"
#include "../ops/ops.h"
#include "../ops/pinned.h"
#include "sampler.h"

namespace tapir::inline v0::data {

Tensor batch_memory(const Shape& shape, DType dtype) {
  if (detail::pins_batches) {
    try {
      return empty_pinned(shape, dtype);
    } catch (const OutOfMemoryError& e) {  // slower, but right
      static std::atomic<bool> warned{false};
      if (!warned.exchange(true))
        std::fprintf(stderr, "tapir: [DataLoader] no page-locked memory, batches take the usual one (%s)\n", e.what());
    }
  }
  return empty(shape, {.dtype = dtype});
}

Tensor gather_rows(const Tensor& x, std::span<const int64_t> indices) {
  check(x.defined() && x.dim() > 0, "[gather_rows] expected a tensor with rows, got {}", x);
  const int64_t rows = x.size(0), count = int64_t(indices.size());
  for (const int64_t i : indices) check_index("gather_rows", i, rows);
  if (!x.device().is_cpu() || !x.is_contiguous() || x.requires_grad())
    return x.index_select(0, tensor(indices, count).to(x.device()));
  Shape shape = x.shape();
  shape[0] = count;
  Tensor out = batch_memory(shape, x.dtype());
  if (out.numel() == 0) return out;
  // Whole rows of bytes: a loader thread needs no kernel for this.
  const int64_t bytes = x.numel() / rows * size_of(x.dtype());
  const char* from = static_cast<const char*>(x.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  parallel_for(count, 1 + (1 << 20) / bytes, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      std::memcpy(to + i * bytes, from + indices[size_t(i)] * bytes, size_t(bytes));
  });
  return out;
}

int64_t common_rows(std::span<const Tensor> tensors) {
  int64_t rows = -1;
  for (const Tensor& t : tensors) {
    check(t.defined() && t.dim() > 0, "[TensorDataset] expected tensors with rows, got {}",
          t.defined() ? "a 0-dim tensor" : "an undefined one");
    check(rows < 0 || t.size(0) == rows, "[TensorDataset] expected tensors of as many rows as the first ({}), got {}",
          rows, t);
    rows = t.size(0);
  }
  return rows;
}

int64_t total_size(std::span<const int64_t> sizes) {
  int64_t total = 0;
  for (const int64_t n : sizes)
    check_runtime(n >= 0 && !__builtin_add_overflow(total, n, &total),
                  "[concat] expected datasets of sizes from 0 on, less than 2^63 together, got one of {}", n);
  return total;
}

void check_index(const char* op, int64_t index, int64_t size) {
  check(index >= 0 && index < size, "[{}] expected an index in [0, {}), got {}", op, size, index);
}

std::vector<std::vector<int64_t>> split_indices(int64_t n, const std::vector<Scalar>& lengths, uint64_t seed) {
  check_count("random_split", "a dataset size", n);
  double sum = 0;
  bool fractions = false;
  for (const Scalar length : lengths) {
    check(length.to_double() >= 0, "[random_split] expected lengths from 0 on, got {}", length);
    fractions = fractions || length.is_float();
    sum += length.to_double();
  }
  if (fractions) check(std::abs(sum - 1) < 1e-6, "[random_split] expected fractions that add up to 1, got {}", sum);
  else check(sum == double(n), "[random_split] expected lengths that add up to {}, got {}", n, sum);
  const auto order = permutation(n, mix_seed(seed, 0x5eed));
  std::vector<std::vector<int64_t>> out;
  int64_t at = 0;
  double edge = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    edge += lengths[i].to_double();
    int64_t end = fractions ? std::llround(edge * double(n)) : at + lengths[i].to_int();
    end = i + 1 == lengths.size() ? n : std::min(end, n);  // fractions may add up to a little more than 1
    out.emplace_back(order.begin() + at, order.begin() + end);
    at = end;
  }
  return out;
}

}  // namespace tapir::inline v0::data
