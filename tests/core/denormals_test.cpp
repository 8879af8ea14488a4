#include <tapir/core/denormal_bits.h>
#include <tapir/core/denormals.h>
#include <tapir/tapir.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "../catch.h"
#include "../modes.h"
#include "../same_bits.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// How many of many pieces take denormal numbers for 0.
int64_t flushing_pieces() {
  std::atomic<int64_t> pieces{0};
  parallel_for(64, 1, [&](int64_t, int64_t) {
    volatile float tiny = 0x1p-100f, product = tiny * 0x1p-30f;
    pieces += product == 0;
  });
  return pieces;
}
/// Elements that are not 0, by their bits: to a comparison denormal numbers are 0 where they are to the rest.
int64_t not_zero(const Tensor& x) {
  const auto count = [&]<class Bits>(const Bits* bits) {
    return std::count_if(bits, bits + x.numel(), [](Bits b) { return Bits(b << 1) != 0; });
  };
  return x.dtype() == kFloat64 ? count(static_cast<const uint64_t*>(x.data_ptr()))
                               : count(static_cast<const uint32_t*>(x.data_ptr()));
}
/// Of many products, all of them denormal.
int64_t products_left(DType dtype = kFloat32) {
  return not_zero(full({200000}, 0x1p-100, {.dtype = dtype}) * (dtype == kFloat64 ? 0x1p-930 : 0x1p-30));
}
int64_t matrix_products_left() {  // of a library with loops of its own
  return not_zero(matmul(full({256, 256}, 0x1p-100), full({256, 256}, 0x1p-40)));
}

}  // namespace

TEST_CASE("set_flush_denormal: off, operations keep denormal numbers; on, they are 0, whatever the number of threads") {
  const FlushDenormal restored(false);
  const Tensor tiny = full({3}, 0x1p-130);
  for (const int threads : {1, 2, 4}) {
    const ThreadCount guard(threads);
    CAPTURE(threads);
    for (const bool on : {false, true, false}) {
      REQUIRE(set_flush_denormal(on));
      CHECK(get_flush_denormal() == on);
      CHECK(flushing_pieces() == (on ? threads : 0));
      CHECK(products_left() == (on ? 0 : 200000));
      CHECK(products_left(kFloat64) == (on ? 0 : 200000));
      CHECK(matrix_products_left() == (on ? 0 : 256 * 256));
      CHECK(not_zero(tiny * 0x1p+20) == (on ? 0 : 3));  // as operands too
    }
  }
}

TEST_CASE("set_flush_denormal reaches threads that are there and later ones, and backward") {
  const FlushDenormal restored(false);
  std::mutex gate;
  std::condition_variable turn;
  int asked = 0, answered = 0;
  int64_t left = -1;
  std::thread early([&] {  // waits for questions
    std::unique_lock lock(gate);
    for (int i = 1; i <= 3; ++i) {
      turn.wait(lock, [&] { return asked == i; });
      left = products_left(), answered = i;
      turn.notify_all();
    }
  });
  const auto of_early = [&] {
    std::unique_lock lock(gate);
    ++asked;
    turn.notify_all();
    turn.wait(lock, [&] { return answered == asked; });
    return left;
  };
  for (const bool on : {false, true, false}) {
    set_flush_denormal(on);
    CHECK(of_early() == (on ? 0 : 200000));
    int64_t late = -1;
    std::thread([&] { late = products_left(); }).join();
    CHECK(late == (on ? 0 : 200000));
    Tensor x = full({200000}, 0x1p-100).requires_grad_();
    (x * 0x1p-100).backward(full({200000}, 0x1p-40));
    CHECK(not_zero(x.grad()) == (on ? 0 : 200000));
  }
  early.join();
}

