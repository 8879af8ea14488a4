// Dtypes and devices: what mixes, what is refused, and what a cast of a hostile number gives.
#include "refused.h"

TEST_CASE("BI-079 mixed dtypes promote as PyTorch's do") {
  const auto typed = [](DType t, Shape shape = {2}) { return ones(shape, {.dtype = t}); };
  CHECK((typed(kInt32) + typed(kFloat16)).dtype() == kFloat16);
  CHECK((typed(kBool) + typed(kUInt8)).dtype() == kUInt8);
  CHECK((typed(kInt8) + typed(kUInt8)).dtype() == kInt16);
  CHECK((typed(kFloat16) + typed(kBFloat16)).dtype() == kFloat32);
  CHECK((typed(kInt64, {}) + typed(kInt8)).dtype() == kInt8);
  CHECK((typed(kFloat64, {}) + typed(kFloat32)).dtype() == kFloat32);
  CHECK((typed(kFloat64, {}) + typed(kInt32)).dtype() == kFloat64);
  CHECK((typed(kInt32) + 1.5).dtype() == kFloat32);
  CHECK((typed(kBool) + 1).dtype() == kInt64);
}

TEST_CASE("BI-085 casts of hostile numbers saturate; NaN becomes 0") {
  const Tensor x = tensor({kNan, kInf, -kInf, 1e30, -1.0});
  for (const DType from : {kFloat64, kFloat32}) {
    CHECK(values(x.to(from).to(kInt32)) == Values{0, 2147483647, -2147483648.0, 2147483647, -1});
    CHECK(values(x.to(from).to(kUInt8)) == Values{0, 255, 0, 255, 0});
    CHECK(x.to(from).to(kInt64).to_vector<int64_t>()[1] == std::numeric_limits<int64_t>::max());
  }
  CHECK(values(x.to(kFloat16).to(kInt16)) == Values{0, 32767, -32768, 32767, -1});
}

TEST_CASE("BI-087 bools do not subtract") {
  const Tensor x = ones({2}, {.dtype = kBool});
  REFUSED(x - x, "sub", "bool");
  REFUSED(-x, "neg", "bool");
}

TEST_CASE("BI-089 dtypes asked by name") {
  REFUSED(dtype_from_name("complex64"), "complex64", "float32", "bool");
  REFUSED(dtype_from_name("qint8"), "qint8", "int8");
}

TEST_CASE("BI-092 BI-093 devices that are not there") {
  if (!cuda::is_available()) {
    std::string text;
    try {
      ones({2}).cuda();
    } catch (const std::exception& e) {
      text = e.what();
    }
    CHECK(mentions(text, {"cuda"}));
    CHECK(!cuda::why_not().empty());
  }
  for (const char* name : {"cuda:-2", "cuda:1x", "gpu", "", "cuda:", "cpu:1x", "cuda:99999999999"}) {
    INFO(name);
    CHECK(missing([&] { Device device(name); }, {name, "cpu"}) == "");
  }
}
