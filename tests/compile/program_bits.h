#pragma once
// Programs before and after a pass.
#include <cstring>

#include <tapir/compile/record/record.h>

#include "../catch.h"
#include "../same_bits.h"

namespace tapir_tests {

/// Interprets both twice from the same state: outputs and outside memory must be equal bit by bit.
inline void check_same_bits(const tapir::ir::Program& program, const tapir::ir::Program& changed) {
  namespace ir = tapir::ir;
  ir::Memory before = ir::copy_of_outside(program), after = ir::copy_of_outside(program);
  after.resize(changed.blocks.size());
  for (int step = 0; step < 2; ++step) {
    const auto expected = interpret(program, before), got = interpret(changed, after);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(expected[i], got[i]));
  }
  for (size_t i = 0; i < program.blocks.size(); ++i)
    if (program.blocks[i].kind == ir::Block::Kind::Outside)
      CHECK(std::memcmp(before[i]->data, after[i]->data, size_t(before[i]->bytes)) == 0);
}

}  // namespace tapir_tests
