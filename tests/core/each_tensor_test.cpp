#include <tapir/core/each_tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "../catch.h"
using namespace tapir;

namespace {
struct Two {
  Tensor a, b;
};
struct Step {
  int64_t number = 0;
  Two two;
  std::optional<Tensor> maybe;
  std::vector<Two> more;
  std::map<std::string, Tensor> named;
  std::array<Tensor, 1> rest;
  std::string text;
  bool last = false;
};
struct Listed {  // its braces do not tell how many fields it has
  Two two[2];
  auto tensors() { return std::tie(two[1], two[0].b); }
};
struct Needy {
  Tensor a;
  std::reference_wrapper<int> n;
};
struct Optional {
  Needy needy;
  Tensor b = {};
};
struct Derived : Two {
  Tensor c;
};
struct Nine {
  Tensor a, b, c, d, e, f, g, h, i;
};
using detail::count_fields;
static_assert(count_fields<Two>() == 2 && count_fields<Step>() == 8);
static_assert(count_fields<Tensor>() == 0 && count_fields<std::string>() == 0 && count_fields<Nine>() == 0);
static_assert(count_fields<Needy>() == 0 && count_fields<Optional>() == 0 && count_fields<Derived>() == 0);
static_assert(count_fields<Listed>() == 0);
static_assert(TensorFields<Tensor> && TensorFields<std::pair<Two, std::vector<Tensor>>> && !TensorFields<Step>);
static_assert(!TensorFields<std::pair<const Tensor, Tensor>> && !TensorFields<std::optional<Tensor>> &&
              !TensorFields<Nine>);

/// The numbers that the tensors of x hold.
template <class T> std::vector<double> numbers(T&& x) {
  std::vector<double> out;
  each_tensor(x, [&](const Tensor& t) { out.push_back(t.item()); });
  return out;
}
Tensor number(double x) { return tensor_from_host(&x, kFloat64, {}, {}); }
}  // namespace

TEST_CASE("the tensors of aggregates, tuples, ranges and optionals are visited in order") {
  Step step{1, {number(1), number(2)}, number(3), {{number(4), number(5)}}, {{"x", number(6)}}, {number(7)}, "text"};
  CHECK(numbers(step) == std::vector<double>{1, 2, 3, 4, 5, 6, 7});
  CHECK(numbers(std::as_const(step)) == std::vector<double>{1, 2, 3, 4, 5, 6, 7});
  step.maybe.reset();
  step.more.clear();
  CHECK(numbers(step) == std::vector<double>{1, 2, 6, 7});
  CHECK(numbers(std::pair(number(8), std::tuple(2, number(9), "text"))) == std::vector<double>{8, 9});
  CHECK(numbers(number(5)) == std::vector<double>{5});
}

TEST_CASE("tensors() lists what an aggregate holds that cannot be opened") {
  Listed listed{{{number(1), number(2)}, {number(3), number(4)}}};
  CHECK(numbers(listed) == std::vector<double>{3, 4, 2});
}

TEST_CASE("other values hold no tensors that are seen") {
  CHECK(numbers(Nine{}).empty());
  CHECK(numbers(std::vector<bool>{true}).empty());
  CHECK(numbers(std::filesystem::path("a/b")).empty());
  CHECK(numbers(std::make_unique<Tensor>(number(1))).empty());
}

TEST_CASE("a visitor that writes gets no const tensors") {
  std::pair<const Tensor, Tensor> x(number(1), number(2));
  each_tensor(x, [](Tensor& t) { t = number(5); });
  CHECK(numbers(x) == std::vector<double>{1, 5});
}
