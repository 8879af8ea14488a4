#include <tapir/train/early_stopping.h>

#include <cmath>

#include "../catch.h"

using namespace tapir;

TEST_CASE("EarlyStopping: patience, min_delta, both directions, state") {
  train::EarlyStopping loss({.patience = 2, .min_delta = 0.1});
  CHECK(!loss.step(1.0));
  CHECK(!loss.step(0.95));  // too little
  CHECK(!loss.step(0.5));
  CHECK(loss.best() == 0.5);
  CHECK(loss.best_epoch() == 2);
  CHECK(!loss.step(std::nan("")));
  train::EarlyStopping resumed({.patience = 2, .min_delta = 0.1});
  resumed.load_state_dict(loss.state_dict());
  CHECK(loss.step(0.6));
  CHECK(resumed.step(0.6));
  CHECK(resumed.best_epoch() == 2);
  train::EarlyStopping accuracy({.patience = 1, .higher_is_better = true});
  CHECK(!accuracy.step(0.1));
  CHECK(!accuracy.step(0.2));
  CHECK(accuracy.step(0.2));
  CHECK_THROWS_AS(train::EarlyStopping({.patience = 0}), ValueError);
  CHECK_THROWS_AS(train::EarlyStopping({.min_delta = -1}), ValueError);
  CHECK_THROWS_AS(resumed.load_state_dict({}), ValueError);
  CHECK(resumed.best() == 0.5);
}
