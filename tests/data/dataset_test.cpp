#include <tapir/data/dataset.h>

#include <algorithm>
#include <set>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {
const std::vector<int64_t> kRows = {10, 11, 12, 13, 14};
auto rows() { return data::TensorDataset(tensor(kRows)); }
template <class D> std::vector<int64_t> values(D dataset) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < dataset.size(); ++i) out.push_back(dataset.get(i)[0].template item<int64_t>());
  return out;
}
}  // namespace

TEST_CASE("TensorDataset: rows, batches, errors") {
  CHECK(values(rows()) == kRows);
  CHECK(rows().get_batch(std::vector<int64_t>{4, 0, 4})[0].to_vector<int64_t>() == std::vector<int64_t>{14, 10, 14});
  CHECK_THROWS_AS(rows().get(5), ValueError);
  CHECK_THROWS_AS(rows().get(-1), ValueError);
  CHECK_THROWS_AS(rows().get_batch(std::vector<int64_t>{0, 5}), ValueError);
  CHECK(mentions(message_of<ValueError>([] { data::TensorDataset(tensor(kRows), tensor(std::vector<float>{1})); }),
                 {"[TensorDataset]", "5", "(1,)"}));
  CHECK_THROWS_AS(data::TensorDataset(Tensor()), ValueError);
  CHECK_THROWS_AS(data::TensorDataset(empty({})), ValueError);
  CHECK(data::TensorDataset(empty({0, 3})).size() == 0);
  const Tensor x = tensor(kRows);
  CHECK(values(data::TensorDataset(x[Slice(1, 3)])) == std::vector<int64_t>(kRows.begin() + 1, kRows.begin() + 3));
}

TEST_CASE("gather_rows: contiguous, views, empty rows, no rows") {
  std::vector<float> v(24);
  for (size_t i = 0; i < 24; ++i) v[i] = float(i);
  const Tensor x = tensor(std::span<const float>(v), {4, 6});
  const std::vector<int64_t> at = {3, 1};
  CHECK(data::gather_rows(x, at).to_vector<float>() == std::vector<float>{18, 19, 20, 21, 22, 23, 6, 7, 8, 9, 10, 11});
  CHECK(data::gather_rows(x.t(), at).to_vector<float>() == std::vector<float>{3, 9, 15, 21, 1, 7, 13, 19});
  CHECK(data::gather_rows(x.narrow(1, 2, 1), at).to_vector<float>() == std::vector<float>{20, 8});
  CHECK(data::gather_rows(empty({4, 0}), at).shape() == Shape{2, 0});
  CHECK(data::gather_rows(x, {}).shape() == Shape{0, 6});
  CHECK_THROWS_AS(data::gather_rows(empty({0, 2}), at), ValueError);
}

TEST_CASE("map, subset, concat") {
  const auto doubled = data::map(rows(), [](Tensor t) { return std::array{t.mul(2)}; });
  CHECK(values(doubled) == std::vector<int64_t>{20, 22, 24, 26, 28});
  const auto by_sample = data::map(rows(), [](std::array<Tensor, 1> s) { return s; });
  CHECK(values(by_sample) == kRows);
  CHECK(values(data::subset(rows(), {4, 4, 0})) == std::vector<int64_t>{14, 14, 10});
  CHECK(data::subset(rows(), {4, 0}).get_batch(std::vector<int64_t>{1})[0].item<int64_t>() == 10);
  CHECK_THROWS_AS(data::subset(rows(), {5}), ValueError);
  CHECK_THROWS_AS(data::subset(rows(), {1}).get(1), ValueError);
  auto joined = data::concat(rows(), doubled, data::subset(rows(), {2}));
  CHECK(joined.size() == 11);
  CHECK(values(joined) == std::vector<int64_t>{10, 11, 12, 13, 14, 20, 22, 24, 26, 28, 12});
  CHECK_THROWS_AS(joined.get(11), ValueError);
}

TEST_CASE("random_split: all samples once, fixed by the seed") {
  for (const auto& lengths : {std::vector<Scalar>{3, 2}, std::vector<Scalar>{0.6, 0.4}}) {
    auto parts = data::random_split(rows(), lengths, 1);
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].size() == 3);
    CHECK(parts[1].size() == 2);
    auto all = values(parts[0]);
    for (const int64_t v : values(parts[1])) all.push_back(v);
    CHECK(std::set<int64_t>(all.begin(), all.end()).size() == 5);
    CHECK(values(data::random_split(rows(), lengths, 1)[0]) == values(parts[0]));
  }
  CHECK(data::random_split(rows(), {0.5, 0.25, 0.25}).size() == 3);
  CHECK_THROWS_AS(data::random_split(rows(), {3, 3}), ValueError);
  CHECK_THROWS_AS(data::random_split(rows(), {6, -1}), ValueError);
  CHECK_THROWS_AS(data::random_split(rows(), {0.5, 0.6}), ValueError);
}

TEST_CASE("review 12: random_split into structured bindings") {
  const auto together = [](auto a, auto b) {
    auto all = values(a);
    for (const int64_t v : values(b)) all.push_back(v);
    std::sort(all.begin(), all.end());
    return all;
  };
  auto [train, test] = data::random_split(rows(), {3, 2}, 1);
  CHECK((train.size() == 3 && test.size() == 2 && together(train, test) == kRows));
  auto [most, rest] = data::random_split(rows(), {0.8, 0.2});
  CHECK((most.size() == 4 && rest.size() == 1 && together(most, rest) == kRows));
  const auto counted = data::random_split(rows(), std::vector<int64_t>{3, 2}, 1);
  CHECK((counted.size() == 2 && values(counted[0]) == values(train)));
  CHECK(data::random_split(rows(), std::vector<double>{0.2, 0.2, 0.6}).size() == 3);
}
