#include <cstring>
#include <thread>

#include <tapir/compile/record/record.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../core/messages.h"
#include "../same_bits.h"
#include "training.h"

using namespace tapir;
using ir::Program;
using tapir_tests::contains;
using tapir_tests::ConvNet;
using tapir_tests::message_of;
using tapir_tests::same_bits;
using tapir_tests::training_step;

namespace {

struct Mlp : nn::Module {
  nn::Linear a{8, 16}, b{16, 4};
  Tensor forward(const Tensor& x) { return b(relu(a(x))); }
  TAPIR_FIELDS(a, b)
};

bool same_bytes(const StoragePtr& a, const StoragePtr& b) {
  return a->bytes == b->bytes && (a->bytes == 0 || std::memcmp(a->data, b->data, size_t(a->bytes)) == 0);
}
/// Records a step, then lets the program and eager code each do the next one, from the same state.
template <class Net> void check_training_step(Net& net, const Tensor& x, const Tensor& labels) {
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  const auto step = [&] { return training_step(net, opt, x, labels); };
  step();
  ir::Recording recording(std::array{x, labels});
  const Tensor recorded = step();
  const Program program = recording.finish(std::array{recorded});
  REQUIRE(program.inputs.size() == 2);
  REQUIRE(program.outputs.size() == 1);
  CHECK(contains(to_string(program), "optimizer_step(AdamW)"));

  ir::Memory memory = ir::copy_of_outside(program);
  const std::vector<Tensor> replayed = interpret(program, memory);
  const Tensor eager = step();
  CHECK(same_bits(replayed[0], eager));
  CHECK(!same_bits(recorded, eager));
  int written = 0;
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    const ir::Block& b = program.blocks[i];
    if (b.kind != ir::Block::Kind::Outside) continue;
    INFO("block " << i);
    CHECK(same_bytes(memory[i], b.memory));
    written += b.written;
  }
  CHECK(written >= int(3 * net.parameters().size()) + 1);  // values, two moments, the count
  // A second replay goes on from there.
  const Tensor again = interpret(program, memory)[0];
  CHECK(same_bits(again, step()));
}

}  // namespace

TEST_CASE("a recorded training step of an MLP, interpreted, gives eager's bits") {
  manual_seed(1);
  Mlp net;
  check_training_step(net, randn({32, 8}), randint(0, 4, {32}));
}

TEST_CASE("a recorded training step of a convolutional net, interpreted, gives eager's bits") {
  manual_seed(2);
  ConvNet net;
  check_training_step(net, randn({4, 3, 16, 16}), randint(0, 5, {4}));
}

TEST_CASE("a program names blocks, their lives, and what calls do with them") {
  Tensor w = ones({2, 3});
  const Tensor x = full({3}, 2.0);
  ir::Recording recording(std::array{x});
  const Tensor y = mul(t(w), 3) + unsqueeze(x, 1);
  w.add_(1);
  const Program p = recording.finish(std::array{y});
  CHECK(w.version() > 0);
  REQUIRE(p.calls.size() == 3);
  CHECK(to_string(p.calls[0]) ==
        "binary(Mul): %1 float32 (3, 2) strides (1, 3) <- %2 float32 (3, 2) strides (1, 3), 3");
  CHECK(contains(to_string(p.calls[1]), "binary(Add): %3 float32 (3, 2)"));
  CHECK(contains(to_string(p.calls[1]), "%0 float32 (3, 2) strides (1, 0)"));
  CHECK(contains(to_string(p), "%2: outside, 24 bytes on cpu, read, written"));
  CHECK((p.blocks[0].kind == ir::Block::Kind::Outside && p.blocks[0].read && !p.blocks[0].written));
  CHECK((p.blocks[1].kind == ir::Block::Kind::Temporary && p.blocks[1].birth == 0 && p.blocks[1].death == 2));
  CHECK((p.blocks[2].read && p.blocks[2].written && p.blocks[2].memory->data == w.data_ptr()));
  CHECK((p.blocks[3].birth == 1 && p.blocks[3].death == -1 && p.blocks[3].memory->data == y.data_ptr()));
  CHECK(p.outputs[0].block == 3);
}

