#pragma once
#include <functional>

#include "call.h"

namespace ops_fuzz {

/// A simpler call that is still `bad`, by steps: constants and inputs as the table has them, contiguous, small, of one dtype.
Call shrink(const Call& call, const std::function<bool(const Call&)>& bad, int tries);

}  // namespace ops_fuzz
