#pragma once
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/modes.h"
#include "../core/state_dict.h"
#include "dataset.h"
#include "epoch.h"
#include "fields.h"
#include "sampler.h"
#include "shared.h"

namespace tapir::inline v0::data {

/// Stacks samples field by field: a batch has the samples' type, with Tensors for numbers.
struct DefaultCollate {};
/// The same for ragged samples: each is filled up with `value`, at the end of each dimension, to the largest of the batch.
struct PadCollate {
  double value = 0;
};

namespace detail {

template <class C>
concept FieldCollate = std::is_same_v<C, DefaultCollate> || std::is_same_v<C, PadCollate>;

template <class S, class C>
S collate_fields(const C& collate, const std::vector<S>& samples, std::span<const int64_t> indices) {
  static_assert(
      TensorFields<S>,
      "a sample is a Tensor or a number, a tuple, pair, array or aggregate of at most 8 of them, or a vector of "
      "Tensors");
  std::vector<std::vector<Tensor>> columns;
  for (size_t i = 0; i < samples.size(); ++i) {
    size_t k = 0;
    each_tensor(samples[i], [&](const Tensor& field) {
      if (i == 0) columns.emplace_back();
      if (k < columns.size()) columns[k].push_back(field);
      ++k;
    });
    check_columns(k, columns.size(), indices[i]);
  }
  S batch = samples[0];
  size_t k = 0;
  each_tensor(batch, [&](Tensor& field) {
    if constexpr (std::is_same_v<C, PadCollate>) field = pad_column(columns[k++], indices, collate.value);
    else field = stack_column(columns[k++], indices);
  });
  return batch;
}

template <class D, class C> struct BatchOf {
  using type = std::remove_cvref_t<std::invoke_result_t<C&, std::vector<SampleOf<D>>>>;
};
template <class D, FieldCollate C> struct BatchOf<D, C> { using type = SamplesOf<D>; };

template <class Batch, class S, class C>
void* collated(C& collate, std::vector<S>&& samples, std::span<const int64_t> indices, SampleScope& scope) {
  scope.begin_collate();
  if constexpr (FieldCollate<C> && std::is_same_v<Batch, S>)
    return new Batch(collate_fields(collate, samples, indices));
  else if constexpr (FieldCollate<C>) {
    std::vector<Batch> tensors;
    for (const S& sample : samples) tensors.push_back(tensors_of(sample));
    return new Batch(collate_fields(collate, tensors, indices));
  } else return new Batch(collate(std::move(samples)));
}

template <class D, class C> struct TypedStream final : SampleStream {
  using Sample = SampleOf<D>;
  using Stream = std::remove_cvref_t<decltype(std::declval<D&>().stream(0, 0))>;
  TypedStream(Shared<D> dataset, C& collate, int64_t shard, int64_t epoch)
      : dataset(std::move(dataset)), collate(collate), stream(this->dataset->stream(shard, epoch)) {}
  void* make(int64_t first, int64_t stride, int64_t count, bool drop_last, SampleScope& scope,
             int64_t& taken) override {
    std::vector<Sample> samples;
    std::vector<int64_t> numbers;
    for (int64_t number = first; int64_t(samples.size()) < count; number += stride) {
      scope.begin(number);
      auto sample = stream.next();
      if (!sample) break;
      samples.push_back(*std::move(sample)), numbers.push_back(number);
    }
    taken = int64_t(samples.size());
    if (samples.empty() || (drop_last && taken < count)) return nullptr;
    return collated<typename BatchOf<D, C>::type>(collate, std::move(samples), numbers, scope);
  }
  void skip(int64_t first, int64_t stride, int64_t count, SampleScope& scope) override {
    if constexpr (requires { stream.skip(count); }) return stream.skip(count);
    for (int64_t i = 0; i < count; ++i) {
      scope.begin(first + i * stride);
      if (!stream.next()) return;
    }
  }
  Shared<D> dataset;
  C& collate;  // of the source, which the epoch keeps
  Stream stream;
};

template <class D, class C> struct TypedSource final : BatchSource {
  using Sample = SampleOf<D>;
  using Batch = typename BatchOf<D, C>::type;
  TypedSource(Shared<D> dataset, C collate) : dataset(std::move(dataset)), collate(std::move(collate)) {}
  int64_t size() override {
    if constexpr (IterableDataset<D>) return 0;
    else return int64_t(dataset->size());
  }
  int64_t shards() override {
    if constexpr (!IterableDataset<D>) return 0;
    else if constexpr (requires { dataset->shards(); }) {
      const auto n = int64_t(dataset->shards());
      check(n > 0, "[DataLoader] expected a number of shards above 0, got {}", n);
      return n;
    } else return 1;
  }
  SampleStream* open([[maybe_unused]] int64_t shard, [[maybe_unused]] int64_t epoch) override {
    if constexpr (IterableDataset<D>) return new TypedStream<D, C>(dataset, collate, shard, epoch);
    else return nullptr;
  }
  void* make([[maybe_unused]] std::span<const int64_t> indices, [[maybe_unused]] SampleScope& scope) override {
    if constexpr (IterableDataset<D>) return nullptr;
    else if constexpr (std::is_same_v<C, DefaultCollate> && BatchDataset<D>) {
      scope.begin(indices[0]);
      return new Batch(dataset->get_batch(indices));
    } else {
      std::vector<Sample> samples;
      samples.reserve(indices.size());
      for (const int64_t i : indices) {
        scope.begin(i);
        samples.push_back(dataset->get(i));
      }
      return collated<Batch>(collate, std::move(samples), indices, scope);
    }
  }
  void drop(void* batch) noexcept override { delete static_cast<Batch*>(batch); }
  void move_to(void* batch, Device device) override {
    if constexpr (TensorFields<Batch>) {  // what else a collate function makes moves by itself
      each_tensor(*static_cast<Batch*>(batch), [&](Tensor& t) {
        if (t.defined() && t.device() != device) t = staged(t, device);
      });
    }
  }
  void use_on(void* batch, Device device) override {
    if constexpr (TensorFields<Batch>)
      each_tensor(*static_cast<Batch*>(batch), [&](Tensor& t) { use_on_current_stream(t, device); });
  }
  Shared<D> dataset;
  C collate;
};

/// Where the newest iterator of a loader stands. place: in samples, or for an iterable dataset in turns (Note [Loader]).
struct Position {
  int64_t epoch = 0, place = 0, iterator = 0;
  bool pending = true;  // the next epoch begins here; else behind this one
  std::optional<uint64_t> seed = {};
};

}  // namespace detail

struct LoaderEnd {};

/// The iterator of a DataLoader: it owns the current batch, and keeps dataset and workers alive by itself. Move-only.
template <class Batch> class BatchIterator {
 public:
  using value_type = Batch;
  using difference_type = int64_t;
  BatchIterator(detail::Epoch epoch, Shared<detail::Position> position)
      : epoch_(std::move(epoch)), position_(std::move(position)), number_(++position_->iterator) {
    ++*this;
  }
  BatchIterator(BatchIterator&& o) noexcept
      : epoch_(std::move(o.epoch_)), position_(std::move(o.position_)), number_(o.number_),
        batch_(std::exchange(o.batch_, nullptr)) {}
  BatchIterator& operator=(BatchIterator&&) = delete;
  ~BatchIterator() { delete batch_; }
  /// ValueError behind the last batch.
  Batch& operator*() const { return *operator->(); }
  Batch* operator->() const {
    check(batch_, "[DataLoader] expected a batch, got the end of the loop or an iterator that was moved from");
    return batch_;
  }
  BatchIterator& operator++() {
    check(bool(position_), "[DataLoader] expected an iterator, got one that was moved from");
    delete std::exchange(batch_, nullptr);
    int64_t progress = 0;
    batch_ = static_cast<Batch*>(epoch_.next(progress));
    if (position_->iterator != number_) return *this;
    position_->place += progress;
    if (!batch_ && !position_->pending) ++position_->epoch, position_->place = 0, position_->pending = true;
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(LoaderEnd) const { return batch_ == nullptr; }

 private:
  detail::Epoch epoch_;
  Shared<detail::Position> position_;
  int64_t number_;
  Batch* batch_ = nullptr;
};

/// Batches of a dataset: `for (auto& [images, labels] : loader)`. Each loop is one epoch. The data of an epoch depend
/// on the seed and the epoch alone, not on the number of workers; a seed that is not given is drawn from the default generator when the
/// first loop begins, so that manual_seed() fixes it. What get() or the collate function throws leaves the
/// loop as a RuntimeError with the sample's index; the next loop starts afresh. ValueError for options that make no
/// sense. With a CUDA `device` workers make batches in page-locked memory and queue their copies on a stream of their own, so that
/// batch k + 1 moves while batch k trains; the loop's stream waits for them, the host does not.
template <class D, class C = DefaultCollate> class DataLoader {
 public:
  using Batch = typename detail::BatchOf<D, C>::type;
  explicit DataLoader(Shared<D> dataset, const LoaderOptions& options = {}, C collate = {})
      : dataset_(checked(dataset)), options_(options),
        source_(std::in_place_type<detail::TypedSource<D, C>>, std::move(dataset), std::move(collate)),
        position_(detail::Position{}), counters_(detail::new_counters()) {
    detail::check_options(options_);
    position_->seed = options_.seed;
  }
  explicit DataLoader(D dataset, const LoaderOptions& options = {}, C collate = {})
      : DataLoader(Shared<D>(std::move(dataset)), options, std::move(collate)) {}

  BatchIterator<Batch> begin() {
    if (!position().pending) ++position().epoch, position().place = 0;
    position().pending = false;
    LoaderOptions seeded = options_;
    seeded.seed = seed();
    if (options_.persistent_workers && options_.num_workers && !pool_)
      pool_ = Shared<detail::WorkerPool>(std::in_place_type<detail::WorkerPool>);
    return {detail::Epoch(source_, seeded, position().epoch, position().place, counters_, pool_), position_};
  }
  LoaderEnd end() const { return {}; }
  /// Batches in an epoch. ValueError for an iterable dataset, which does not know.
  int64_t size() const { return detail::count_batches(detail::count_samples(*source_, options_), options_); }
  /// Of the newest loop, so far.
  LoaderStats stats() const { return detail::stats_of(*counters_); }
  D& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  /// The epoch that the current loop is in, or that the next one will be: it selects the permutation.
  int64_t epoch() const { return position().epoch; }
  void set_epoch(int64_t epoch) {
    detail::check_place("an epoch", epoch);
    position() = {epoch, 0, position().iterator + 1, true, position().seed};
  }
  /// The seed given, or drawn by the first call or loop.
  uint64_t seed() const {
    if (!position().seed) position().seed = detail::draw_seed();
    return *position().seed;
  }

  /// Epoch, samples (or, of an iterable dataset, turns) handed out of it, seed. Taken within a loop, the batch at hand counts as handed out.
  StateDict state_dict() const {
    StateDict out;
    const std::pair<const char*, int64_t> items[] = {{"epoch", position().epoch},
                                                     {place_name(), position().place},
                                                     {"seed", int64_t(seed())},
                                                     {"batch_size", options_.batch_size}};
    for (const auto& [name, value] : items) out.append(name, tensor_from_host(&value, kInt64, {}, {}));
    return out;
  }
  /// The next loop goes on where the state was taken, with any number of workers and any batch size; of an iterable dataset ValueError for
  /// another batch size than that of the state.
  void load_state_dict(const StateDict& state) {
    check_names("DataLoader", state);
    const int64_t epoch = detail::saved_place(state, "epoch"), place = detail::saved_place(state, place_name());
    if constexpr (IterableDataset<D>) {
      const int64_t size = detail::saved_place(state, "batch_size");
      check(size == options_.batch_size,
            "[DataLoader] expected the state of a loader with batch_size {}, got one with {}", options_.batch_size,
            size);
    }
    const auto seed = uint64_t(detail::saved_number(state, "seed"));
    position() = {epoch, place, position().iterator + 1, true, seed};
  }

 private:
  static const Shared<D>& checked(const Shared<D>& dataset) {
    check(bool(dataset), "[DataLoader] expected a dataset, got an empty Shared");
    return dataset;
  }
  detail::Position& position() const {
    check(bool(position_), "[DataLoader] expected a loader, got one that was moved from");
    return *position_;
  }
  static constexpr const char* place_name() { return IterableDataset<D> ? "turns" : "samples"; }
  Shared<D> dataset_;
  LoaderOptions options_;
  Shared<detail::BatchSource> source_;
  Shared<detail::Position> position_;
  Shared<detail::LoaderCounters> counters_;
  Shared<detail::WorkerPool> pool_;  // of threads that stay
};
template <class D> DataLoader(D) -> DataLoader<D>;
template <class D> DataLoader(D, LoaderOptions) -> DataLoader<D>;
template <class D, class C> DataLoader(D, LoaderOptions, C) -> DataLoader<D, C>;
template <class D> DataLoader(Shared<D>) -> DataLoader<D>;
template <class D> DataLoader(Shared<D>, LoaderOptions) -> DataLoader<D>;
template <class D, class C> DataLoader(Shared<D>, LoaderOptions, C) -> DataLoader<D, C>;

}  // namespace tapir::inline v0::data
