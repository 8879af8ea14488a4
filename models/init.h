#pragma once
#include "../nn/conv.h"
#include "../nn/init.h"
#include "../nn/linear.h"

namespace tapir::inline v0::models {

/// torchvision's: normal convolutions by fan out (He et al. 2015), biases 0; linear layers normal with this deviation, none: as they are.
inline void init_convolutions(nn::Module& model, double linear_std = 0) {
  model.apply([&](nn::Module& m) {
    if (auto* conv = dynamic_cast<nn::Conv2d*>(&m)) {
      nn::init::kaiming_normal_(conv->weight,
                                {.mode = nn::init::FanMode::FanOut, .nonlinearity = nn::init::Nonlinearity::Relu});
      if (conv->bias.defined()) nn::init::zeros_(conv->bias);
    } else if (auto* linear = dynamic_cast<nn::Linear*>(&m); linear && linear_std > 0) {
      nn::init::normal_(linear->weight, 0, linear_std), nn::init::zeros_(linear->bias);
    }
  });
}

}  // namespace tapir::inline v0::models
