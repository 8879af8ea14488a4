#include <tapir/core/state_dict.h>
#include <tapir/ops/create.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
using tapir_tests::message_of;

TEST_CASE("review 12: StateDict by name, and names that are near") {
  StateDict state{{"fc.weight", zeros({2})}, {"fc.bias", ones({3})}, {"conv.weight", ones({1})}};
  const StateDict& fixed = state;
  CHECK(fixed["fc.bias"].is_same(state.at("fc.bias")));
  state["fc.weight"] = ones({2});
  CHECK(fixed["fc.weight"].sum().item() == 2);
  CHECK(StateDict(state)["fc.bias"].numel() == 3);
  const auto text = [&](const char* name) { return message_of<ValueError>([&] { fixed[name]; }); };
  CHECK(contains(text("fc.weigth"), "named \"fc.weigth\", found none among 3; near it: \"fc.weight\""));
  CHECK(contains(text("model.fc.bias"), "near it: \"fc.bias\""));  // a prefix too much
  CHECK(contains(text("weight"), "near it: \"fc.weight\", \"conv.weight\""));
  CHECK(!contains(text("running_mean"), "near"));
  CHECK_THROWS_AS(state["new"] = ones({1}), ValueError);  // set() adds
  CHECK(state.size() == 3);
  CHECK(contains(message_of<ValueError>([] { StateDict().at("x"); }), "found none among 0"));
}

TEST_CASE("review 12: StateDict in a loop with structured bindings, const and not") {
  StateDict state{{"a", zeros({2})}, {"b", zeros({3})}};
  for (auto& [name, x] : state) x = full({4}, name == "a" ? 1.0 : 2.0);
  const StateDict& fixed = state;
  for (auto& [name, x] : fixed) x.add_(1);  // the handles are const, the memory is not
  for (const auto& [name, x] : state) x.mul_(10);
  CHECK(state["a"].to_vector<float>() == std::vector<float>(4, 20));
  CHECK(state["b"].to_vector<float>() == std::vector<float>(4, 30));
}
