// What the tests of exports share: a module that calls a function, and a folder of exported models that onnxruntime runs where it is
// installed.
#pragma once
#include <sys/wait.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <tapir/io/npy.h>
#include <tapir/onnx/onnx.h>

#include "../catch.h"
#include "../io/temporary.h"
#include "source_dir.h"

namespace tapir_tests {

using tapir::Tensor;

/// A module without parameters that computes f.
template <class F> struct Function : tapir::nn::Module {
  F f;
  explicit Function(F f) : f(f) {}
  auto forward(const Tensor& x) requires requires(F g) { g(x); }
  { return f(x); }
  auto forward(const Tensor& x, const Tensor& y) requires requires(F g) { g(x, y); }
  { return f(x, y); }
  TAPIR_FIELDS()
};

/// A folder of exported models with their inputs and outputs, which one Python process checks.
class Exported {
 public:
  template <class M>
  void add(const std::string& name, M& model, const std::vector<Tensor>& inputs, const tapir::onnx::Options& o = {}) {
    INFO(name);
    const std::string base = folder_ / name;
    tapir::NoGrad guard;
    tapir::onnx::save(model, inputs, base + ".onnx", o);
    model.eval();
    const auto put = [&](const char* kind, const std::vector<Tensor>& list) {
      for (size_t i = 0; i < list.size(); ++i)
        tapir::io::save_npy(base + "." + kind + std::to_string(i) + ".npy", list[i].contiguous());
    };
    put("in", inputs);
    put("out", tapir::onnx::detail::call_with(model, inputs));
  }
  /// 0: all outputs agree; 77: there is no onnxruntime.
  int run() const {
    const char* python = std::getenv("TAPIR_PYTHON");
    const std::string command = std::string(python && *python ? python : "python3") +
                                " " TAPIR_SOURCE_DIR "/tests/onnx/run.py " + folder_.path + " 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return 77;
    char line[4096];
    std::string text;
    while (std::fgets(line, sizeof(line), pipe)) text += line;
    const int status = pclose(pipe);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (code != 0 && code != 77 && code != 127) std::fprintf(stderr, "%s", text.c_str());
    return code == 127 ? 77 : code;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace tapir_tests
