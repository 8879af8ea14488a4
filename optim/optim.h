#pragma once
/// Optimizers, schedules and gradient clipping.
#include "adagrad.h"
#include "adam.h"
#include "clip.h"
#include "compound_scheduler.h"
#include "cycle_scheduler.h"
#include "lbfgs.h"
#include "lr_scheduler.h"
#include "matrix.h"
#include "sgd.h"
#include "sign.h"
