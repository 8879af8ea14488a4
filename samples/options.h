#pragma once
// The command line of the samples. What was typed wrongly is said before anything is trained, in one line: the option, what was expected
// and what came; the exit status is then not 0.
#include <tapir/tapir.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>

namespace samples {
using namespace tapir;

/// What a text must be for an option: `wrong(text)` is empty, or what was expected.
template <class F> CLI::Validator checked(const std::string& kind, F wrong) {
  const auto say = [wrong](std::string& text) {
    const std::string expected = wrong(text);
    return expected.empty() ? expected : "expected " + expected + ", got \"" + text + "\"";
  };
  return {say, kind};
}
inline CLI::Validator whole(int64_t low, int64_t high = 1'000'000'000) {
  return checked(tapir::format("from {}", low), [=](const std::string& text) -> std::string {
    int64_t n = 0;
    if (!CLI::detail::lexical_cast(text, n) || n < low) return tapir::format("a whole number from {} on", low);
    return n > high ? tapir::format("at most {}", high) : "";
  });
}
inline CLI::Validator positive() {
  return checked("above 0", [](const std::string& text) {
    double x = 0;
    return CLI::detail::lexical_cast(text, x) && x > 0 && std::isfinite(x) ? "" : "a number above 0";
  });
}
inline CLI::Validator share() {
  return checked("0 to 1", [](const std::string& text) {
    double x = 0;
    return CLI::detail::lexical_cast(text, x) && x >= 0 && x <= 1 ? "" : "a number from 0 to 1";
  });
}
inline CLI::Validator device_here() {
  return checked("", [](const std::string& text) -> std::string {
    try {
      return Device(text).is_cpu() || cuda::is_available() ? "" : "a device that is here (" + cuda::why_not() + ")";
    } catch (const ValueError&) {
      return tapir::format("cpu, cuda or cuda:N, with N below the {} devices here", cuda::device_count());
    }
  });
}
/// A folder to write to, which is made where it is missing; empty: none.
inline CLI::Validator folder_to_write() {
  return checked("", [](const std::string& text) {
    std::filesystem::path place = std::filesystem::absolute(text.empty() ? "." : text);
    std::error_code ignored;
    while (!std::filesystem::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
    const bool good = std::filesystem::is_directory(place, ignored) && access(place.c_str(), W_OK) == 0;
    return text.empty() || good ? "" : "a folder that can be written";
  });
}
inline CLI::Validator file_to_read() {
  return checked("", [](const std::string& text) {
    std::error_code ignored;
    const bool good = std::filesystem::is_regular_file(text, ignored) && access(text.c_str(), R_OK) == 0;
    return good ? "" : "a file that can be read";
  });
}
/// A file to write, in a folder that is there; empty: none.
inline CLI::Validator file_to_write() {
  return checked("", [](const std::string& text) {
    const std::filesystem::path place = std::filesystem::absolute(text.empty() ? "." : text);
    std::error_code ignored;
    const bool good = !std::filesystem::is_directory(place, ignored) && place.has_filename() &&
                      std::filesystem::is_directory(place.parent_path(), ignored) &&
                      access(place.parent_path().c_str(), W_OK) == 0;
    return text.empty() || good ? "" : "a file in a folder that can be written";
  });
}
/// f(), whose errors begin with the option that they come from.
template <class F> auto from_option(const std::string& option, F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    throw ValueError(option + ": " + e.what());
  }
}

/// A command line that shows defaults, and says what is wrong with it in one line.
struct App : CLI::App {
  App(const std::string& what, const std::string& name) : CLI::App(what, name) {
    option_defaults()->always_capture_default();
    failure_message([](const CLI::App* app, const CLI::Error& e) { return app->get_name() + ": " + e.what() + "\n"; });
  }
};

struct Options {
  int64_t epochs = 1, batch_size = 64;
  double lr = 1e-3;
  int64_t steps = 0;
  std::string device = "cpu", amp = "off", checkpoint = {}, logdir = {}, plot = {},
              profile = {};  // amp empty: not offered
  bool can_compile = true;   // is --compile offered? Not with collectives, which are no kernels
  bool resume = false, compile = false, explain = false, quantize = false;
  int64_t checkpoint_every = 0, rank = 0;  // a rank above 0 shows and writes nothing
  int threads = 0;
  uint64_t seed = 0;
  std::function<bool(bool)> any_rank = {};  // of many: does one of them say so? All call it together

  amp::AutocastOptions precision() const {
    return {.dtype = amp == "fp16" ? kFloat16 : kBFloat16, .enabled = amp == "fp16" || amp == "bf16"};
  }
  void add_to(App& app) {
    app.add_option("--epochs", epochs, "Passes over the training data")->check(whole(1));
    app.add_option("--batch-size", batch_size, "Samples per step")->check(whole(1));
    app.add_option("--lr", lr, "Learning rate")->check(positive());
    app.add_option("--steps", steps, "Stop after so many steps; 0: do not")->check(whole(0));
    app.add_option("--device", device, "cpu, cuda or cuda:N")->check(device_here());
    if (!amp.empty())
      app.add_option("--amp", amp, "Mixed precision; fp16 with a gradient scaler")
          ->check(CLI::IsMember({"off", "bf16", "fp16"}));
    if (can_compile) {
      app.add_flag("--compile", compile, "Record the training step once, then replay it");
      app.add_flag("--explain", explain, "With --compile: print what was recorded, after the first epoch");
    }
    app.add_option("--threads", threads, "Compute threads; 0: all")->check(whole(0));
    app.add_option("--seed", seed, "Seed of weights, order and dropout")->check(whole(0, INT64_MAX));
    app.add_option("--checkpoint", checkpoint, "Folder for checkpoints after each epoch and on Ctrl-C")
        ->check(folder_to_write());
    app.add_option("--checkpoint-every", checkpoint_every, "Also write one every so many steps; 0: do not")
        ->check(whole(0));
    app.add_flag("--resume", resume, "Go on from the newest checkpoint in that folder");
    app.add_option("--logdir", logdir, "Folder for TensorBoard")->check(folder_to_write());
    app.add_option("--plot", plot, "SVG file with the curves, renewed after each epoch")->check(file_to_write());
    app.add_option("--profile", profile, "Chrome trace of a few steps; a table of them is printed")
        ->check(file_to_write());
  }
  /// What no option is told alone.
  void check_together() const {
    check(!resume || !checkpoint.empty(), "--resume: expected --checkpoint FOLDER with it, got none");
    check(!checkpoint_every || !checkpoint.empty(),
          "--checkpoint-every: expected --checkpoint FOLDER with it, got none");
    check(!explain || compile, "--explain: expected --compile with it, got none");
  }
  /// For loaders that drop what is less than a batch: of fewer samples nothing would be learnt.
  void check_batch(int64_t samples) const {
    check(batch_size <= samples, "--batch-size: expected at most the {} samples there are, got {}", samples,
          batch_size);
  }
};

/// Reads the common options into o, with its values as defaults, sets threads and seed, and runs the program: what it throws is
/// printed, status 1. Options of a sample's own are added to `app` before.
template <class F> int main(App& app, int argc, char** argv, Options& o, F&& program) {
  o.add_to(app);
  CLI11_PARSE(app, argc, argv);
  try {
    o.check_together();
    if (o.threads > 0) set_num_threads(o.threads);
    manual_seed(o.seed);
    return program();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
    return 1;
  }
}

}  // namespace samples
