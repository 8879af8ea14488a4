// The table that passes ask about a program's values, and the changes that keep it right.
#include <tapir/compile/program/uses.h>

#include "random_calls.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("writes make values, updates and partial writes take the one before") {
  Tensor weight = randn({4, 3});
  const Tensor x = randn({4, 3});
  ir::Recording recording(std::array{x});
  NoGrad off;
  Tensor y = x * 2;                         // 0: all of y
  y.add_(weight);                           // 1: reads it and writes all of it
  y.select(1, 0).fill_(7);                  // 2: a column
  const Tensor other = y.select(1, 1) * 3;  // 3: another column
  const Tensor z = y + weight;              // 4
  weight.mul_(2);                           // 5
  y = {};
  const Program p = recording.finish(std::array{z, other});
  REQUIRE(p.calls.size() == 6);
  const ir::Uses uses(p);
  const int of_y = p.calls[0].result().block, of_z = p.calls[4].result().block, of_weight = p.calls[5].result().block;

  const ir::Value first = uses.made_by(0, of_y), second = uses.read_by(2, of_y), third = uses.read_by(4, of_y);
  CHECK((first.whole && first.only_read_by(1)));
  CHECK((second.maker == 1 && !second.whole && second.only_read_by(2)));
  CHECK((third.maker == 2 && !third.whole && third.readers == std::vector{3, 4}));
  CHECK((uses.made_by(4, of_z).seen && uses.only_maker(of_z) == 4 && uses.only_maker(of_y) == -1));
  CHECK((uses.read_by(5, of_weight).maker == -1 && uses.made_by(5, of_weight).seen));
  CHECK((uses.own(of_y) && !uses.own(of_z) && !uses.own(of_weight) && uses.is_fixed(p.inputs[0].block)));
  CHECK((uses.next(of_y, 1) == 2 && uses.next(of_y, 4) == -1));

  CHECK(uses.overwritten(p.calls[4].operands[1].views[0], 1, 3));   // y, by its column
  CHECK(!uses.overwritten(p.calls[3].operands[1].views[0], 1, 3));  // the other column
  CHECK(uses.may_move(3, 1));                                       // past the write to another column
  CHECK(!uses.may_move(4, 1));
  CHECK(uses.may_move(4, 1, {2, 3}));
  CHECK(!uses.may_move(5, 2));  // the sum reads the weight
  CHECK(uses.may_move(5, 4));
}

TEST_CASE("a call that may refuse a value and a write outside do not pass each other") {
  Tensor weight = randn({4, 3});
  const Tensor table = randn({4, 3}), index = tensor({1, 2});
  ir::Recording recording;
  NoGrad off;
  const Tensor a = table.index_select(0, index);  // 0
  weight.mul_(2);                                 // 1
  const Tensor b = table * 2;                     // 2
  const Program p = recording.finish(std::array{a, b});
  REQUIRE(p.calls.size() == 3);
  const ir::Uses uses(p);
  CHECK((uses.writes_outside(1) && !uses.writes_outside(2)));
  CHECK((!uses.may_move(0, 2) && !uses.may_move(1, -1)));
  CHECK((uses.may_move(2, 0) && uses.may_move(2, -1)));
}

TEST_CASE("a rewriter's table is the one of the program that it makes") {
  const auto same_tables = [](const ir::Uses& kept, const Program& p) {
    const ir::Uses anew(p);
    bool same = true;
    for (int block = 0; block < int(p.blocks.size()); ++block) {
      const auto &a = kept.of(block), &b = anew.of(block);
      same &= std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ir::Use& x, const ir::Use& y) {
        return x.call == y.call && x.reads == y.reads && x.writes == y.writes && x.whole == y.whole;
      });
      same &= kept.own(block) == anew.own(block);
    }
    return same;
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Program p = RandomCalls(seed).record();
    std::mt19937 random(seed);
    ir::Rewriter calls(p);
    for (int change = 0; change < 20; ++change) {
      const int at = int(random() % unsigned(calls.size())), other = int(random() % unsigned(calls.size()));
      switch (random() % 5) {
        case 0: calls.remove(at); break;
        case 1: calls.replace(at, calls.call(other)); break;
        case 2: calls.insert(at, {calls.call(other), calls.call(at)}); break;
        case 3: calls.rename(int(random() % p.blocks.size()), int(random() % p.blocks.size())); break;
        default:
          calls.change(at, [&](ir::Call& call) {
            ir::each_view(
                call, [&](ir::View& v, ir::Access) { v = calls.temporary(v, v.shape, contiguous_strides(v.shape)); });
          });
      }
      REQUIRE(same_tables(calls, p));
    }
    calls.finish();
    for (const ir::Call& call : p.calls) REQUIRE(!call.operands.empty());
  }
}
