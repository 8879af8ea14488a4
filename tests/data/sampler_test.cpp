#include <tapir/data/sampler.h>

#include <algorithm>
#include <limits>
#include <set>

#include <tapir/core/error.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("sequential and random samplers") {
  CHECK(data::SequentialSampler(3).indices(7) == std::vector<int64_t>{0, 1, 2});
  const data::RandomSampler sampler(1000, 5);
  auto first = sampler.indices(0);
  CHECK(first == sampler.indices(0));
  CHECK(first != sampler.indices(1));
  CHECK(first != data::RandomSampler(1000, 6).indices(0));
  std::sort(first.begin(), first.end());
  CHECK(first == data::SequentialSampler(1000).indices(0));
  CHECK(data::RandomSampler(0).indices(0).empty());
  CHECK_THROWS_AS(data::RandomSampler(-1), ValueError);
}

TEST_CASE("permutations are uniform and frozen") {
  int counts[6] = {};
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const auto p = data::permutation(3, seed);
    ++counts[p[0] * 2 + (p[1] > p[2])];
  }
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
  CHECK(data::permutation(8, 1) == data::permutation(8, 1));
}

TEST_CASE("BI-235 weighted sampling") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const auto& weights : {std::vector<double>{1, -1}, {1, nan}, {1, inf}, {0, 0}, {}})
    CHECK_THROWS_AS(data::WeightedRandomSampler(weights, 1), ValueError);
  CHECK_THROWS_AS(data::WeightedRandomSampler({1, 1}, -1), ValueError);
  CHECK(mentions(message_of<ValueError>([] { data::WeightedRandomSampler({1, 0, 2}, 3, false); }), {"2 draws", "3"}));
  int counts[4] = {};
  for (const int64_t i : data::WeightedRandomSampler({1, 0, 3, 0}, 4000).indices(0)) ++counts[i];
  CHECK((counts[1] == 0 && counts[3] == 0));
  CHECK(std::abs(counts[2] - 3000) < 150);
  int first_is_heavy = 0;
  for (int e = 0; e < 400; ++e) {
    const auto all = data::WeightedRandomSampler({1, 9, 0}, 2, false).indices(e);
    CHECK(std::set<int64_t>(all.begin(), all.end()) == std::set<int64_t>{0, 1});
    first_is_heavy += all[0] == 1;
  }
  CHECK(std::abs(first_is_heavy - 360) < 30);
}

TEST_CASE("BI-236 every rank gets the same count, the tail is padded by the beginning") {
  for (const int64_t n : {0, 1, 2, 7, 9})
    for (const int64_t world : {1, 2, 3, 4})
      for (const bool drop : {false, true}) {
        std::multiset<int64_t> all;
        for (int64_t rank = 0; rank < world; ++rank) {
          const data::DistributedSampler sampler(n, rank, world, {.drop_last = drop});
          const auto mine = sampler.indices(3);
          CHECK(int64_t(mine.size()) == sampler.size());
          CHECK(sampler.size() == (drop ? n / world : (n + world - 1) / world));
          all.insert(mine.begin(), mine.end());
        }
        if (!drop)
          for (int64_t i = 0; i < n; ++i) CHECK(all.count(i) >= 1);
      }
  CHECK(data::DistributedSampler(4, 1, 2, {.shuffle = false}).indices(0) == std::vector<int64_t>{1, 3});
  CHECK_THROWS_AS(data::DistributedSampler(4, 2, 2), ValueError);
  CHECK_THROWS_AS(data::DistributedSampler(4, 0, 0), ValueError);
}
