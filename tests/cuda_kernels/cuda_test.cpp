// core/cuda.h: devices, streams, events; what happens where there is no device.
#include "cuda.h"
#include "../../cuda_kernels/runtime/architectures.h"

#include <thread>

using namespace tapir;

TEST_CASE("cuda: slices of a tensor without elements") {
  NEEDS_CUDA
  const Tensor x = zeros({4, 0}, {.device = kCUDA});  // whose memory is nowhere
  CHECK(sum(x.narrow(0, 1, 2)).item() == 0);
  CHECK(sum(select(x, 0, 3)).item() == 0);
  CHECK(sum(zeros({6, 0, 3}, {.device = kCUDA}).narrow(0, 2, 2), 1).cpu().sum().item() == 0);
}

TEST_CASE("cuda: without a device the CPU works, and why_not says what was missing (BI-094)") {
  if (cuda::is_available()) {
    CHECK(cuda::why_not().empty());
    CHECK(cuda::device_count() > 0);
    const std::string name = "cuda: without a device the CPU works*";
    CHECK(run_alone("TAPIR_CUDA_PLUGIN=/no/such/plugin.so", name) == 0);
    if (is_emulated()) {
      CHECK(run_alone("TAPIR_EMULATED_DRIVER=12000", name) == 0);
      CHECK(run_alone("TAPIR_EMULATED_DRIVER=0", name) == 0);
      CHECK(run_alone("TAPIR_EMULATED_DEVICES=0", name) == 0);
    }
    return;
  }
  const std::string why = cuda::why_not();
  CHECK_FALSE(why.empty());
  CHECK(cuda::device_count() == 0);
  if (const char* plugin = std::getenv("TAPIR_CUDA_PLUGIN"); plugin && contains(plugin, "/no/such"))
    CHECK(contains(why, "/no/such/plugin.so"));
  if (const char* driver = std::getenv("TAPIR_EMULATED_DRIVER"))
    CHECK(contains(why, std::string_view(driver) == "0" ? "no CUDA driver" : "too old: it supports CUDA 12.0"));
  if (std::getenv("TAPIR_EMULATED_DRIVER")) CHECK(contains(why, "built for CUDA 13."));
  CHECK(contains(error_of([] { cuda::synchronize(); }), why));
  CHECK(contains(error_of([] { cuda::Stream stream; }), why));
  CHECK(contains(error_of([] { (void)zeros({2}, {.device = kCUDA}); }), why));
  CHECK(sum(ones({3})).item<float>() == 3);
}

TEST_CASE("cuda: a device of an architecture that nothing was built for (BI-095)") {
  if (const char* text = std::getenv("TAPIR_EMULATED_CAPABILITY"); text && std::string_view(text) == "75") {
    CHECK_FALSE(cuda::is_available());
    CHECK(contains(cuda::why_not(), "built for the CUDA architectures 90"));
    CHECK(contains(cuda::why_not(), "compute capability 7.5, 7.5"));
    return;
  }
  NEEDS_CUDA_DEVICES(2)
  if (!is_emulated()) SKIP_TEST("only the emulation has such a device");
  const std::string name = "cuda: a device of an architecture*";
  if (!std::getenv("TAPIR_EMULATED_CAPABILITY")) {
    CHECK(run_alone("TAPIR_EMULATED_CAPABILITY=75", name) == 0);
    CHECK(run_alone("TAPIR_EMULATED_CAPABILITY=90,75", name) == 0);
    return;
  }
  const Device old("cuda:1");  // beside one that works
  CHECK(cuda::get_device_properties(1).major == 7);
  const Tensor x = tensor({1.f, 2.f}).to(old);  // memory and copies need no kernel
  const std::string text = message_of<RuntimeError>([&] { (void)exp(x); });
  CHECK(contains(text, "expected a device of the architectures that it was compiled for (90)"));
  CHECK(contains(text, "got compute capability 7.5: compile it for 75 too, with TAPIR_CUDA_ARCHITECTURES"));
  CHECK_FALSE(message_of<RuntimeError>([&] { (void)softmax(x, 0); }).empty());
  CHECK(equal(x.cpu(), tensor({1.f, 2.f})));  // and the device goes on
  CHECK(allclose(exp(x.to("cuda:0")).cpu(), exp(x.cpu())));
}

