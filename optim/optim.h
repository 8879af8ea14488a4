#pragma once
/// Optimizers, schedules and gradient clipping.
#include "adam.h"
#include "clip.h"
#include "lr_scheduler.h"
#include "sgd.h"
