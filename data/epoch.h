#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../core/tensor.h"
#include "sampler.h"
#include "shared.h"
#include "workers.h"

namespace tapir::inline v0 {
class StateDict;
}
namespace tapir::inline v0::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;     // a new permutation each epoch, fixed by (seed, epoch)
  int64_t num_workers = 0;  // threads that load; 0: the calling thread does
  std::optional<uint64_t> seed =
      {};                  // of the order and of random operations within get(); none: drawn, see manual_seed()
  bool drop_last = false;  // leave out the last batch when it is short
  double timeout = 0;      // seconds that workers have for a batch; 0: no limit
  std::optional<Device> device = {};  // where batches go; by default they stay where they were made
  int64_t prefetch = 2;               // batches that each worker may be ahead
  bool persistent_workers = false;    // threads stay from epoch to epoch
  Shared<Sampler> sampler = {};  // the order, instead of `shuffle`: {.sampler = WeightedRandomSampler(weights, 1000)}
};

/// Where an epoch's time went, in seconds. `wait` is the loop's, for batches that were not there yet; the others are sums over all
/// workers: in get(), in the collate function, and in copies to the device that were queued.
struct LoaderStats {
  int64_t batches = 0, samples = 0;
  double wait = 0, load = 0, collate = 0, copy = 0;
  std::string str() const;
};

namespace detail {

struct EpochState;
struct LoaderCounters;

/// What the engine tells of a batch while it is made: which sample is being loaded, with its random numbers seeded.
class SampleScope {
 public:
  SampleScope(EpochState& state, int64_t worker) : state_(state), worker_(worker) {}
  /// Before each get(index). Leaves the batch by an exception of the engine's own when the epoch was left.
  void begin(int64_t index);
  void begin_collate();
  int64_t collate_began = 0;  // ns; 0: it has not

 private:
  EpochState& state_;
  int64_t worker_;
};

/// The samples of one shard of an iterable dataset, with the collate function.
struct SampleStream {
  virtual ~SampleStream() = default;
  /// A batch of the next samples, whose numbers begin at `first` and grow by `stride`; null when there are none, or too few for
  /// `drop_last`. `samples`: how many it was made of.
  virtual void* make(int64_t first, int64_t stride, int64_t count, bool drop_last, SampleScope& scope,
                     int64_t& samples) = 0;
  /// Passes by as many of the samples from the first on.
  virtual void skip(int64_t first, int64_t stride, int64_t count, SampleScope& scope) = 0;
};
/// A dataset with its collate function, without their types. Batches are heap objects of the Batch type.
struct BatchSource {
  virtual ~BatchSource() = default;
  virtual int64_t size() = 0;
  virtual void* make(std::span<const int64_t> indices, SampleScope& scope) = 0;
  /// Of an iterable dataset; 0: samples are asked for by their indices.
  virtual int64_t shards() { return 0; }
  virtual SampleStream* open(int64_t shard, int64_t epoch) = 0;  // the caller's
  virtual void drop(void* batch) noexcept = 0;
  /// Queues the copies on this thread's stream.
  virtual void move_to(void* batch, Device device) = 0;
  /// The tensors are used on this thread's stream of `device` from now on.
  virtual void use_on(void* batch, Device device) = 0;
};

/// One pass over the data: worker threads that make batches, a bounded queue, batches in order. See Note [Loader].
class Epoch {
 public:
  /// `options` with a seed. first: where it goes on, in samples, or for an iterable dataset in turns. pool: threads that stay; absent: its own.
  Epoch(Shared<BatchSource> source, const LoaderOptions& options, int64_t epoch, int64_t first,
        Shared<LoaderCounters> counters, Shared<WorkerPool> pool);
  Epoch(Epoch&& o) noexcept : impl_(std::exchange(o.impl_, nullptr)) {}
  Epoch& operator=(Epoch&&) = delete;
  ~Epoch();
  /// The next batch, the caller's from now on, or null at the end; `progress` is what `first` grows by.
  void* next(int64_t& progress);

 private:
  struct Impl;
  Impl* impl_;
};

Shared<LoaderCounters> new_counters();
LoaderStats stats_of(const LoaderCounters& counters);
/// t in page-locked memory, queued to be copied to a CUDA device; to another device as usual.
Tensor staged(const Tensor& t, Device device);
void use_on_current_stream(const Tensor& t, Device device);
/// ValueError outside [0, 2^62).
void check_place(const char* what, int64_t number);
/// The integer of that name in a loader's state; ValueError where it is none. saved_place: checked so.
int64_t saved_number(const StateDict& state, const char* name);
int64_t saved_place(const StateDict& state, const char* name);
/// A seed from the default generator, which it moves on.
uint64_t draw_seed();
/// ValueError for options that make no sense.
void check_options(const LoaderOptions& options);
/// How many samples and batches an epoch has.
int64_t count_samples(BatchSource& source, const LoaderOptions& options);  // ValueError for an iterable dataset
int64_t count_batches(int64_t samples, const LoaderOptions& options);
/// One column of a batch: (count, ...). ValueError with both samples when they differ in shape or dtype.
Tensor stack_column(const std::vector<Tensor>& rows, std::span<const int64_t> indices);
/// The same; shorter ones are filled up with `value` at the end of each dimension. ValueError where ranks or dtypes differ.
Tensor pad_column(const std::vector<Tensor>& rows, std::span<const int64_t> indices, double value);
void check_columns(size_t fields, size_t expected, int64_t index);

}  // namespace detail
}  // namespace tapir::inline v0::data
