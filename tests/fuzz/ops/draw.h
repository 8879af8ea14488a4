#pragma once
#include "call.h"
#include "random.h"

namespace ops_fuzz {

/// A random call: half of them as the table has it but for layout and numbers, the others with anything in it.
Call draw(const Lines& lines, Random& random);

}  // namespace ops_fuzz
