// Where a run of many cases is, kept in a file: whoever started it goes on behind a case that ended the program or took the device along.
#pragma once
#include <fcntl.h>
#include <tapir/core/cuda.h>
#include <tapir/tapir.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace progress {

/// The exit status of a run that ends because the device answers nothing any more.
constexpr int kLost = 3;

/// After a fault on a GPU every call fails; only a new process helps.
struct DeviceLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline bool answers(tapir::Device device) {
  if (!device.is_cuda()) return true;
  for (int i = 0; i < 2; ++i) try {  // the first call may throw what an earlier case has left
      tapir::cuda::synchronize();
      if (tapir::ones({2}, {.device = device}).sum().item() == 2) return true;
    } catch (const std::exception&) {}
  return false;
}

/// $TAPIR_PLANT is for tests of the one who starts again: "abort:7,hang:8,lost:9" spoils these cases.
class Progress {
 public:
  Progress(const std::string& file, tapir::Device device) : device_(device) {
    if (!file.empty()) file_ = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!file.empty() && file_ < 0) throw std::runtime_error("expected a file to write for --progress, got " + file);
    if (const char* text = std::getenv("TAPIR_PLANT")) plant_ = std::string(",") + text + ",";
  }
  Progress(const Progress&) = delete;
  ~Progress() {
    if (file_ >= 0) close(file_);
  }

  /// Case `index` begins, or a part of it, after so many that passed and failed.
  void at(int64_t index, const std::string& name, int passed, int failed) {
    index_ = index, name_ = name;
    if (file_ >= 0) {
      const std::string line =
          std::to_string(index) + " " + std::to_string(passed) + " " + std::to_string(failed) + "\t" + name + "\n";
      if (pwrite(file_, line.data(), line.size(), 0) != ssize_t(line.size()))
        throw std::runtime_error("--progress cannot be written");
    }
    if (plant_.empty()) return;
    const auto planted = [&](const char* what) {
      return plant_.find(std::string(",") + what + ":" + std::to_string(index) + ",") != std::string::npos;
    };
    if (planted("abort")) std::abort();
    while (planted("hang")) sleep(1);
    planted_ = planted("lost");
  }
  /// After a case: what came of it, unless that was planted. Throws where the device went along.
  std::string checked(const std::string& text) {
    const std::string said = planted_ ? "planted" : text;
    if (!said.empty() && (planted_ || !answers(device_))) throw DeviceLost(said);
    return said;
  }
  /// Says which case it was, and ends the program: destructors would call the device once more.
  [[noreturn]] void end(const DeviceLost& e) {
    std::printf("LOST %lld\t%s: %s\n", static_cast<long long>(index_), name_.c_str(), e.what());
    std::fflush(nullptr);
    std::_Exit(kLost);
  }

 private:
  tapir::Device device_;
  int file_ = -1;
  int64_t index_ = -1;
  std::string name_, plant_;
  bool planted_ = false;
};

}  // namespace progress
