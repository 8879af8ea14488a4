#include <tapir/tapir.h>

#include "core/tensor.h"

int main() {
  tapir::nn::Linear fc(3, 1);
  tapir::optim::SGD opt(fc.parameters(), {.lr = 0.1});
  tapir::mse_loss(fc(tapir::ones({4, 3})), tapir::zeros({4, 1})).backward();
  opt.step();
  const bool bad_shape_is_caught = [&] {
    try {
      fc(tapir::ones({4, 5}));
      return false;
    } catch (const tapir::ValueError&) {  // a type that must be one and the same across a shared library's border
      return true;
    }
  }();
  return bad_shape_is_caught && my_answer == 42 ? 0 : 1;
}
