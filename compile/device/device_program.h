#pragma once
// Note [Programs on a device]
// A program replays on one device. What the host takes part in is settled before it gets there: numbers that the host wrote and copied to
// the device become constants that lie there, and random calls count from a position in the device's memory, so that every run queues
// the same work. A program that has memory of several devices, or copies between them, runs as it is.
#include <string>

#include "../program/program.h"

namespace tapir::inline v0::ir {

/// Where the calls run; the CPU where there are none.
Device device_of(const Program& program);
/// Copies of constants to a device become constants there.
void place_constants(Program& program);
/// Why a call cannot be replayed beside the others; empty: it can.
std::string foreign(const Call& call, const Program& program);
/// Random calls take the position `start` of the generator from a new Outside block of an int64, whose number is returned; -1 where there
/// are none.
int count_from_memory(Program& program, uint64_t start);

}  // namespace tapir::inline v0::ir