TEST_CASE("cuda: which devices a list of architectures serves") {
  using cuda_kernels::has_code;
  CHECK(has_code("90", 90));
  CHECK(has_code("90", 120));  // by its PTX
  CHECK_FALSE(has_code("90", 89));
  CHECK(has_code("75, 80, 86", 86));
  CHECK_FALSE(has_code("75, 80, 86", 70));
  CHECK(has_code("80-real", 86));
  CHECK_FALSE(has_code("80-real", 90));
  CHECK_FALSE(has_code("86-real", 80));
  CHECK(has_code("80-virtual", 90));
  CHECK(has_code("90a", 90));
  CHECK_FALSE(has_code("90a", 100));
  CHECK(has_code("100f", 103));
  CHECK_FALSE(has_code("100f", 120));
  CHECK(has_code("native", 75));
}

TEST_CASE("cuda: libraries that are not there are named, with the places where they were looked for") {
  if (std::getenv("TAPIR_EMULATED_WITHOUT") && contains(std::getenv("TAPIR_EMULATED_WITHOUT"), "cublaslt")) {
    CHECK_FALSE(cuda::is_available());
    CHECK(contains(cuda::why_not(), "no cuBLASLt"));
    CHECK(contains(cuda::library_report(), "no cuBLASLt"));
    return;
  }
  NEEDS_CUDA
  const std::string name = "cuda: libraries that are not there*";
  if (!std::getenv("TAPIR_EMULATED_WITHOUT")) {
    CHECK(contains(cuda::library_report(), "cuBLASLt"));
    CHECK(contains(cuda::library_report(), "cuDNN"));
    if (!is_emulated()) return;
    CHECK(run_alone("TAPIR_EMULATED_WITHOUT=cublaslt", name) == 0);
    CHECK(run_alone("TAPIR_EMULATED_WITHOUT=cusolver,cudnn", name) == 0);
    return;
  }
  const Tensor a = eye(3, {.device = kCUDA}) * 2;
  CHECK(contains(message_of<RuntimeError>([&] { (void)linalg::cholesky(a); }),
                 "[linalg] expected cuBLAS and cuSOLVER, got no cuSOLVER"));
  backends::cuda::set_cudnn_allow_tf32(false);
  const Tensor x = randn({1, 2, 5, 5}), w = randn({3, 2, 3, 3});
  CHECK(allclose(conv2d(x.to(kCUDA), w.to(kCUDA)).cpu(), conv2d(x, w),
                 {.atol = 1e-4}));  // by a kernel of ours, and that is told
  CHECK(contains(cuda::library_report(), "refused 1 x: conv"));
  CHECK(contains(cuda::library_report(), "no cuDNN"));
}

TEST_CASE("cuda: devices and their properties") {
  NEEDS_CUDA
  const cuda::DeviceProperties p = cuda::get_device_properties();
  CHECK_FALSE(p.name.empty());
  CHECK(cuda::get_device_name() == p.name);
  CHECK(p.major >= 5);
  CHECK(p.multi_processor_count > 0);
  CHECK(p.warp_size == 32);
  CHECK(p.driver_version >= p.runtime_version / 1000 * 1000);
  const cuda::MemoryInfo info = cuda::mem_get_info();
  CHECK(info.free > 0);
  CHECK(info.free <= info.total);
  CHECK(cuda::current_device() == 0);
  CHECK(contains(error_of([] { cuda::set_device(99); }), "got 99"));
  CHECK(contains(error_of([] { (void)cuda::get_device_name(-2); }), "got -2"));
  if (cuda::device_count() > 1) {
    {
      const cuda::DeviceGuard guard(1);
      CHECK(cuda::current_device() == 1);
      CHECK(cuda::Stream().device() == 1);
    }
    CHECK(cuda::current_device() == 0);
  }
}

