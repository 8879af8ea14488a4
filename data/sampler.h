#pragma once
#include <cstdint>
#include <vector>

namespace tapir::inline v0::data {

/// Tells in which order the samples of an epoch come. Derive from it for an order of your own: the same epoch must give
/// the same list, since a resumed run asks again.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// How many indices an epoch has.
  virtual int64_t size() const = 0;
  virtual std::vector<int64_t> indices(int64_t epoch) const = 0;
};

/// 0, 1, ..., n - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t n);
  int64_t size() const override { return n_; }
  std::vector<int64_t> indices(int64_t epoch) const override;

 private:
  int64_t n_;
};

/// A permutation that (seed, epoch) fixes.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t n, uint64_t seed = 0);
  int64_t size() const override { return n_; }
  std::vector<int64_t> indices(int64_t epoch) const override;

 private:
  int64_t n_;
  uint64_t seed_;
};

/// `count` draws with probabilities in proportion to `weights`, with or without replacement. ValueError for weights
/// that are negative, not finite or all 0, and for more draws than there are weights above 0 without replacement.
class WeightedRandomSampler final : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, int64_t count, bool replacement = true, uint64_t seed = 0);
  int64_t size() const override { return count_; }
  std::vector<int64_t> indices(int64_t epoch) const override;

 private:
  std::vector<double> weights_;
  int64_t count_;
  bool replacement_;
  uint64_t seed_;
};

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;
};
/// Rank r of `world` takes every world-th index from r on, of the order that all ranks share. Every rank has the same
/// count: the list is padded by its own beginning, or cut with drop_last.
class DistributedSampler final : public Sampler {
 public:
  DistributedSampler(int64_t n, int64_t rank, int64_t world, const DistributedSamplerOptions& options = {});
  int64_t size() const override;
  std::vector<int64_t> indices(int64_t epoch) const override;

 private:
  int64_t n_, rank_, world_;
  DistributedSamplerOptions options_;
};

/// The seed of a random stream of its own: a hash of (seed, a, b).
uint64_t mix_seed(uint64_t seed, uint64_t a, uint64_t b = 0);
/// A permutation of 0 ... n - 1, fixed by the seed.
std::vector<int64_t> permutation(int64_t n, uint64_t seed);

}  // namespace tapir::inline v0::data
