// Every operation of unary.cu, binary.cu and ternary.cu on every dtype, through each way that operands can lie.
#include "both.h"

using namespace tapir_tests;

namespace {
/// How the operands of one call lie; the output has the first's shape and order.
struct Layout {
  std::vector<int64_t> shape;
  std::vector<int> out, order_a, order_b, repeated_b;
  int64_t gap = 0;
};
const Layout layouts[] = {
    {{1003}, {}, {}, {}, {}},                            // packs and a rest
    {{6, 10, 4}, {2, 0, 1}, {2, 0, 1}, {2, 0, 1}, {}},   // one order, not row-major
    {{9, 64}, {}, {}, {}, {0}},                          // rows that meet a row
    {{9, 64}, {}, {}, {}, {1}},                          // rows, each with an element
    {{9, 33}, {}, {1, 0}, {}, {0}},                      // transposed, odd rows
    {{3, 2, 5, 3, 2}, {}, {4, 2, 0, 1, 3}, {}, {1}, 1},  // any strides
    {{17}, {}, {}, {}, {0}},
    {{}, {}, {}, {}, {}},
    {{0, 3}, {}, {}, {}, {}},
};
double tolerance(DType t) {
  return t == kFloat32 ? 1e-5 : t == kFloat64 ? 1e-10 : t == kFloat16 ? 2e-3 : t == kBFloat16 ? 2e-2 : 0;
}
Array numbers(DType t, const Layout& l, std::vector<int> order, std::vector<int> repeated, uint32_t seed) {
  Array a(t, l.shape, std::move(order), std::move(repeated), l.gap);
  a.random(seed, -24, 24);
  if (is_floating(t)) {
    for (int64_t i = 0; i < a.count; ++i) write(t, a.view.data, i, read(t, a.view.data, i) / 8);
    const double special[] = {NAN, INFINITY, -INFINITY, -0.0};
    for (int64_t i = 3; i < a.count && i < 27; i += 6) write(t, a.view.data, i, special[i / 6]);
  }
  return a;
}

/// The first difference between the devices; both may refuse the dtype.
template <class F> std::string differ_or_refuse(const Operands& operands, double tolerance, F&& run) {
  bool refused = false;
  try {
    return differ(operands, tolerance, [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
      if (&table == &cpu_table()) {
        try {
          run(table, ctx, v);
        } catch (const ValueError&) {
          refused = true;
        }
        ctx.error = {};
      } else {
        run(table, ctx, v);
        if (refused) throw RuntimeError("the device takes what the CPU refuses");
      }
    });
  } catch (const ValueError& e) {
    return refused ? "" : e.what();
  }
}
std::string place(int op, DType t, const Layout& l) {
  return "op " + std::to_string(op) + " " + std::string(name_of(t)) + " layout " + std::to_string(&l - layouts) + ": ";
}
#define AGREES(OP, ...)                                                \
  do {                                                                 \
    const std::string difference = (__VA_ARGS__);                      \
    if (!difference.empty()) FAIL_CHECK(place(OP, t, l) + difference); \
  } while (false)
}  // namespace

TEST_CASE("CUDA unary operations agree with the CPU's") {
  NEEDS_DEVICE();
  for (const DType t : all_dtypes)
    for (const Layout& l : layouts)
      for (int op = 0; op <= int(UnaryOp::SignBit); ++op) {
        const bool tests = op >= int(UnaryOp::LogicalNot);
        Array x = numbers(t, l, l.order_a, {}, 5), out(tests ? kBool : t, l.shape, l.out, {}, l.gap);
        for (const double a : {1.0, 2.0, 0.25}) {
          const bool integer_order = UnaryOp(op) == UnaryOp::Polygamma;
          if (a != 1 && !integer_order && UnaryOp(op) != UnaryOp::PowScalar && UnaryOp(op) != UnaryOp::Gelu) continue;
          const UnaryParams p{UnaryOp(op), integer_order ? std::round(a + 0.5) : a, 2, 0.5};
          AGREES(op, differ_or_refuse({&out, &x}, tolerance(t), [&](const auto& table, Context& ctx, const auto& v) {
                   table.unary(ctx, {v[0], v[1], p});
                 }));
        }
      }
}

