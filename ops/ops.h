#pragma once
/// Every operation.
#include "arithmetic.h"
#include "cast.h"
#include "conv.h"
#include "create.h"
#include "dropout.h"
#include "embedding.h"
#include "indexing.h"
#include "matmul.h"
#include "pool.h"
#include "reduce.h"
#include "shape.h"
#include "slicing.h"