TEST_CASE("cuda: streams and events") {
  NEEDS_CUDA
  const cuda::Stream a, b, urgent(-1, -1);
  CHECK(a != b);
  CHECK(a.handle() != nullptr);
  CHECK(cuda::default_stream().handle() == nullptr);
  CHECK(cuda::current_stream() == cuda::default_stream());
  {
    const cuda::StreamGuard guard(a);
    CHECK(cuda::current_stream() == a);
  }
  CHECK(cuda::current_stream() == cuda::default_stream());

  cuda::Event start{true}, end{true};
  CHECK(start.query());
  start.record(a);
  Tensor x;
  {
    const cuda::StreamGuard guard(a);
    x = arange(1000, {.dtype = kFloat32}).to(kCUDA) + 1;
  }
  end.record(a);
  end.synchronize();
  CHECK(end.query());
  CHECK(a.query());
  CHECK(start.elapsed_time(end) >= 0);
  b.wait_stream(a);
  {
    const cuda::StreamGuard guard(b);
    CHECK((x + 1).sum().item<float>() == 501500.f);
  }
  const cuda::Event plain, other;
  CHECK_THROWS_AS(plain.elapsed_time(other), RuntimeError);
  if (cuda::device_count() > 1) {
    const cuda::Stream far(1);
    CHECK(contains(error_of([&] { cuda::Event(false, 0).record(far); }), "got one of cuda:1"));
  }
}

TEST_CASE("cuda: waits of the host are counted, and training-like work has none") {
  NEEDS_CUDA
  Tensor x = ones({64, 64}, {.device = kCUDA});
  cuda::synchronize();
  const int64_t before = cuda::synchronizations();
  for (int i = 0; i < 10; ++i) x = x + x * 0.5;
  const Tensor y = tensor({1.f, 2.f}).to(kCUDA);
  CHECK(cuda::synchronizations() == before);
  CHECK(y.sum().item<float>() == 3);
  CHECK(cuda::synchronizations() > before);
}

TEST_CASE("cuda: operands on different devices are refused by name (BI-090, BI-091)") {
  NEEDS_CUDA
  const Tensor here = ones({2}), there = ones({2}, {.device = kCUDA});
  const std::string text = error_of([&] { (void)add(here, there); });
  CHECK(contains(text, "cpu"));
  CHECK(contains(text, "cuda:0"));
  CHECK_FALSE(error_of([&] { (void)matmul(ones({2, 2}), ones({2, 2}, {.device = kCUDA})); }).empty());
  CHECK(add(there, tensor(1.f)).cpu().sum().item<float>() == 4);  // a 0-dim operand may be on the CPU
  CHECK(mul(tensor(2.f), there).device() == kCUDA);
  if (cuda::device_count() > 1) {
    const std::string far = error_of([&] { (void)add(there, ones({2}, {.device = Device("cuda:1")})); });
    CHECK(contains(far, "cuda:0"));
    CHECK(contains(far, "cuda:1"));
  }
}

TEST_CASE("cuda: tensors move between two devices") {
  NEEDS_CUDA_DEVICES(2)
  const Tensor a = arange(6, {.dtype = kFloat32}).to(kCUDA) * 2, b = a.to(Device("cuda:1"));
  CHECK(b.device() == Device("cuda:1"));
  CHECK((b + 1).sum().item<float>() == 36);
  CHECK(b.to(kCUDA).sum().item<float>() == 30);
}

TEST_CASE("cuda: two threads on two streams") {
  NEEDS_CUDA
  double sums[2] = {};
  const auto work = [&](int id) {
    const cuda::Stream stream;
    const cuda::StreamGuard guard(stream);
    Tensor x = full({257}, id + 1, {.dtype = kFloat64, .device = kCUDA});
    for (int i = 0; i < 50; ++i) {
      const Tensor y = x + 1;
      x = y - 1;
      if (i % 10 == 0) stream.synchronize();
    }
    sums[id] = x.sum().item<double>();
  };
  std::thread first(work, 0), second(work, 1);
  first.join(), second.join();
  CHECK(sums[0] == 257);
  CHECK(sums[1] == 514);
}
