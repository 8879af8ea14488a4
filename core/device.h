#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tapir::inline v0 {

enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr int kNumDeviceTypes = 2;
inline constexpr int kMaxDevices = 16;  // of one type

/// Where a tensor lives: kCPU, kCUDA (the first CUDA device), or a text such as "cuda:1" wherever a device is asked for.
struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;
  constexpr Device() = default;
  constexpr Device(DeviceType type, int8_t index = 0) : type(type), index(index) {}
  /// Reads "cpu", "cuda", "cuda:N"; anything else is a ValueError.
  Device(std::string_view text);
  Device(const std::string& text) : Device(std::string_view(text)) {}
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(std::nullptr_t) = delete;
  constexpr bool operator==(const Device&) const = default;
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  std::string str() const;
};
inline constexpr Device kCPU{DeviceType::CPU}, kCUDA{DeviceType::CUDA};

}  // namespace tapir::inline v0
