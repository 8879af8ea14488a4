#include "device.h"

#include <charconv>

#include "cuda.h"
#include "error.h"

namespace tapir::inline v0 {

Device::Device(std::string_view text) {
  if (text == "cpu") return;
  type = DeviceType::CUDA;
  if (text == "cuda") return;
  int number = -1;
  if (text.starts_with("cuda:")) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, number);
    if (error != std::errc() || stop != end) number = -1;
  }
  check(number >= 0, "[Device] expected \"cpu\", \"cuda\" or \"cuda:N\", got \"{}\"", text);
  // cuda:0 can be named without a driver, as kCUDA can; it fails when it is used.
  const int count = number > 0 ? cuda::device_count() : 1;
  check(number < (count > 1 ? count : 1), "[Device] expected the index of one of {} CUDA devices, got \"{}\"", count,
        text);
  index = int8_t(number);
}

std::string Device::str() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(int(index)); }

}  // namespace tapir::inline v0
