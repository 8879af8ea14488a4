#include <tapir/io/dlpack.h>
#include <tapir/io/dlpack_abi.h>

#include <tapir/tapir.h>

#include <functional>
#include <limits>
#include <type_traits>

#include "../catch.h"
#include "../errors.h"

using namespace tapir;

namespace {

/// A capsule of another library: float32 (2, 3), row-major. Counts how often it is deleted.
template <class Managed> struct Foreign {
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  int deleted = 0;
  Managed capsule{};
  Foreign() {
    capsule.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    capsule.manager_ctx = this;
    capsule.deleter = [](Managed* m) { ++static_cast<Foreign*>(m->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) capsule.version = {1, 3};
  }
  DLTensor& tensor() { return capsule.dl_tensor; }
};

/// What from_dlpack says of such a capsule with one thing changed; "" unless it was deleted once.
template <class Managed> std::string refusal(const std::function<void(Foreign<Managed>&)>& change) {
  Foreign<Managed> foreign;
  change(foreign);
  const std::string text = error_of([&] { io::from_dlpack(&foreign.capsule); });
  return foreign.deleted == 1 ? text : "";
}
bool mentions(const std::string& text, const char* part) {
  return text.starts_with("[from_dlpack] ") && text.find(part) != std::string::npos;
}
using Versioned = Foreign<DLManagedTensorVersioned>;

}  // namespace

TEMPLATE_TEST_CASE("from_dlpack sees the memory, and gives it back once", "", DLManagedTensor,
                   DLManagedTensorVersioned) {
  Foreign<TestType> foreign;
  foreign.tensor().byte_offset = 4;
  {
    const Tensor x = io::from_dlpack(&foreign.capsule), view = x[1];
    CHECK(x.data<float>() == foreign.data + 1);
    CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
    x[0] = 9;
    CHECK(foreign.data[3] == 9);
    foreign.data[4] = 8;
    CHECK(view[0].item() == 8);
    CHECK(foreign.deleted == 0);
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("from_dlpack: row-major without strides, any strides, no elements, no dimensions, no deleter") {
  Versioned plain, across, none, number;
  plain.tensor().strides = nullptr;
  CHECK(io::from_dlpack(&plain.capsule).strides() == Strides{3, 1});
  across.strides[0] = 1, across.strides[1] = 2;
  CHECK(io::from_dlpack(&across.capsule).to_vector<float>() == std::vector<float>{0, 2, 4, 1, 3, 5});
  none.shape[0] = 0, none.tensor().data = nullptr, none.capsule.deleter = nullptr;
  CHECK(io::from_dlpack(&none.capsule).shape() == Shape{0, 3});
  number.tensor().ndim = 0, number.tensor().shape = number.tensor().strides = nullptr;
  CHECK(io::from_dlpack(&number.capsule).item() == 0);
}

TEST_CASE("to_dlpack and from_dlpack: every dtype, there and back, without a copy") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const Tensor x = ones({3, 4}, {.dtype = DType(i)}).t().slice(0, 1);
    const Tensor now = io::from_dlpack(io::to_dlpack(x)), before = io::from_dlpack(io::to_dlpack_legacy(x));
    for (const Tensor& y : {now, before}) {
      CHECK(y.dtype() == x.dtype());
      CHECK(y.shape() == Shape{3, 3});
      CHECK(y.strides() == x.strides());
      CHECK(y.data_ptr() == x.data_ptr());
    }
  }
}

TEST_CASE("to_dlpack keeps the memory, shape and strides of its call") {
  DLManagedTensorVersioned* m;
  {
    Tensor x = tensor({{1.0, 2.0, 3.0}});
    m = io::to_dlpack(x);
    squeeze_(x, 0);
  }
  CHECK(m->version.major == 1);
  CHECK(m->flags == 0);
  CHECK(m->dl_tensor.ndim == 2);
  CHECK(m->dl_tensor.shape[1] == 3);
  CHECK(static_cast<float*>(m->dl_tensor.data)[2] == 3);
  m->deleter(m);
}

TEST_CASE("BI-097 from_dlpack refuses what it cannot hold, and the deleter runs once") {
  const auto dtype = [](int code, int bits, int lanes) {
    return [=](auto& f) { f.tensor().dtype = {uint8_t(code), uint8_t(bits), uint16_t(lanes)}; };
  };
  const auto both = [](auto change, const char* part) {
    CHECK(mentions(refusal<DLManagedTensorVersioned>(change), part));
    CHECK(mentions(refusal<DLManagedTensor>(change), part));
  };
  both(dtype(kDLFloat, 32, 4), "lanes of 1, got 4");
  both(dtype(kDLFloat, 32, 0), "lanes of 1, got 0");
  both(dtype(5, 64, 1), "dtype code 5 with 64 bits");
  both(dtype(200, 32, 1), "dtype code 200");
  both(dtype(kDLFloat, 24, 1), "with 24 bits");
  both(dtype(kDLUInt, 64, 1), "dtype code 1 with 64 bits");
  both([](auto& f) { f.tensor().device = {DLDeviceType(10), 0}; }, "device type 10");
  both([](auto& f) { f.tensor().device = {kDLCUDA, 0}; }, "cuda:0");
  both([](auto& f) { f.tensor().device = {kDLCUDA, -1}; }, "got -1");
  both([](auto& f) { f.tensor().device = {kDLCUDA, 1000}; }, "got 1000");
  both([](auto& f) { f.tensor().shape = nullptr; }, "null pointer");
  both([](auto& f) { f.tensor().ndim = -1; }, "got -1");
  both([](auto& f) { f.tensor().ndim = 17; }, "ndim from 0 to 16, got 17");
  both([](auto& f) { f.tensor().byte_offset = 2; }, "byte_offset in steps of 4 bytes, got 2");
  both([](auto& f) { f.tensor().byte_offset = std::numeric_limits<uint64_t>::max() - 3; }, "byte_offset");
  both([](auto& f) { f.tensor().data = reinterpret_cast<char*>(f.data) + 1; }, "aligned for float32");
  both([](auto& f) { f.tensor().data = nullptr; }, "got null for shape (2, 3)");
  both([](auto& f) { f.shape[1] = -3; }, "got -3 at dimension 1");
  both([](auto& f) { f.strides[0] = -3; }, "(-3, 1)");
  both([](auto& f) { f.shape[0] = f.shape[1] = int64_t(1) << 40, f.tensor().strides = nullptr; }, "1099511627776");
  both([](auto& f) { f.strides[0] = int64_t(1) << 62; }, "4611686018427387904");
}

TEST_CASE("BI-097 from_dlpack: of another major version only the deleter is touched") {
  for (const uint32_t major : {0u, 2u}) {
    CHECK(mentions(refusal<DLManagedTensorVersioned>([&](Versioned& f) {
                     f.capsule.version.major = major, f.tensor().shape = reinterpret_cast<int64_t*>(8);
                   }),
                   ("got " + std::to_string(major) + ".3").c_str()));
  }
  CHECK(!error_of([] { io::from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }).empty());
  CHECK(!error_of([] { io::from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); }).empty());
}