TEST_CASE("a FlushDenormals ends where its scope ends, after an exception too, and does nothing for float64") {
  for (const uint64_t before : {uint64_t(0), detail::kFlushBits}) {
    const detail::DenormalBits mode(before);
    {
      const detail::FlushDenormals outer(kFloat32);
      CHECK(detail::denormal_bits() == detail::kFlushBits);
      try {
        const detail::FlushDenormals inner(kFloat64);  // as it was
        CHECK(detail::denormal_bits() == detail::kFlushBits);
        throw std::runtime_error("a kernel's");
      } catch (const std::runtime_error&) {}
      CHECK(modes.flush_denormals);
    }
    CHECK(detail::denormal_bits() == before);
    CHECK(!modes.flush_denormals);
    const detail::FlushDenormals none(kFloat64);
    CHECK(detail::denormal_bits() == before);
    CHECK(!modes.flush_denormals);
  }
}

TEST_CASE("a scope that does nothing leaves what was set meanwhile") {
  const FlushDenormal restored(false);
  for (const bool on : {true, false}) {
    {
      const detail::FlushDenormals none(kFloat64);
      set_flush_denormal(on);
    }
    CHECK(products_left() == (on ? 0 : 200000));
  }
}

TEST_CASE("a thread follows what was set after its birth and before its first operation") {
  const FlushDenormal restored(false);
  for (const bool before : {true, false}) {
    set_flush_denormal(before);
    std::atomic<bool> go{false};
    int64_t left = -1;
    std::thread born([&] {  // with the control register of this thread
      go.wait(false);
      left = products_left();
    });
    set_flush_denormal(!before);
    go = true;
    go.notify_one();
    born.join();
    CHECK(left == (before ? 200000 : 0));
  }
}

TEST_CASE("loops compute as the thread that starts them, those of libraries as set_flush_denormal() says") {
  const FlushDenormal restored(false);
  const ThreadCount guard(2);
  CHECK(flushing_pieces() == 0);
  set_num_threads(7);
  {
    const detail::FlushDenormals scope(kFloat32);
    CHECK(flushing_pieces() == 7);  // some of them begin here
  }
  CHECK(flushing_pieces() == 0);
  CHECK(products_left() == 200000);
  CHECK(matrix_products_left() == 256 * 256);
  {
    const detail::FlushDenormals scope(kFloat32);
    const int64_t left = matrix_products_left();  // a library's, or own: all of its threads do the same
    CHECK((left == 0 || left == 256 * 256));
    CHECK(detail::denormal_bits() == detail::kFlushBits);  // still
  }
  CHECK(flushing_pieces() == 0);
  CHECK(matrix_products_left() == 256 * 256);
  std::string message;
  const detail::FlushDenormals scope(kFloat32);
  try {
    parallel_for(64, 1, [](int64_t, int64_t) { throw std::runtime_error("a piece"); });
  } catch (const std::runtime_error& e) {
    message = e.what();
  }
  CHECK(message == "a piece");
  CHECK(detail::denormal_bits() == detail::kFlushBits);
}

TEST_CASE("what was set inside of a scope or a loop holds behind it") {
  const FlushDenormal restored(false);
  {
    const detail::FlushDenormals scope(kFloat32);
    set_flush_denormal(true);
  }
  CHECK(get_flush_denormal());
  CHECK(products_left() == 0);
  set_flush_denormal(false);
  const ThreadCount guard(2);
  parallel_for(64, 1, [](int64_t first, int64_t) {
    if (first == 0) set_flush_denormal(true);
  });
  CHECK(products_left() == 0);
}

