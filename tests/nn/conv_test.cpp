#include <tapir/tapir.h>

#include "../catch.h"
using namespace tapir;

TEST_CASE("Conv2d pads by its padding_mode") {
  const Tensor x = arange(0, 12).to(kFloat32).view({1, 1, 3, 4});
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    nn::Conv2d conv(1, 2, {3, 2}, {.padding = {2, 1}, .padding_mode = mode});
    const Tensor want = conv2d(pad(x, {1, 1, 2, 2}, {.mode = mode}), conv.weight, conv.bias);
    CHECK(conv(x).to_vector<float>() == want.to_vector<float>());
    CHECK(conv.str().find(std::string(", padding=(2, 1), padding_mode=") + mode) != std::string::npos);
    nn::Conv2d same(1, 1, {3, 2}, {.padding = "same", .padding_mode = mode});  // of an odd total the end has more
    CHECK(same(x).to_vector<float>() ==
          conv2d(pad(x, {0, 1, 1, 1}, {.mode = mode}), same.weight, same.bias).to_vector<float>());
  }
  CHECK_THROWS_AS(nn::Conv2d(1, 1, 3, {.padding_mode = "mirror"}), ValueError);
}
