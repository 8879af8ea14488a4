#include "operands.h"

using namespace kernel_tests;

TEST_CASE("fill: every dtype and layout") {
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts)
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{7}, Shape{3, 5, 41}}) {
        Array out(t, shape, layout);
        cpu().fill(ctx(), {out.view, 3});
        CHECK(difference(out, [&](int64_t) { return t == kBool ? 1 : 3; }) == "");
        cpu().fill(ctx(), {out.view, false});
        CHECK(difference(out, [&](int64_t) { return 0; }) == "");
      }
}

TEST_CASE("fill writes between the gaps only, and saturates") {
  Array out(kUInt8, {4}, Layout::Gaps);
  cpu().fill(ctx(), {out.view, 300.0});
  const uint8_t* p = out.view.as<uint8_t>();
  for (int i = 0; i < 8; ++i) CHECK(int(p[i]) == (i % 2 ? 0 : 255));
}

TEST_CASE("range: integers exactly, floats from the start, any stride") {
  for (const DType t : kAllDTypes) {
    if (t == kBool) continue;
    Array out(t, {60}, Layout::Gaps);
    cpu().range(ctx(), {out.view, {.start = 5, .step = 2}});
    CHECK(difference(out, [](int64_t i) { return 5.0 + 2.0 * double(i); }) == "");
  }
  Array large(kInt64, {3});
  cpu().range(ctx(), {large.view, {.start = int64_t(1) << 62, .step = -1}});
  CHECK(large.view.as<int64_t>()[2] == (int64_t(1) << 62) - 2);
  Array floats(kFloat32, {100000});
  cpu().range(ctx(), {floats.view, {.start = 0.5, .step = 0.1}});
  CHECK(difference(floats, [](int64_t i) { return 0.5 + 0.1 * double(i); }) == "");
  Array none(kInt64, {0});
  cpu().range(ctx(), {none.view, {.start = 0, .step = 1}});
}