TEST_CASE("CUDA binary operations agree with the CPU's") {
  NEEDS_DEVICE();
  for (const DType t : all_dtypes)
    for (const Layout& l : layouts)
      for (int op = 0; op <= int(BinaryOp::SincGrad); ++op) {
        const bool compares = op >= int(BinaryOp::Eq) && op <= int(BinaryOp::IsClose);
        Array a = numbers(t, l, l.order_a, {}, 7), b = numbers(t, l, l.order_b, l.repeated_b, 9),
              other = numbers(kFloat16, l, {}, {}, 3), out(compares ? kBool : t, l.shape, l.out, {}, l.gap);
        for (int64_t i = 0; i < b.count && !is_floating(t); ++i)  // no divisor of 0
          if (read(t, b.view.data, i) == 0) write(t, b.view.data, i, 1);
        const BinaryParams p{BinaryOp(op), 1, 0.5, 2};
        const bool power = BinaryOp(op) == BinaryOp::Pow;  // may grow: the error with it
        const double allowed = power && is_floating(t) ? 1e-2 : tolerance(t);
        AGREES(op, differ_or_refuse({&out, &a, &b}, allowed, [&](const auto& table, Context& ctx, const auto& v) {
                 table.binary(ctx, {v[0], v[1], v[2], p});
               }));
        AGREES(op, differ_or_refuse({&out, &a}, allowed, [&](const auto& table, Context& ctx, const auto& v) {
                 table.binary(ctx, {v[0], v[1], TensorView(3, t), p});
               }));
        if (is_floating(t) && &l - layouts > 4)  // of two dtypes, a number first
          AGREES(op, differ_or_refuse({&out, &other}, 2e-2, [&](const auto& table, Context& ctx, const auto& v) {
                   table.binary(ctx, {v[0], TensorView(2.5, kFloat32), v[1], p});
                 }));
      }
}

TEST_CASE("CUDA ternary operations agree with the CPU's") {
  NEEDS_DEVICE();
  for (const DType t : all_dtypes)
    for (const Layout& l : layouts)
      for (int op = 0; op <= int(TernaryOp::GluGrad); ++op) {
        const bool where = TernaryOp(op) == TernaryOp::Where;
        Array a = where ? Array(kBool, l.shape, l.order_a, {}, l.gap) : numbers(t, l, l.order_a, {}, 7);
        if (where) a.random(4, 0, 1);
        Array b = numbers(t, l, l.order_b, l.repeated_b, 9), c = numbers(t, l, {}, {}, 3),
              out(t, l.shape, l.out, {}, l.gap);
        const TernaryParams p{TernaryOp(op), 2};
        AGREES(op,
               differ_or_refuse({&out, &a, &b, &c}, tolerance(t), [&](const auto& table, Context& ctx, const auto& v) {
                 table.ternary(ctx, {v[0], v[1], v[2], v[3], p});
               }));
        AGREES(op, differ_or_refuse({&out, &a, &c}, tolerance(t), [&](const auto& table, Context& ctx, const auto& v) {
                 table.ternary(ctx, {v[0], v[1], TensorView(3, t), v[2], p});
               }));
      }
}

TEST_CASE("CUDA binary: a divisor of 0 is reported at the next wait") {
  NEEDS_DEVICE();
  Array a(kInt32, {4, 8}), b(kInt32, {4, 8}, {}, {0}), out(kInt32, {4, 8});
  a.fill(7), b.fill(2);
  for (const bool zero : {false, true}) {
    if (zero) b.set(0, 0, 5);
    Mirror ma(a), mb(b), mout(out);
    Context& ctx = context(kCUDA);
    backend(kCUDA).binary(ctx, {mout.view, ma.view, mb.view, {BinaryOp::FloorDiv}});
    check_values(ctx, "[test] {value} at {position}");
    if (zero) CHECK_THROWS_WITH(mout.fetch(), "[test] 0 at 5");
    else CHECK(read(kInt32, mout.fetch().data(), 31) == 3);
  }
}
