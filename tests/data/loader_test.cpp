#include <tapir/data/loader.h>
#include <tapir/ops/create.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "../catch.h"
#include "../io/temporary.h"
#include "../same_bits.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Tensor number(int64_t v) { return tensor_from_host(&v, kInt64, {}, {}); }

/// Sample i is {i, a random number drawn in get}; live counts the instances that are not destroyed yet.
struct Numbers {
  struct Sample {
    Tensor index, random;
  };
  explicit Numbers(int64_t n) : n(n) { ++live; }
  Numbers(const Numbers& o)
      : n(o.n), throw_at(o.throw_at), kind(o.kind), slow_at(o.slow_at.load()), slow_ms(o.slow_ms),
        ragged_at(o.ragged_at) {
    ++live;
  }
  ~Numbers() { --live; }
  int64_t size() const { return n; }
  Sample get(int64_t i) const {
    if (i == throw_at && kind == 0) throw std::runtime_error("corrupt image");
    if (i == throw_at && kind == 1) throw 42;
    if (i == throw_at && kind == 2) fail(ErrorKind::Value, "[decode] expected a JPEG");
    if (i == throw_at && kind == 3) fail(ErrorKind::OutOfMemory, "[decode] no memory");
    if (i == slow_at) std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms));
    if (i == ragged_at) return {number(i), empty({3})};
    const auto [seed, offset] = default_generator().take(4);
    return {number(i), number(int64_t(Philox::block(seed, offset).word[0]))};
  }
  int64_t n, throw_at = -1;
  int kind = 0;
  std::atomic<int64_t> slow_at{-1};  // a worker left behind may read it later
  int slow_ms = 0;
  int64_t ragged_at = -1;
  static inline std::atomic<int> live{0};
};

/// Three samples, made by f.
template <class F> struct Three {
  int64_t size() const { return 3; }
  auto get(int64_t i) const { return f(i); }
  F f;
};

/// Every (index, random number) of one loop.
template <class Loader> std::vector<std::vector<int64_t>> collect(Loader& loader) {
  std::vector<std::vector<int64_t>> out;
  for (auto& [index, random] : loader) {
    auto row = index.template to_vector<int64_t>();
    for (const int64_t v : random.template to_vector<int64_t>()) row.push_back(v);
    out.push_back(std::move(row));
  }
  return out;
}
std::vector<int64_t> flat_indices(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> out;
  for (const auto& b : batches) out.insert(out.end(), b.begin(), b.begin() + int64_t(b.size() / 2));
  return out;
}

}  // namespace

TEST_CASE("loader: every sample once, in order, batches of the sample's type") {
  for (const int workers : {0, 1, 3}) {
    data::DataLoader loader(Numbers(10), {.batch_size = 4, .num_workers = workers});
    CHECK(loader.size() == 3);
    CHECK(loader.dataset().size() == 10);
    const auto batches = collect(loader);
    REQUIRE(batches.size() == 3);
    CHECK(batches[2].size() == 4);
    std::vector<int64_t> expected(10);
    for (int i = 0; i < 10; ++i) expected[size_t(i)] = i;
    CHECK(flat_indices(batches) == expected);
  }
  CHECK(Numbers::live == 0);
}

TEST_CASE("BI-225 loader options") {
  const auto refused = [](const data::LoaderOptions& options) {
    return message_of<ValueError>([&] { data::DataLoader loader(Numbers(4), options); });
  };
  CHECK(mentions(refused({.batch_size = 0}), {"[DataLoader]", "batch_size", "0"}));
  CHECK(mentions(refused({.batch_size = -3}), {"batch_size", "-3"}));
  CHECK(mentions(refused({.num_workers = -1}), {"num_workers", "-1"}));
  CHECK(mentions(refused({.prefetch = 0}), {"prefetch", "0"}));
  CHECK(mentions(refused({.timeout = -1}), {"timeout"}));
  CHECK(mentions(refused({.shuffle = true, .sampler = data::SequentialSampler(3)}), {"sampler"}));
}