TEST_CASE("numbers that the host writes while a program is recorded are constants of it") {
  const Tensor x = ones({3});
  ir::Recording recording(std::array{x});
  const Tensor y = x + tensor({1., 2., 3.}, {.dtype = kFloat32});
  Program p = recording.finish(std::array{y});
  ir::Memory memory = ir::copy_of_outside(p);
  CHECK(same_bits(interpret(p, memory)[0], tensor({2., 3., 4.})));
  int constants = 0;
  for (const ir::Block& b : p.blocks) constants += b.kind == ir::Block::Kind::Constant;
  CHECK(constants == 1);
}

TEST_CASE("slices of one block, an expanded number and a bucket keep their places") {
  const Tensor x = arange(0., 12., 1., {.dtype = kFloat32});
  const StoragePtr part = slice_storage(x.impl().storage, 16, 16);
  ir::Recording recording;
  Tensor y = zeros({4, 2});
  select(y, 1, 1).copy_(x.slice(0, 1, 9, 2));
  const Tensor z = y * x.narrow(0, 10, 1);
  Program p = recording.finish(std::array{z});
  ir::Memory memory = ir::copy_of_outside(p);
  CHECK(same_bits(interpret(p, memory)[0], z));
  CHECK(root_of(part.get()) == x.impl().storage.get());
}

TEST_CASE("what the host would read is refused by name and place, and recording ends cleanly") {
  const Tensor x = ones({3});
  const auto recorded = [&](auto f) {
    return message_of<ValueError>([&] {
      ir::Recording recording(std::array{x});
      f();
      recording.finish();
    });
  };
  const std::string item = recorded([&] { sum(x).item(); });
  CHECK(contains(item, "[item] expected nothing that the host must read while a program is recorded"));
  CHECK(contains(item, "record_test.cpp:"));
  CHECK(contains(recorded([&] { x.to_vector<float>(); }), "[to_vector]"));
  CHECK(contains(recorded([&] { nonzero(x); }), "[nonzero]"));
  CHECK(contains(recorded([&] { unique(x); }), "while a program is recorded"));
  CHECK(contains(recorded([&] { masked_select(x, gt(x, 0)); }), "where()"));
  CHECK(contains(recorded([&] { x.str(); }), "while a program is recorded"));
  CHECK(contains(recorded([&] { ir::Recording inner; }), "[record] expected no program that is being recorded"));
  CHECK(sum(x).item() == 3);  // eager goes on
  CHECK(nonzero(x).size(0) == 3);
  ir::Recording again(std::array{x});
  again.finish();
  CHECK_THROWS_AS(again.finish(), ValueError);
}

TEST_CASE("a recording sees its own thread alone") {
  const Tensor x = ones({3});
  ir::Recording recording;
  const Tensor y = x + 1;
  double other = 0;
  std::thread([&] { other = sum(x * 5).item(); }).join();
  CHECK(other == 15);
  CHECK(recording.finish(std::array{y}).calls.size() == 1);
}

TEST_CASE("what a host wrote, dropout and views of a step are replayed with the numbers they had") {
  manual_seed(6);
  Tensor w = randn({6, 6}).requires_grad_();
  const Tensor x = randn({4, 6});
  const auto step = [&] {
    w.set_grad({});
    const Tensor h = dropout(matmul(x, w), 0.5) * tensor({1., 2., 3., 4., 5., 6.}, {.dtype = kFloat32});
    const Tensor loss = mean(square(cat({h.narrow(1, 0, 2), chunk(h, 2, 1)[1]}, 1)));
    loss.backward();
    return loss.detach();
  };
  ir::Recording recording;
  const Tensor loss = step();
  const Program p = recording.finish(std::array{loss, w.grad()});
  for (int i = 0; i < 2; ++i) {
    ir::Memory memory = ir::copy_of_outside(p);
    const auto again = interpret(p, memory);
    CHECK(same_bits(again[0], loss));
    CHECK(same_bits(again[1], w.grad()));
  }
}

TEST_CASE("a call that throws is not written down") {
  const Tensor x = ones({3});
  ir::Recording recording;
  CHECK_THROWS_AS(x + ones({2}), ValueError);
  const Tensor y = x + 1;
  CHECK(ir::is<entry::Binary>(recording.finish(std::array{y}).calls.back()));
}