TEST_CASE("kernels that take denormal numbers for 0, and only for float32") {
  const auto denormals = [](const Tensor& x) {
    const Tensor size = abs(x.to(kFloat64));
    return sum(logical_and(size > 0, size < 0x1p-126)).item<int64_t>();
  };
  for (const DType dtype : {kFloat32, kFloat64}) {
    const bool wide = dtype == kFloat64;
    CAPTURE(wide);
    const auto check_none = [&](const Tensor& x) { CHECK((denormals(x) > 0) == wide); };
    // exponentials of -90 to -95, along rows and across them
    Tensor scores = full({40, 50}, -90, {.dtype = dtype}) - rand({40, 50}, {.dtype = dtype}) * 5;
    narrow(scores, 1, 0, 1).fill_(0);
    Tensor down = transpose(scores, 0, 1).contiguous();
    check_none(softmax(scores, 1)), check_none(softmax(down, 0));
    CHECK(denormals(log_softmax(scores, 1)) == 0);
    Tensor x = scores.clone().requires_grad_();
    softmax(x, 1).backward(rand({40, 50}, {.dtype = dtype}));
    check_none(x.grad());
    x.set_grad({});
    cross_entropy(x, zeros({40}, {.dtype = kInt64})).backward();
    check_none(x.grad());
    x.set_grad({});
    log_softmax(x, 1).backward(one_hot(zeros({40}, {.dtype = kInt64}), 50).to(dtype));  // dy - e^y sum(dy)
    check_none(x.grad());
    // keys that a query sees by e^-92, with values as small
    const Tensor q = full({1, 1, 3, 4}, 1, {.dtype = dtype}), v = rand({1, 1, 8, 4}, {.dtype = dtype});
    Tensor k = full({1, 1, 8, 4}, -46, {.dtype = dtype});
    narrow(k, 2, 0, 1).fill_(0);
    narrow(v, 2, 0, 1).fill_(0);
    Tensor leaf = v.clone().requires_grad_();
    const Tensor seen = scaled_dot_product_attention(q, k, leaf);
    check_none(seen);
    seen.backward(ones_like(seen.detach()));
    check_none(leaf.grad());
    // a state that fades, and its gradient on the way back
    nn::RNN net(1, 2, {.bias = false});
    net.to(dtype);
    {
      NoGrad guard;
      net.weights[0].fill_(0), net.weights[1].fill_(0.25);
    }
    const Tensor start = full({1, 1, 2}, 0.5, {.dtype = dtype}).requires_grad_();
    const auto faded = net(zeros({140, 1, 1}, {.dtype = dtype}), start);
    check_none(faded.output.detach());
    narrow(faded.output, 0, 139, 1).backward(full({1, 1, 2}, 1, {.dtype = dtype}));
    CHECK((start.grad()[0][0][0].item() != 0) == wide);
    // statistics of channels that are dead
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
      nn::BatchNorm1d batch_norm(3, {.momentum = momentum});
      batch_norm.to(dtype);
      NoGrad guard;
      for (int i = 0; i < (momentum ? 900 : 3); ++i) {
        batch_norm(zeros({4, 3}, {.dtype = dtype}));
        if (i == 0 && !momentum) batch_norm.running_var.fill_(0x1p-125);
      }
      check_none(batch_norm.running_var);
    }
    // gradients: clipped, unscaled; averages
    Tensor p = zeros({5}, {.dtype = dtype, .requires_grad = true});
    const Tensor small = tensor({0x1p-120, 0x1p-130, 1.0, 0.0, -0x1p-130}, {.dtype = dtype});
    p.set_grad(small.clone());
    optim::clip_grad_norm_({p}, 0x1p-8);
    check_none(p.grad());
    p.set_grad(small.clone());
    optim::SGD opt({p});
    amp::GradScaler scaler;
    scaler.unscale_(opt);
    check_none(p.grad());
    p = zeros({1}, {.dtype = dtype, .requires_grad = true});
    p.set_grad(narrow(small, 0, 1, 1).clone());
    CHECK((optim::clip_grad_norm_({p}, 1).item() > 0) == wide);
    nn::Linear weights(2, 2);
    weights.to(dtype);
    train::AveragedModel average(weights, {.decay = 0.5});
    for (const double value : {0x1p-125, 0.0, 0.0}) {
      NoGrad guard;
      weights.weight.fill_(value), weights.bias.fill_(value);
      average.update_parameters(weights);
    }
    check_none(average.module.weight.detach());  // 2^-127
    CHECK(detail::denormal_bits() == 0);
  }
}
