#pragma once
/// Everything of Tapir that a training program uses.
#include "autograd/engine.h"
#include "core/allocator.h"
#include "core/cuda.h"
#include "core/generator.h"
#include "core/modes.h"
#include "core/parallel.h"
#include "core/state_dict.h"
#include "core/tensor.h"
#include "ops/ops.h"
