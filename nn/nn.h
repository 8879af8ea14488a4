#pragma once
/// Every module.
#include "activation.h"
#include "container.h"
#include "conv.h"
#include "init.h"
#include "linear.h"
#include "loss.h"
#include "module.h"
#include "norm.h"
#include "pooling.h"
#include "sparse.h"
