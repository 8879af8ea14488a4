#include <tapir/core/backend.h>
#include <tapir/core/cuda.h>
#include <tapir/core/device.h>
#include <tapir/core/error.h>
#include <tapir/ops/create.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
using tapir_tests::message_of;

TEST_CASE("devices are read from text and written back") {
  CHECK(Device("cpu") == kCPU);
  CHECK(Device("cuda") == kCUDA);
  CHECK(Device("cuda:0") == kCUDA);
  CHECK(kCPU.str() == "cpu");
  CHECK(Device(DeviceType::CUDA, 3).str() == "cuda:3");
}

TEST_CASE("other texts are errors that show them") {
  for (const char* wrong :
       {"cuda:99", "cuda:-2", "cuda:1x", "gpu", "", "cuda:", "CPU", "cuda: 1", "cuda:99999999999999999999", "cpu:1"}) {
    INFO(wrong);
    const std::string message = message_of<ValueError>([&] { Device device{std::string_view(wrong)}; });
    CHECK(contains(message, "[Device] expected"));
    CHECK(contains(message, "got \"" + std::string(wrong) + "\""));
  }
  CHECK(contains(message_of<ValueError>([] { Device device("cuda:99"); }),
                 std::to_string(cuda::device_count()) + " CUDA devices"));
}

TEST_CASE("CUDA asked where there is none") {
  if (cuda::is_available()) SKIP_TEST("there is a CUDA device");
  CHECK(!cuda::is_available());
  CHECK(cuda::device_count() == 0);
  CHECK(contains(cuda::why_not(), "CUDA"));
  CHECK(contains(message_of<ValueError>([] { empty({2}, {.device = kCUDA}); }), cuda::why_not()));
}

TEST_CASE("review 11: a text where a device is asked for") {
  const Tensor x = ones({2, 3});
  const char* name = "cpu";
  CHECK(x.to("cpu").is_same(x));
  CHECK(x.to(std::string(name)).is_same(x));
  CHECK(x.to(name, true).is_same(x));
  CHECK(empty({2}, {.device = "cpu"}).device() == name);
  CHECK(x.to("cpu", kFloat16).dtype() == kFloat16);
  CHECK(x.to(kCPU, kInt64).to_vector<int64_t>() == std::vector<int64_t>(6, 1));
  CHECK(x.to(kCPU, kFloat32).is_same(x));
  CHECK(contains(message_of<ValueError>([&] { x.to("gpu"); }), "\"cuda:N\", got \"gpu\""));
  CHECK(contains(message_of<ValueError>([&] { x.to("cuda:99"); }), "cuda:99"));
  static_assert(!std::is_convertible_v<int, Device> && !std::is_convertible_v<bool, Device>);
  if (!cuda::is_available()) CHECK_THROWS_AS(x.to("cuda", kFloat16), ValueError);
}
