#pragma once
#include "../io/value.h"
#include "../optim/optimizer.h"

namespace tapir::inline v0::train {

/// What torch.optim's load_state_dict takes, for io::save_pt: {"state": {0: ...}, "param_groups": [...]}. The way back is
/// optimizer.load_state_dict(io::to_state_dict(value)).
io::Value pytorch_state(const optim::Optimizer& optimizer);

}  // namespace tapir::inline v0::train
