#include <tapir/tapir.h>

#include "../catch.h"
using namespace tapir;

TEST_CASE("BatchNorm without momentum keeps plain averages over all batches, and reads nothing on the host") {
  nn::BatchNorm1d bn(2, {.momentum = std::nullopt});
  const Tensor batches[] = {tensor({{1., 2.}, {3., 6.}}), tensor({{0., 0.}, {4., 2.}}), tensor({{5., 1.}, {5., 3.}})};
  // While a batch passes, a kernel that fills a float64 or an integer on the host would be item().
  static int reads;
  static const BackendTable* real;
  static BackendTable table;
  real = built_in_backend(DeviceType::CPU), table = *real, reads = 0;
  table.copy = [](Context& ctx, const entry::Copy& c) {
    reads += c.x.dtype == kInt64 && c.out.dtype != kFloat32;
    real->copy(ctx, c);
  };
  {
    ScopedMode<const BackendTable*> guard(modes.tables[0], &table);
    for (const Tensor& x : batches) bn(x);
  }
  CHECK(reads == 0);
  const auto mean = bn.running_mean.to_vector<float>(), var = bn.running_var.to_vector<float>();
  CHECK(mean[0] == Approx((2. + 2. + 5.) / 3));
  CHECK(mean[1] == Approx((4. + 1. + 2.) / 3));
  CHECK(var[0] == Approx((2. + 8. + 0.) / 3));
  CHECK(var[1] == Approx((8. + 2. + 2.) / 3));
  CHECK(bn.num_batches_tracked.item<int64_t>() == 3);

  nn::BatchNorm1d resumed(2, {.momentum = std::nullopt});  // the count comes with the state
  resumed.load_state_dict(bn.state_dict());
  resumed(batches[0]), bn(batches[0]);
  CHECK(resumed.running_mean.to_vector<float>() == bn.running_mean.to_vector<float>());
  CHECK(bn.running_mean.to_vector<float>()[0] == Approx((2. + 2. + 5. + 2.) / 4));
}

TEST_CASE("a refused batch leaves a BatchNorm as it was") {
  for (const std::optional<double> momentum : {std::optional<double>(), std::optional<double>(0.1)}) {
    nn::BatchNorm1d bn(2, {.momentum = momentum}), want(2, {.momentum = momentum});
    CHECK_THROWS_AS(bn(ones({1, 2})), ValueError);
    CHECK_THROWS_AS(bn(ones({4, 3})), ValueError);
    CHECK(bn.num_batches_tracked.item<int64_t>() == 0);
    bn(full({2, 2}, 4.)), want(full({2, 2}, 4.));
    CHECK(bn.num_batches_tracked.item<int64_t>() == 1);
    CHECK(bn.running_mean.to_vector<float>() == want.running_mean.to_vector<float>());
    CHECK(bn.running_var.to_vector<float>() == want.running_var.to_vector<float>());
  }
}