TEST_CASE("BI-098 to_dlpack refuses what has a history") {
  Tensor x = ones({2}).requires_grad_();
  for (const Tensor& t : {x, x * 2}) {
    CHECK(error_of([&] { (void)io::to_dlpack(t); }).find("can't export tensors that require gradient") !=
          std::string::npos);
    CHECK(!error_of([&] { (void)io::to_dlpack_legacy(t); }).empty());
  }
  CHECK(io::from_dlpack(io::to_dlpack(x.detach())).data_ptr() == x.data_ptr());
  CHECK(!error_of([] { (void)io::to_dlpack({}); }).empty());
  CHECK(!error_of([] { (void)io::to_dlpack_legacy({}); }).empty());
}

TEST_CASE("BI-098 read-only memory is read, and never written") {
  Versioned foreign;
  foreign.capsule.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  {
    Tensor x = io::from_dlpack(&foreign.capsule);
    CHECK((x * 2).sum().item() == 30);
    const auto refused = [](const std::function<void()>& write) {
      const std::string text = error_of(write);
      CHECK(text.find("read-only memory (float32 (2, 3))") != std::string::npos);
    };
    refused([&] { x.add_(1); });
    refused([&] { x.zero_(); });
    refused([&] { x.copy_(ones({2, 3})); });
    refused([&] { uniform_(x); });
    refused([&] {
      NoGrad guard;
      x.mul_(2);
    });
    CHECK(!error_of([&] { x[1] = 5; }).empty());
    CHECK(!error_of([&] { x.view({6}).fill_(5); }).empty());
    refused([&] { embedding(tensor({1}), x, {.max_norm = 0.1}); });
    Tensor w = x.detach().requires_grad_();
    w.set_grad(ones({2, 3}));
    refused([&] { optim::SGD({w}, {.lr = 0.5}).step(); });
    Tensor p = ones({2, 3}).requires_grad_();
    p.set_grad(x.detach());
    refused([&] { (p * 1).sum().backward(); });
    refused([&] { optim::clip_grad_norm_({p}, 0.1); });
    p.set_grad({});
    for (int i = 0; i < 2; ++i) (p * 1).backward(x);  // the gradient is not taken over
    CHECK(p.grad()[1][2].item() == 10);
    CHECK(!error_of([&] { batch_norm(ones({2, 3}), x[0], x[1], {}, {}, {.training = true}); }).empty());
    CHECK(!error_of([&] { (void)io::to_dlpack_legacy(x); }).empty());
    DLManagedTensorVersioned* again = io::to_dlpack(x);
    CHECK((again->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
    again->deleter(again);
  }
  CHECK(foreign.deleted == 1);
  for (int i = 0; i < 8; ++i) CHECK(foreign.data[i] == float(i));
}
