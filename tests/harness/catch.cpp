#include "../catch.h"

TEST_CASE("a name with, comma \"quote\" [x] * back\\slash is found by --folder", "[harness]") { CHECK(Approx(1) == 1); }
