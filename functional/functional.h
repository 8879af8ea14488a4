#pragma once
// What is made of operations and the tape.
#include "checkpoint.h"
#include "distributions.h"
#include "gradcheck.h"
#include "graph.h"
#include "transforms.h"
