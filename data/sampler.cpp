#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../core/checks.h"
#include "../core/error.h"
#include "../core/generator.h"

namespace tapir::inline v0::data {

namespace {

/// 64-bit numbers of one Philox stream.
class Stream {
 public:
  explicit Stream(uint64_t seed) : seed_(seed) {}
  uint64_t next() {
    if (half_) {
      half_ = false;
      return uint64_t(block_.word[3]) << 32 | block_.word[2];
    }
    block_ = Philox::block(seed_, counter_++);
    half_ = true;
    return uint64_t(block_.word[1]) << 32 | block_.word[0];
  }
  /// [0, bound): the high half of a 128-bit product; its bias is below bound / 2^64.
  uint64_t below(uint64_t bound) { return uint64_t(static_cast<unsigned __int128>(next()) * bound >> 64); }
  /// [0, 1) with 53 bits.
  double uniform() { return double(next() >> 11) * 0x1p-53; }

 private:
  uint64_t seed_, counter_ = 0;
  Philox::Block block_{};
  bool half_ = false;
};

/// The seed of an epoch's order.
uint64_t seed_of(const char* op, uint64_t seed, int64_t epoch) {
  check_count(op, "an epoch", epoch);
  return mix_seed(seed, uint64_t(epoch));
}
std::vector<int64_t> ascending(const char* op, int64_t n) {
  auto out = host_vector<int64_t>(op, n);
  std::iota(out.begin(), out.end(), int64_t(0));
  return out;
}

}  // namespace

uint64_t mix_seed(uint64_t seed, uint64_t a, uint64_t b) {
  const auto first = Philox::block(seed, a);
  const auto second = Philox::block(uint64_t(first.word[0]) << 32 | first.word[1], b);
  return uint64_t(second.word[0]) << 32 | second.word[1];
}

std::vector<int64_t> permutation(int64_t n, uint64_t seed) {
  check_count("permutation", "a size", n);
  auto out = ascending("permutation", n);
  Stream stream(seed);
  for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[stream.below(i)]);
  return out;
}

SequentialSampler::SequentialSampler(int64_t n) : n_(n) { check_count("SequentialSampler", "a size", n); }

std::vector<int64_t> SequentialSampler::indices(int64_t) const { return ascending("SequentialSampler", n_); }

RandomSampler::RandomSampler(int64_t n, uint64_t seed) : n_(n), seed_(seed) {
  check_count("RandomSampler", "a size", n);
}

std::vector<int64_t> RandomSampler::indices(int64_t epoch) const {
  return permutation(n_, seed_of("RandomSampler", seed_, epoch));
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t count, bool replacement,
                                             uint64_t seed)
    : weights_(std::move(weights)), count_(count), replacement_(replacement), seed_(seed) {
  check_count("WeightedRandomSampler", "a size", count);
  int64_t positive = 0;
  double sum = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    check(weights_[i] >= 0 && std::isfinite(weights_[i]),
          "[WeightedRandomSampler] expected finite weights from 0 on, got {} at {}", weights_[i], int64_t(i));
    positive += weights_[i] > 0;
    sum += weights_[i];
  }
  check(std::isfinite(sum), "[WeightedRandomSampler] expected weights with a finite sum, got {}", sum);
  check(count == 0 || positive > 0, "[WeightedRandomSampler] expected a weight above 0, got none among {}",
        int64_t(weights_.size()));
  check(replacement || count <= positive,
        "[WeightedRandomSampler] expected at most {} draws without replacement (the weights above 0), got {}", positive,
        count);
}

std::vector<int64_t> WeightedRandomSampler::indices(int64_t epoch) const {
  Stream stream(seed_of("WeightedRandomSampler", seed_, epoch));
  auto out = host_vector<int64_t>("WeightedRandomSampler", count_);
  if (replacement_) {
    std::vector<double> ends(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), ends.begin());
    for (auto& index : out) {
      const double at = stream.uniform() * ends.back();
      index = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
      // Rounding may lead past the end: back to the last weight above 0.
      index = std::min(index, int64_t(std::lower_bound(ends.begin(), ends.end(), ends.back()) - ends.begin()));
    }
    return out;
  }
  // Efraimidis and Spirakis 2006: the count largest keys log(u) / weight.
  std::vector<std::pair<double, int64_t>> keys;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const double u = 1 - stream.uniform();
    if (weights_[i] > 0) keys.emplace_back(-std::log(u) / weights_[i], int64_t(i));
  }
  std::partial_sort(keys.begin(), keys.begin() + count_, keys.end());
  for (size_t i = 0; i < out.size(); ++i) out[i] = keys[i].second;
  return out;
}

DistributedSampler::DistributedSampler(int64_t n, int64_t rank, int64_t world, const DistributedSamplerOptions& options)
    : n_(n), rank_(rank), world_(world), options_(options) {
  check_count("DistributedSampler", "a size", n);
  check(world > 0 && rank >= 0 && rank < world, "[DistributedSampler] expected a rank in [0, world), got rank {} of {}",
        rank, world);
}

int64_t DistributedSampler::size() const { return options_.drop_last ? n_ / world_ : n_ / world_ + (n_ % world_ != 0); }

std::vector<int64_t> DistributedSampler::indices(int64_t epoch) const {
  const auto all = options_.shuffle ? permutation(n_, seed_of("DistributedSampler", options_.seed, epoch))
                                    : SequentialSampler(n_).indices(epoch);
  auto out = host_vector<int64_t>("DistributedSampler", size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = all[(i * size_t(world_) + size_t(rank_)) % all.size()];
  return out;
}

}  // namespace tapir::inline v0::data
