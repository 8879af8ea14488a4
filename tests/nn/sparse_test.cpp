#include <tapir/tapir.h>

#include "../catch.h"
using namespace tapir;

TEST_CASE("Dropout in place overwrites its input with what Dropout gives") {
  nn::Dropout apart(0.3), inplace(0.3, {.inplace = true});
  CHECK(inplace.str() == "Dropout(p=0.3, inplace=True)");
  Tensor x = ones({40});
  manual_seed(3);
  const Tensor want = apart(x);
  manual_seed(3);
  CHECK(inplace(x).is_same(x));
  CHECK(x.to_vector<float>() == want.to_vector<float>());
  inplace.eval();
  CHECK(inplace(x).to_vector<float>() == want.to_vector<float>());
}
