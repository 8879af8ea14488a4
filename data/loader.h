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

/// Stacks samples field by field: a batch has the samples' type.
struct DefaultCollate {};

namespace detail {

template <class S> S collate_fields(const std::vector<S>& samples, std::span<const int64_t> indices) {
  std::vector<std::vector<Tensor>> columns;
  for (size_t i = 0; i < samples.size(); ++i) {
    size_t k = 0;
    visit_fields(samples[i], [&](const Tensor& field) {
      if (i == 0) columns.emplace_back();
      if (k < columns.size()) columns[k].push_back(field);
      ++k;
    });
    check_columns(k, columns.size(), indices[i]);
  }
  S batch = samples[0];
  size_t k = 0;
  visit_fields(batch, [&](Tensor& field) { field = stack_column(columns[k++], indices); });
  return batch;
}

template <class D, class C> struct BatchOf {
  using type = std::remove_cvref_t<std::invoke_result_t<C&, std::vector<SampleOf<D>>>>;
};
template <class D> struct BatchOf<D, DefaultCollate> { using type = SampleOf<D>; };

template <class D, class C> struct TypedSource final : BatchSource {
  using Sample = SampleOf<D>;
  using Batch = typename BatchOf<D, C>::type;
  TypedSource(Shared<D> dataset, C collate) : dataset(std::move(dataset)), collate(std::move(collate)) {}
  int64_t size() override { return int64_t(dataset->size()); }
  void* make(std::span<const int64_t> indices, SampleScope& scope) override {
    if constexpr (std::is_same_v<C, DefaultCollate> && BatchDataset<D>) {
      scope.begin(indices[0]);
      return new Batch(dataset->get_batch(indices));
    } else {
      std::vector<Sample> samples;
      samples.reserve(indices.size());
      for (const int64_t i : indices) {
        scope.begin(i);
        samples.push_back(dataset->get(i));
      }
      scope.begin_collate();
      if constexpr (std::is_same_v<C, DefaultCollate>) return new Batch(collate_fields(samples, indices));
      else return new Batch(collate(std::move(samples)));
    }
  }
  void drop(void* batch) noexcept override { delete static_cast<Batch*>(batch); }
  void move_to(void* batch, Device device) override {
    if constexpr (TensorFields<Batch>) {  // what else a collate function makes moves by itself
      visit_fields(*static_cast<Batch*>(batch), [&](Tensor& t) {
        if (t.defined() && t.device() != device) t = staged(t, device);
      });
    }
  }
  void use_on(void* batch, Device device) override {
    if constexpr (TensorFields<Batch>)
      visit_fields(*static_cast<Batch*>(batch), [&](Tensor& t) { use_on_current_stream(t, device); });
  }
  Shared<D> dataset;
  C collate;
};

/// Where the newest iterator of a loader stands.
struct Position {
  int64_t epoch = 0, samples = 0, iterator = 0;
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
  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return batch_; }
  BatchIterator& operator++() {
    delete std::exchange(batch_, nullptr);
    int64_t samples = 0;
    batch_ = static_cast<Batch*>(epoch_.next(samples));
    if (position_->iterator != number_) return *this;
    position_->samples += samples;
    if (!batch_ && !position_->pending) ++position_->epoch, position_->samples = 0, position_->pending = true;
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
      : dataset_(dataset), options_(options),
        source_(std::in_place_type<detail::TypedSource<D, C>>, std::move(dataset), std::move(collate)),
        position_(detail::Position{}), counters_(detail::new_counters()) {
    detail::check_options(options_);
    position_->seed = options_.seed;
  }
  explicit DataLoader(D dataset, const LoaderOptions& options = {}, C collate = {})
      : DataLoader(Shared<D>(std::move(dataset)), options, std::move(collate)) {}

  BatchIterator<Batch> begin() {
    if (!position_->pending) ++position_->epoch, position_->samples = 0;
    position_->pending = false;
    LoaderOptions seeded = options_;
    seeded.seed = seed();
    return {detail::Epoch(source_, seeded, position_->epoch, position_->samples, counters_), position_};
  }
  LoaderEnd end() const { return {}; }
  /// Batches in an epoch.
  int64_t size() const { return detail::count_batches(detail::count_samples(*source_, options_), options_); }
  /// Of the newest loop, so far.
  LoaderStats stats() const { return detail::stats_of(*counters_); }
  D& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  /// The epoch that the current loop is in, or that the next one will be: it selects the permutation.
  int64_t epoch() const { return position_->epoch; }
  void set_epoch(int64_t epoch) { *position_ = {epoch, 0, position_->iterator + 1, true, position_->seed}; }
  /// The seed given, or drawn by the first call or loop.
  uint64_t seed() const {
    if (!position_->seed) position_->seed = detail::draw_seed();
    return *position_->seed;
  }

  /// Epoch, samples handed out of it, seed. Taken within a loop, the batch at hand counts as handed out.
  StateDict state_dict() const {
    StateDict out;
    const std::pair<const char*, int64_t> items[] = {
        {"epoch", position_->epoch}, {"samples", position_->samples}, {"seed", int64_t(seed())}};
    for (const auto& [name, value] : items) out.append(name, tensor_from_host(&value, kInt64, {}, {}));
    return out;
  }
  /// The next loop goes on where the state was taken, with any number of workers and any batch size.
  void load_state_dict(const StateDict& state) {
    const auto epoch = state.at("epoch").template item<int64_t>(),
               samples = state.at("samples").template item<int64_t>();
    check(samples >= 0, "[DataLoader] expected a count of samples from 0 on, got {}", samples);
    const auto seed = uint64_t(state.at("seed").template item<int64_t>());
    *position_ = {epoch, samples, position_->iterator + 1, true, seed};
  }

 private:
  Shared<D> dataset_;
  LoaderOptions options_;
  Shared<detail::BatchSource> source_;
  Shared<detail::Position> position_;
  Shared<detail::LoaderCounters> counters_;
};
template <class D> DataLoader(D) -> DataLoader<D>;
template <class D> DataLoader(D, LoaderOptions) -> DataLoader<D>;
template <class D, class C> DataLoader(D, LoaderOptions, C) -> DataLoader<D, C>;
template <class D> DataLoader(Shared<D>) -> DataLoader<D>;
template <class D> DataLoader(Shared<D>, LoaderOptions) -> DataLoader<D>;
template <class D, class C> DataLoader(Shared<D>, LoaderOptions, C) -> DataLoader<D, C>;

}  // namespace tapir::inline v0::data