TEST_CASE("BI-226 empty sets and sets smaller than a batch") {
  for (const int workers : {0, 2}) {
    data::DataLoader none(Numbers(0), {.batch_size = 4, .num_workers = workers});
    CHECK(none.size() == 0);
    CHECK(collect(none).empty());
    data::DataLoader one_short(Numbers(3), {.batch_size = 10, .num_workers = workers});
    CHECK(one_short.size() == 1);
    CHECK(collect(one_short).size() == 1);
    data::DataLoader dropped(Numbers(3), {.batch_size = 10, .num_workers = workers, .drop_last = true});
    CHECK(dropped.size() == 0);
    CHECK(collect(dropped).empty());
    data::DataLoader tail(Numbers(11), {.batch_size = 4, .num_workers = workers, .drop_last = true});
    CHECK(collect(tail).size() == 2);
  }
}

TEST_CASE("BI-227 BI-228 an exception in get() names the sample, and the next epoch works") {
  for (const int workers : {0, 2})
    for (const int kind : {0, 1, 2, 3}) {
      data::DataLoader loader(Numbers(20), {.batch_size = 4, .num_workers = workers});
      loader.dataset().kind = kind;
      loader.dataset().throw_at = 9;
      std::vector<int64_t> seen;
      const auto message = message_of<RuntimeError>([&] {
        for (auto& b : loader) seen.push_back(b.index.size(0));
      });
      CHECK(seen.size() == 2);
      const char* texts[] = {"corrupt image", "not a std::exception", "expected a JPEG", "no memory"};
      CHECK(mentions(message, {"[DataLoader]", "sample 9 of 20", workers ? "worker" : "calling thread", texts[kind]}));
      if (kind == 3) CHECK_THROWS_AS(collect(loader), OutOfMemoryError);
      loader.dataset().throw_at = -1;
      CHECK(collect(loader).size() == 5);
    }
}

TEST_CASE("BI-229 samples of different shapes name both; a collate function may accept them") {
  for (const int workers : {0, 2}) {
    Numbers ragged(8);
    ragged.ragged_at = 6;
    data::DataLoader loader(ragged, {.batch_size = 4, .num_workers = workers});
    CHECK(mentions(message_of<ValueError>([&] { collect(loader); }),
                   {"sample 4", "sample 6", "int64 ()", "float32 (3,)"}));
    data::DataLoader lists(ragged, {.batch_size = 4, .num_workers = workers},
                           [](std::vector<Numbers::Sample> samples) { return samples; });
    size_t count = 0;
    for (auto& batch : lists) count += batch.size();
    CHECK(count == 8);
  }
}

TEST_CASE("an exception in a collate function") {
  data::DataLoader loader(Numbers(8), {.batch_size = 4, .num_workers = 1},
                          [](std::vector<Numbers::Sample>) -> int { throw std::runtime_error("odd"); });
  CHECK(mentions(message_of<RuntimeError>([&] { loader.begin(); }), {"0, 1, 2, 3", "odd"}));
}

