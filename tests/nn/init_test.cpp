#include <tapir/nn/init.h>
#include <tapir/nn/linear.h>
#include <tapir/ops/ops.h>

#include "../catch.h"

using namespace tapir;

TEST_CASE("review 11: initialisers take const handles, as in a loop over parameters") {
  nn::Linear fc(3, 2);
  for (const auto& [name, p] : fc.named_parameters()) nn::init::constant_(p, name == "bias" ? 2 : 3);
  CHECK((fc.weight.sum().item() == 18 && fc.bias.sum().item() == 4));
  CHECK(fc.weight.requires_grad());
}
