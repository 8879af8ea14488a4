#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/tensor.h"
#include "fields.h"
#include "shared.h"

namespace tapir::inline v0::data {

/// Anything with `size()` and `get(i)`, which returns a sample: a Tensor, or a tuple, pair, array, vector or aggregate
/// of Tensors; numbers among them become Tensors in the batch. Worker threads of a loader call get() at the same time. Random operations within get() are seeded for
/// each sample.
template <class D>
concept Dataset = requires(D& d, int64_t i) {
  { d.size() } -> std::convertible_to<int64_t>;
  d.get(i);
};
/// Samples that only come one after the other: `stream(shard, epoch)` returns an object whose next() is a std::optional of a sample, none at
/// the end. `shards()` (1 where it is not there) says in how many parts, such as files, workers may read at the same time; batches come
/// from the shards in turn, for any number of workers. A stream may have skip(n), for a resumed epoch; else samples are read and dropped.
template <class D>
concept IterableDataset = !Dataset<D> && requires(D & d, int64_t n) {
  *d.stream(n, n).next();
};
namespace detail {
template <class D> auto sample_of(D& d) {
  if constexpr (IterableDataset<D>) return std::type_identity<std::remove_cvref_t<decltype(*d.stream(0, 0).next())>>();
  else return std::type_identity<std::remove_cvref_t<decltype(d.get(int64_t(0)))>>();
}
}  // namespace detail
template <class D> using SampleOf = typename decltype(detail::sample_of(std::declval<D&>()))::type;
/// What a batch of those samples is: the same type, with Tensors for numbers.
template <class D> using SamplesOf = decltype(detail::tensors_of(std::declval<SampleOf<D>>()));
/// A dataset that can gather a whole batch at once.
template <class D>
concept BatchDataset = Dataset<D> && requires(D& d, std::span<const int64_t> indices) {
  { d.get_batch(indices) } -> std::same_as<SamplesOf<D>>;
};

/// Memory for a batch, not initialised: page-locked in a loader's thread that makes batches for a CUDA device.
Tensor batch_memory(const Shape& shape, DType dtype);
namespace detail {
inline thread_local bool pins_batches = false;
}
/// Row i of x for each index, as one new tensor (count, ...); ValueError for an index out of range.
Tensor gather_rows(const Tensor& x, std::span<const int64_t> indices);
/// Checks that every tensor has the same number of rows, and returns it.
int64_t common_rows(std::span<const Tensor> tensors);
/// The sum of the sizes of datasets. RuntimeError for one below 0, and for a sum that overflows.
int64_t total_size(std::span<const int64_t> sizes);
void check_index(const char* op, int64_t index, int64_t size);

/// Row i of each of N tensors (rows, ...): `TensorDataset(images, labels)`.
template <size_t N> class TensorDataset {
 public:
  using Sample = std::array<Tensor, N>;
  template <std::convertible_to<Tensor>... T>
  requires(sizeof...(T) == N) explicit TensorDataset(T... tensors)
      : tensors_{Tensor(std::move(tensors))...}, size_(common_rows(tensors_)) {}
  int64_t size() const { return size_; }
  Sample get(int64_t i) const {
    check_index("TensorDataset", i, size_);
    Sample out;
    for (size_t k = 0; k < N; ++k) out[k] = tensors_[k].select(0, i);
    return out;
  }
  Sample get_batch(std::span<const int64_t> indices) const {
    Sample out;
    for (size_t k = 0; k < N; ++k) out[k] = gather_rows(tensors_[k], indices);
    return out;
  }
  const Sample& tensors() const { return tensors_; }

 private:
  Sample tensors_;
  int64_t size_;
};
template <class... T> TensorDataset(T...) -> TensorDataset<sizeof...(T)>;

/// f applied to each sample: f(sample), or f(field, field, ...).
template <Dataset D, class F> class MapDataset {
 public:
  MapDataset(D dataset, F f) : dataset_(std::move(dataset)), f_(std::move(f)) {}
  int64_t size() { return dataset_.size(); }
  auto get(int64_t i) {
    if constexpr (std::invocable<F&, SampleOf<D>>) return f_(dataset_.get(i));
    else return std::apply(f_, dataset_.get(i));
  }

 private:
  D dataset_;
  F f_;
};
template <Dataset D, class F> MapDataset<D, F> map(D dataset, F f) { return {std::move(dataset), std::move(f)}; }

/// The samples at the given indices. ValueError for an index out of range.
template <Dataset D> class Subset {
 public:
  Subset(Shared<D> dataset, std::vector<int64_t> indices) : dataset_(std::move(dataset)), indices_(std::move(indices)) {
    check(bool(dataset_), "[subset] expected a dataset, got an empty Shared");
    for (const int64_t i : indices_) check_index("subset", i, dataset_->size());
  }
  int64_t size() const { return int64_t(indices_.size()); }
  auto get(int64_t i) const {
    check_index("subset", i, size());
    return dataset_->get(indices_[size_t(i)]);
  }
  auto get_batch(std::span<const int64_t> at) const requires BatchDataset<D> {
    std::vector<int64_t> inner;
    for (const int64_t i : at) {
      check_index("subset", i, size());
      inner.push_back(indices_[size_t(i)]);
    }
    return dataset_->get_batch(inner);
  }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  Shared<D> dataset_;
  std::vector<int64_t> indices_;
};
template <Dataset D> Subset<D> subset(D dataset, std::vector<int64_t> indices) {
  return {Shared<D>(std::move(dataset)), std::move(indices)};
}

/// The samples of several datasets, one after the other.
template <Dataset... D> class ConcatDataset {
 public:
  explicit ConcatDataset(D... datasets) : datasets_(std::move(datasets)...) {}
  int64_t size() {
    return std::apply([](auto&... d) { return total_size(std::array{int64_t(d.size())...}); }, datasets_);
  }
  auto get(int64_t i) {
    check_index("concat", i, size());
    return get_from<0>(i);
  }

 private:
  template <size_t K> auto get_from(int64_t i) {
    auto& d = std::get<K>(datasets_);
    if constexpr (K + 1 < sizeof...(D)) {
      if (const int64_t n = d.size(); i >= n) return get_from<K + 1>(i - n);
    }
    return d.get(i);
  }
  std::tuple<D...> datasets_;
};
template <Dataset... D> ConcatDataset<D...> concat(D... datasets) {
  return ConcatDataset<D...>(std::move(datasets)...);
}

/// Index lists for random_split: `lengths` are counts that add up to n, or fractions that add up to 1.
std::vector<std::vector<int64_t>> split_indices(int64_t n, const std::vector<Scalar>& lengths, uint64_t seed);
/// Subsets of random samples without overlap, as many as lengths: auto [train, rest] = random_split(set, {55000, 5000}), or
/// random_split(set, {0.9, 0.1}, seed).
template <Dataset D, size_t N>
std::array<Subset<D>, N> random_split(D dataset, const Scalar (&lengths)[N], uint64_t seed = 0) {
  const Shared<D> shared(std::move(dataset));
  auto lists = split_indices(shared->size(), {lengths, lengths + N}, seed);
  return [&]<size_t... At>(std::index_sequence<At...>) {
    return std::array<Subset<D>, N>{Subset<D>(shared, std::move(lists[At]))...};
  }
  (std::make_index_sequence<N>());
}
/// The same for a number of lengths that is known when the program runs.
template <Dataset D, std::convertible_to<Scalar> T>
std::vector<Subset<D>> random_split(D dataset, const std::vector<T>& lengths, uint64_t seed = 0) {
  const Shared<D> shared(std::move(dataset));
  std::vector<Subset<D>> out;
  for (auto& indices : split_indices(shared->size(), {lengths.begin(), lengths.end()}, seed))
    out.emplace_back(shared, std::move(indices));
  return out;
}

}  // namespace tapir::inline v0::data