TEST_CASE("BI-230 a get() that hangs: the timeout names it, leaving does not wait for it") {
  {
    data::DataLoader loader(Numbers(8), {.batch_size = 2, .num_workers = 2, .timeout = 0.2});
    loader.dataset().slow_at = 5;
    loader.dataset().slow_ms = 1500;
    const auto start = Clock::now();
    CHECK(mentions(message_of<RuntimeError>([&] { collect(loader); }), {"batch 2", "0.2", "worker", "sample 5"}));
    CHECK(since(start) < 1.3);
    loader.dataset().slow_at = -1;
    CHECK(collect(loader).size() == 4);
  }
  for (int i = 0; i < 300 && Numbers::live > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(Numbers::live == 0);  // the worker that was left behind has let go of the data
}

TEST_CASE("BI-231 leaving early joins the workers; a loader may move in mid-epoch") {
  for (int round = 0; round < 30; ++round) {
    data::DataLoader loader(Numbers(1000), {.batch_size = 2, .num_workers = 3, .prefetch = 4});
    int count = 0;
    const auto start = Clock::now();
    for (auto& batch : loader)
      if (batch.index.numel() == 2 && ++count == round % 7) break;
    CHECK(since(start) < 1);
  }
  CHECK(Numbers::live == 0);
  auto loader =
      std::make_unique<data::DataLoader<Numbers>>(Numbers(100), data::LoaderOptions{.batch_size = 1, .num_workers = 2});
  auto it = loader->begin();
  auto moved = std::move(*loader);
  ++it;
  CHECK(it->index.item<int>() == 1);
  CHECK(moved.size() == 100);
}

TEST_CASE("BI-232 two iterators are independent; one outlives its loader") {
  auto loader =
      std::make_unique<data::DataLoader<Numbers>>(Numbers(6), data::LoaderOptions{.batch_size = 1, .num_workers = 2});
  auto a = loader->begin();
  auto b = loader->begin();
  ++b;
  CHECK(a->index.item<int>() == 0);
  CHECK(b->index.item<int>() == 1);
  loader.reset();
  int count = 0;
  for (; !(a == data::LoaderEnd()); ++a) ++count;
  CHECK(count == 6);
  ++a;  // at the end it stays there
  CHECK(a == data::LoaderEnd());
  for (; !(b == data::LoaderEnd()); ++b) {}
}

TEST_CASE("a forked child cannot go on with a loop that has workers, and begins one of its own") {
  for (const bool persistent : {false, true}) {
    data::DataLoader loader(Numbers(40), {.batch_size = 2, .num_workers = 2, .persistent_workers = persistent});
    auto it = loader.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // no worker is at an allocator when it forks
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // where it hangs
      bool good = mentions(message_of<RuntimeError>([&] {
                             for (; !(it == data::LoaderEnd()); ++it) {}
                           }),
                           {"[DataLoader]", "child"});
      { const auto gone = std::move(it); }
#ifndef __SANITIZE_THREAD__  // which ends a child that starts threads
      good &= collect(loader).size() == 20;
#endif
      _exit(good ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    int count = 0;
    for (; !(it == data::LoaderEnd()); ++it) ++count;
    CHECK(count == 20);
  }
}

TEST_CASE("BI-233 BI-234 sizes and samplers that lie") {
  struct Liar {
    int64_t size() const { return claimed; }
    Tensor get(int64_t i) const {
      if (i >= 3) throw std::out_of_range("vector::at");
      return number(i);
    }
    int64_t claimed;
  };
  data::DataLoader loader(Liar{5}, {.batch_size = 2, .num_workers = 1});
  const auto run = [&] {
    for (auto& batch : loader) batch.numel();
  };
  CHECK(mentions(message_of<RuntimeError>(run), {"sample 3 of 5", "vector::at"}));
  loader.dataset().claimed = 3;
  run();
  loader.dataset().claimed = -1;
  CHECK(mentions(message_of<RuntimeError>(run), {"size", "-1"}));

  struct Odd final : data::Sampler {
    explicit Odd(std::vector<int64_t> list) : list(std::move(list)) {}
    int64_t size() const override { return 4; }
    std::vector<int64_t> indices(int64_t) const override { return list; }
    std::vector<int64_t> list;
  };
  const auto order = [](std::vector<int64_t> list) {
    data::DataLoader l(Numbers(4), {.batch_size = 2, .sampler = Odd(std::move(list))});
    return flat_indices(collect(l));
  };
  CHECK(mentions(message_of<ValueError>([&] { order({0, 4}); }), {"[0, 4)", "4 at position 1"}));
  CHECK(mentions(message_of<ValueError>([&] { order({-1}); }), {"-1 at position 0"}));
  CHECK(order({2, 2, 1, 2}) == std::vector<int64_t>{2, 2, 1, 2});
  CHECK(order({3}) == std::vector<int64_t>{3});
  CHECK(order({}).empty());
}

TEST_CASE("BI-237 the same data for any number of workers, other data in the next epoch") {
  std::vector<std::vector<std::vector<int64_t>>> first, second;
  for (const int workers : {0, 1, 2, 5}) {
    default_generator().set_state(uint64_t(workers) + 77, 5);
    data::DataLoader loader(
        Numbers(23), {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 9, .prefetch = workers + 1});
    first.push_back(collect(loader));
    second.push_back(collect(loader));
    CHECK(default_generator().seed() == uint64_t(workers) + 77);  // the caller's numbers are left alone
    CHECK(default_generator().offset() == 5);
  }
  for (size_t i = 1; i < first.size(); ++i) {
    CHECK(first[i] == first[0]);
    CHECK(second[i] == second[0]);
  }
  CHECK(first[0] != second[0]);
  auto indices = flat_indices(first[0]);
  CHECK(std::set<int64_t>(indices.begin(), indices.end()).size() == 23);
  data::DataLoader other(Numbers(23), {.batch_size = 4, .shuffle = true, .seed = 10});
  CHECK(collect(other) != first[0]);
}

TEST_CASE("BI-239 resuming in mid-epoch, with another number of workers") {
  const auto options = [](int workers) {
    return data::LoaderOptions{.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 4};
  };
  data::DataLoader whole(Numbers(20), options(2));
  std::vector<std::vector<std::vector<int64_t>>> epochs;
  for (int e = 0; e < 3; ++e) epochs.push_back(collect(whole));
  for (const int stop : {0, 1, 4, 7})
    for (const int workers : {0, 3}) {
      data::DataLoader first(Numbers(20), options(1));
      collect(first);
      StateDict state = first.state_dict();
      int count = 0;
      if (stop)
        for (auto& batch : first)
          if (batch.index.defined() && ++count == stop) {
            state = first.state_dict();
            break;
          }
      auto second_options = options(workers);
      second_options.seed = 1234;  // the state knows better
      data::DataLoader second(Numbers(20), second_options);
      second.load_state_dict(state);
      CHECK(second.epoch() == 1);
      CHECK(collect(second) == std::vector(epochs[1].begin() + stop, epochs[1].end()));
      CHECK(collect(second) == epochs[2]);
    }
  data::DataLoader left(Numbers(20), options(0));
  for (auto& batch : left)
    if (batch.index.defined()) break;
  CHECK(collect(left) == epochs[1]);  // an epoch left early is over
  left.set_epoch(0);
  CHECK(collect(left) == epochs[0]);
  CHECK_THROWS_AS(left.load_state_dict({}), ValueError);
  CHECK_THROWS_AS(left.load_state_dict({{"epoch", number(0)}, {"samples", number(-1)}, {"seed", number(0)}}),
                  ValueError);
  left.load_state_dict({{"epoch", number(0)}, {"samples", number(21)}, {"seed", number(0)}});
  CHECK_THROWS_AS(left.begin(), ValueError);
}

TEST_CASE("workers record nothing, compute alone, and leave the caller's modes") {
  struct Look {
    int64_t size() const { return 4; }
    Tensor get(int64_t) const { return number(grad_enabled() * 100 + modes.threads); }
  };
  data::DataLoader loader(Look(), {.batch_size = 4, .num_workers = 1});
  CHECK(loader.begin()->to_vector<int64_t>() == std::vector<int64_t>{1, 1, 1, 1});
  data::DataLoader inline_loader(Look(), {.batch_size = 4});
  CHECK(inline_loader.begin()->to_vector<int64_t>()[0] < 100);
  CHECK(grad_enabled());
}

TEST_CASE("samples of every kind: tensor, pair, tuple, array, vector, aggregate") {
  const auto batch_of = [](auto f) {
    data::DataLoader loader(Three<decltype(f)>{f}, {.batch_size = 3, .device = kCPU});
    return *loader.begin();
  };
  CHECK(batch_of([](int64_t i) { return number(i); }).shape() == Shape{3});
  CHECK(batch_of([](int64_t i) { return std::pair(number(i), number(-i)); }).second.template to_vector<int64_t>()[2] ==
        -2);
  CHECK(std::get<2>(batch_of([](int64_t i) {
          return std::tuple(number(i), number(i), empty({2, 0}));
        })).shape() == Shape{3, 2, 0});
  CHECK(batch_of([](int64_t i) {
          return std::array{number(i), number(i + 1)};
        })[1]
            .template to_vector<int64_t>()[0] == 1);
  CHECK(batch_of([](int64_t i) { return std::vector{number(i), number(i)}; }).size() == 2);
  CHECK_THROWS_AS(batch_of([](int64_t i) { return std::vector<Tensor>(size_t(i), number(i)); }), ValueError);
  CHECK_THROWS_AS(batch_of([](int64_t) { return Tensor(); }), ValueError);
  const auto nested = batch_of([](int64_t i) { return std::pair(number(i), std::pair(number(i), number(7))); });
  CHECK(nested.second.second.template to_vector<int64_t>() == std::vector<int64_t>{7, 7, 7});
}

TEST_CASE("a TensorDataset's batches are gathered, views and all") {
  std::vector<float> values(60);
  for (size_t i = 0; i < 60; ++i) values[i] = float(i);
  const Tensor x = tensor(std::span<const float>(values), {6, 10}), y = tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  for (const int workers : {0, 2}) {
    data::DataLoader loader(data::TensorDataset(x, y),
                            {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 3});
    int64_t seen = 0;
    for (auto& [rows, labels] : loader) {
      CHECK(rows.size(1) == 10);
      for (int64_t i = 0; i < rows.size(0); ++i)
        CHECK(rows.select(0, i).select(0, 3).item<int64_t>() == labels.select(0, i).item<int64_t>() * 10 + 3);
      seen += rows.size(0);
    }
    CHECK(seen == 6);
  }
}

TEST_CASE("loader: without a seed the order follows manual_seed, and a state carries it") {
  const auto order = [](data::DataLoader<Numbers>& loader) { return collect(loader); };
  const data::LoaderOptions options{.batch_size = 4, .shuffle = true};
  std::vector<std::vector<std::vector<int64_t>>> runs;
  for (const int64_t seed : {5, 5, 6}) {
    data::DataLoader loader(Numbers(32), options);
    manual_seed(uint64_t(seed));  // after the loader was made, as in PyTorch
    runs.push_back(order(loader));
    runs.push_back(order(loader));
  }
  CHECK((runs[0] == runs[2] && runs[1] == runs[3]));
  CHECK((runs[0] != runs[4] && runs[0] != runs[1]));
  CHECK(flat_indices(runs[0]) != flat_indices(runs[4]));

  manual_seed(5);
  data::DataLoader one(Numbers(32), options), two(Numbers(32), options);
  CHECK(order(one) == runs[0]);
  CHECK(order(two) != runs[0]);  // its draw comes after
  const StateDict state = one.state_dict();
  manual_seed(99);
  data::DataLoader resumed(Numbers(32), options);
  resumed.load_state_dict(state);
  const auto [seed, offset] = default_generator().take(0);
  CHECK(order(resumed) == runs[1]);
  CHECK((default_generator().seed() == seed && default_generator().offset() == offset));  // nothing was drawn
  data::DataLoader early(Numbers(32), options);
  const StateDict before = early.state_dict();  // before the first loop
  const auto first = order(early);
  resumed.load_state_dict(before);
  CHECK(order(resumed) == first);
}

namespace {

/// Shard s has 5 s + 3 samples: {number, a random number drawn in next}; one that is `slow` takes a while.
struct Files {
  struct Sample {
    Tensor index, random;
  };
  struct Stream {
    int64_t shard, epoch, slow = -1, at = 0;
    std::optional<Sample> next() {
      if (at == 5 * shard + 3) return {};
      if (shard * 100 + at == slow) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      const auto [seed, offset] = default_generator().take(4);
      return Sample{number(epoch * 10000 + shard * 100 + at++), number(int64_t(Philox::block(seed, offset).word[0]))};
    }
  };
  int64_t shards() const { return count; }
  Stream stream(int64_t shard, int64_t epoch) const {
    ++opened;
    return {shard, epoch, slow};
  }
  int64_t count = 3, slow = -1;
  static inline std::atomic<int> opened{0};
};
/// One sequence, with a way to go on in the middle.
struct Counting {
  struct Stream {
    int64_t at = 0;
    bool* skipped;
    std::optional<Tensor> next() { return at < 10 ? std::optional(number(at++)) : std::nullopt; }
    void skip(int64_t n) { at += n, *skipped = true; }
  };
  Stream stream(int64_t, int64_t) const { return {0, skipped}; }
  bool* skipped;
};

}  // namespace

TEST_CASE("loader: an iterable dataset comes in the same order for any number of workers") {
  std::vector<std::vector<int64_t>> expected;
  for (const int workers : {0, 1, 2, 4}) {
    data::DataLoader loader(Files(), {.batch_size = 4, .num_workers = workers, .seed = 7});
    const auto batches = collect(loader);
    if (workers == 0) expected = batches;
    CHECK(batches == expected);
    CHECK(loader.stats().samples == 3 + 8 + 13);
    const auto next = collect(loader);
    CHECK(next.size() == batches.size());
    CHECK(next[0][0] == 10000);
  }
  // shard 0: 3; 1: 4 + 4; 2: 4 + 4 + 4 + 1, in turns
  std::vector<int64_t> firsts;
  for (const auto& b : expected) firsts.push_back(b[0]);
  CHECK(firsts == std::vector<int64_t>{0, 100, 200, 104, 204, 208, 212});
  data::DataLoader whole(Files(), {.batch_size = 4, .num_workers = 2, .drop_last = true});
  CHECK(collect(whole).size() == 5);
}

TEST_CASE("loader: an iterable dataset resumes in mid-epoch") {
  data::DataLoader uninterrupted(Files(), {.batch_size = 4, .num_workers = 2, .seed = 7});
  const auto expected = collect(uninterrupted);
  for (int stop = 1; stop <= int(expected.size()); ++stop) {
    data::DataLoader first(Files(), {.batch_size = 4, .num_workers = 2, .seed = 7});
    StateDict state;
    int seen = 0;
    for (auto& batch : first) {
      (void)batch;
      if (++seen < stop) continue;
      state = first.state_dict();
      break;
    }
    data::DataLoader second(Files(), {.batch_size = 4, .num_workers = stop % 3, .seed = 1});
    second.load_state_dict(state);
    const auto rest = collect(second);
    CHECK(rest == std::vector(expected.begin() + stop, expected.end()));
    data::DataLoader other(Files(), {.batch_size = 3});
    CHECK_THROWS_AS(other.load_state_dict(state), ValueError);
  }
  bool skipped = false;
  data::DataLoader counting(Counting{&skipped}, {.batch_size = 3});
  auto it = counting.begin();
  const StateDict state = (++it, counting.state_dict());
  data::DataLoader resumed(Counting{&skipped}, {.batch_size = 3});
  resumed.load_state_dict(state);
  CHECK(resumed.begin()->to_vector<int64_t>() == std::vector<int64_t>{6, 7, 8});
  CHECK(skipped);
}

TEST_CASE("loader: what an iterable dataset cannot do is said") {
  data::DataLoader loader(Files(), {.batch_size = 4});
  CHECK_THROWS_AS(loader.size(), ValueError);
  data::DataLoader shuffled(Files(), {.shuffle = true});
  CHECK_THROWS_AS(shuffled.begin(), ValueError);
  data::DataLoader sampled(Files(), {.sampler = data::SequentialSampler(3)});
  CHECK_THROWS_AS(sampled.begin(), ValueError);
  data::DataLoader none(Files{.count = -1}, {});
  CHECK_THROWS_AS(none.begin(), ValueError);
  data::DataLoader slow(Files{.slow = 205}, {.batch_size = 4, .num_workers = 2, .timeout = 0.1});
  CHECK(mentions(message_of<RuntimeError>([&] { collect(slow); }), {"[DataLoader]", "0.1 s", "sample 5 of shard 2"}));
}

TEST_CASE("loader: ragged samples are filled up") {
  const auto get = [](int64_t i) { return std::pair{arange(1 + i), full({2, i}, 1.0)}; };
  for (const int workers : {0, 2}) {
    data::DataLoader loader(Three<decltype(get)>{get}, {.batch_size = 3, .num_workers = workers}, data::PadCollate{-1});
    auto it = loader.begin();
    CHECK(it->first.to_vector<int64_t>() == std::vector<int64_t>{0, -1, -1, 0, 1, -1, 0, 1, 2});
    CHECK(it->second.shape() == Shape{3, 2, 2});
    CHECK(it->second.select(0, 1).to_vector<float>() == std::vector<float>{1, -1, 1, -1});
  }
  const auto ranks = [](int64_t i) { return i ? arange(3) : ones({1, 3}, {.dtype = kInt64}); };
  data::DataLoader other(Three<decltype(ranks)>{ranks}, {.batch_size = 3}, data::PadCollate{});
  CHECK(mentions(message_of<ValueError>([&] { other.begin(); }), {"rank", "sample 1"}));
}

TEST_CASE("loader: persistent workers serve every epoch, and those that stay behind are replaced") {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  const auto get = [&](int64_t i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return number(i);
  };
  {
    data::DataLoader loader(Three<decltype(get)>{get}, {.num_workers = 2, .persistent_workers = true});
    for (int epoch = 0; epoch < 4; ++epoch)
      for (auto& batch : loader) {
        CHECK(batch.numel() == 1);
        if (epoch == 2) break;
      }
    CHECK(threads.size() <= 2);
  }
  Numbers hangs(8);
  hangs.slow_at = 2, hangs.slow_ms = 1500;
  data::DataLoader loader(hangs, {.num_workers = 1, .timeout = 0.05, .persistent_workers = true});
  CHECK_THROWS_AS(collect(loader), RuntimeError);
  loader.dataset().slow_at = -1;
  CHECK(collect(loader).size() == 8);
}

TEST_CASE("loader: order and data are those of no workers, for 0, 1, 2 and 4 of them, after a kill in mid-epoch too") {
  const auto options = [](int64_t workers) {
    return data::LoaderOptions{.batch_size = 5, .shuffle = true, .num_workers = workers, .seed = 3};
  };
  data::DataLoader plain(Numbers(33), options(0));
  const auto expected = collect(plain);
  for (const int workers : {1, 2, 4}) {
    data::DataLoader loader(Numbers(33), options(workers));
    CHECK(collect(loader) == expected);
    auto killed = std::make_unique<data::DataLoader<Numbers>>(Numbers(33), options(workers));
    auto it = std::make_unique<decltype(killed->begin())>(killed->begin());
    ++*it, ++*it;
    const StateDict state = killed->state_dict();
    it.reset(), killed.reset();
    data::DataLoader resumed(Numbers(33), options(4 - workers));
    resumed.load_state_dict(state);
    CHECK(collect(resumed) == std::vector(expected.begin() + 3, expected.end()));
  }
}

struct Labelled {
  Tensor image;
  int64_t label;
  float weight;
};

TEST_CASE("review 12: numbers of a sample become tensors, as in default_collate") {
  const auto batch_of = [](auto f) {
    data::DataLoader loader(Three<decltype(f)>{f}, {.batch_size = 3, .num_workers = 1});
    return *loader.begin();
  };
  const auto [image, label] = batch_of([](int64_t i) { return std::pair(full({2}, double(i)), i); });
  static_assert(std::is_same_v<decltype(label), const Tensor>);
  CHECK((image.shape() == Shape{3, 2} && label.dtype() == kInt64));
  CHECK(label.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2});

  const auto all = batch_of([](int64_t i) {
    return std::tuple(i * 0.5, float(i), int(i), uint8_t(i), i > 1, std::array<int, 2>{int(i), 7},
                      std::pair(std::tuple(i), number(i)));
  });
  const auto check_column = [](const Tensor& x, DType dtype, std::vector<double> expected) {
    CHECK((x.dtype() == dtype && x.shape() == Shape{3} && x.to_vector<double>() == expected));
  };
  check_column(std::get<0>(all), kFloat64, {0, 0.5, 1});
  check_column(std::get<1>(all), kFloat32, {0, 1, 2});
  check_column(std::get<2>(all), kInt64, {0, 1, 2});
  check_column(std::get<3>(all), kInt64, {0, 1, 2});
  check_column(std::get<4>(all), kBool, {0, 0, 1});
  check_column(std::get<5>(all)[0], kInt64, {0, 1, 2});
  check_column(std::get<5>(all)[1], kInt64, {7, 7, 7});
  check_column(std::get<0>(std::get<6>(all).first), kInt64, {0, 1, 2});
  check_column(std::get<6>(all).second, kInt64, {0, 1, 2});

  const auto [x, y, w] = batch_of([](int64_t i) { return Labelled{ones({2}), i, 0.5f}; });  // an aggregate: a tuple
  CHECK(x.shape() == Shape{3, 2});
  check_column(y, kInt64, {0, 1, 2});
  check_column(w, kFloat32, {0.5, 0.5, 0.5});
  check_column(batch_of([](int64_t i) { return i; }), kInt64, {0, 1, 2});
  const auto [labelled, n] = batch_of([](int64_t i) { return std::pair(Labelled{ones({2}), i, 0.5f}, i); });
  check_column(std::get<1>(labelled), kInt64, {0, 1, 2});
  struct Nested {
    std::array<Tensor, 2> both;
    Numbers::Sample sample;
  };
  const Nested nested = batch_of([](int64_t i) {  // stays what it is
    return Nested{{number(i), number(2 * i)}, {number(3 * i), number(4 * i)}};
  });
  check_column(nested.both[1], kInt64, {0, 2, 4});
  check_column(nested.sample.random, kInt64, {0, 4, 8});
  CHECK_THROWS_AS(batch_of([](int64_t) { return ~uint64_t(0); }), ValueError);
}

TEST_CASE("review 12: numbers beside ragged samples, subsets and a collate function of one's own") {
  struct Words {
    int64_t size() const { return 4; }
    std::pair<Tensor, int64_t> get(int64_t i) const { return {ones({i + 1}), i}; }
  };
  data::DataLoader padded(Words(), {.batch_size = 4}, data::PadCollate{});
  for (auto& [x, y] : padded) CHECK((x.shape() == Shape{4, 4} && y.to_vector<int64_t>()[3] == 3));
  data::DataLoader part(data::subset(Words(), {2}), {});
  for (auto& [x, y] : part) CHECK((x.shape() == Shape{1, 3} && y.item() == 2));
  const auto count = [](std::vector<std::pair<Tensor, int64_t>> samples) { return samples.back().second; };
  data::DataLoader own(Words(), {.batch_size = 4}, count);
  for (const int64_t last : own) CHECK(last == 3);
}

TEST_CASE("workers compute in the reader's deterministic mode: batches do not depend on their number") {
  struct Products {
    Tensor x = randn({2, 64, 20000}), w = randn({20000, 48});
    int64_t size() const { return 2; }
    Tensor get(int64_t i) const { return matmul(x.select(0, i), w); }
  };
  const ScopedMode<bool> mode(modes.deterministic, true);
  manual_seed(1);
  const Products set;
  std::vector<Tensor> batches;
  for (const int64_t workers : {0, 1, 2})
    for (const Tensor& batch : data::DataLoader(set, {.batch_size = 2, .num_workers = workers}))
      batches.push_back(batch);
  REQUIRE(batches.size() == 3);
  CHECK(same_bits(batches[0], batches[1]));
  CHECK(same_bits(batches[0], batches[2]));
}

TEST_CASE("loader: an iterable dataset without shards is refused") {
  for (const int64_t count : {0, -1}) {
    data::DataLoader loader(Files{count}, {.batch_size = 4});
    CHECK_THROWS_WITH(collect(loader), Catch::StartsWith("[DataLoader] expected a number of shards above 0, got " +
                                                         std::to_string(count)));
    CHECK_THROWS_AS(loader.size(), ValueError);
  }
}
