#include <limits>

#include <tapir/core/error.h>
#include <tapir/core/fail_as.h>
#include <tapir/core/tensor.h>
#include <tapir/ops/create.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::message_of;

TEST_CASE("messages take numbers, shapes, dtypes, devices and tensors") {
  const Tensor x = empty({2, 3}, {.dtype = kFloat16}), none;
  CHECK(tapir::format("{} {} {} {}", 1, int64_t(-7), true, "text") == "1 -7 true text");
  CHECK(tapir::format("{} {} {}", 0.1, 1e300, 2.0) == "0.1 1e+300 2");
  CHECK(tapir::format("{}", std::numeric_limits<double>::infinity()) == "inf");
  CHECK(tapir::format("{} {} {}", Shape{4}, Shape{}, Shape{2, 3}) == "(4,) () (2, 3)");
  CHECK(tapir::format("{} {} {}", kBFloat16, kCPU, kCUDA) == "bfloat16 cpu cuda:0");
  CHECK(tapir::format("{} {}", x, none) == "float16 (2, 3) undefined");
  CHECK(tapir::format("{} {}", Scalar(2.5), Scalar(3)) == "2.5 3");
  CHECK(tapir::format("{} {}", 1) == "1 {}");
  CHECK(tapir::format("{0} } {", 1) == "{0} } {");
  CHECK(tapir::format("{}", std::string("{}")) == "{}");
}

TEST_CASE("checks throw the four kinds") {
  CHECK(message_of<ValueError>([] { check(false, "[op] expected {}", 3); }) == "[op] expected 3");
  CHECK(message_of<RuntimeError>([] { check_runtime(false, "[file] {}", "gone"); }) == "[file] gone");
  CHECK(message_of<RuntimeError>([] { fail(ErrorKind::OutOfMemory, "none"); }) == "none");
  CHECK_THROWS_AS(fail(ErrorKind::OutOfMemory, "none"), OutOfMemoryError);
  CHECK(tapir_tests::contains(message_of<InternalError>([] { check_internal(false, "odd"); }), "odd"));
  CHECK(message_of<ValueError>([] { check(true, "not thrown"); }) == "nothing");
}

namespace {
struct Own : ValueError {
  using ValueError::ValueError;
};
template <class E> void fail_within(const E& error) try { throw error; } catch (...) {
  fail_as("outer");
}
}  // namespace

TEST_CASE("the function that was called speaks for those within") {
  CHECK_THROWS_WITH(fail_within(ValueError("[inner] expected 1, got [2] x")), "[outer] expected 1, got [2] x");
  CHECK_THROWS_WITH(fail_within(ValueError("no name")), "no name");
  CHECK_THROWS_AS(fail_within(OutOfMemoryError("[inner] none")), OutOfMemoryError);
  CHECK_THROWS_AS(fail_within(Own("[inner] mine")), Own);
  CHECK_THROWS_WITH(fail_within(Own("[inner] mine")), "[inner] mine");  // another's type stays as it is
  CHECK_THROWS_AS(fail_within(std::runtime_error("[inner] not ours")), std::runtime_error);
  CHECK_THROWS_WITH(eye(int64_t(1) << 40, int64_t(1) << 40), Catch::StartsWith("[eye]"));
}

TEST_CASE("dimensions wrap") {
  CHECK(wrap_dim("sum", -1, 3) == 2);
  CHECK(wrap_dim("sum", -1, 0) == 0);
  CHECK(message_of<ValueError>([] { wrap_dim("sum", 3, 3); }) ==
        "[sum] dimension out of range (expected to be in range of [-3, 2], but got 3)");
}
