// Runs the table: op_cases [--only REGEX] [--mode value|undefined|gradient|autocast|support|docs|perf|difference] [--device cpu] [--list]
// [--progress FILE] [--from N]: FILE says which case runs, by number and name; N is where to go on.
#include <tapir/core/cuda.h>
#include <tapir/ops/checked.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <regex>
#include <set>

#include "modes.h"

namespace op_cases {

static std::string name_of(const Case& c) { return c.family + "/" + c.op + ": " + c.text; }

void Report::at(const Case& c, const std::string& what) { progress_.at(&c - first_, name_of(c) + (what.empty() ? "" : " | ") + what, passed_, failed_); }

void Report::add(const Case& c, const std::string& what, const std::string& given) {
  if (&c != last_) last_ = &c, in_case_ = 0;
  const std::string text = progress_.checked(given);
  if (text.empty()) return void(++passed_);
  ++failed_;
  if (in_case_++ < shown_) std::printf("FAILED %s | %s: %s\n", name_of(c).c_str(), what.c_str(), text.c_str());
}

std::string outcome(const std::function<std::string()>& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string text_of(const std::vector<Shape>& shapes) {
  std::string text;
  for (const Shape& s : shapes) text += (text.empty() ? "" : " ") + s.str();
  return text;
}

static void print_list(const std::vector<const Case*>& cases) {
  std::set<std::string> ops, own;
  for (const Case* c : cases) {
    const char* oracle = c->reference ? "reference" : c->property ? "property" : "float64 alone";
    std::printf("%-10s %-14s %-16s %s\n", c->family.c_str(), oracle, c->op.c_str(), c->text.c_str());
    ops.insert(c->op);
    if (c->reference || c->property) own.insert(c->op);
  }
  std::printf("%d cases of %d operations, %d of them with a reference of their own\n", int(cases.size()), int(ops.size()), int(own.size()));
}

static void run_all(const std::vector<const Case*>& cases, const std::string& mode, const Settings& settings, Report& report) {
  for (const Case* c : cases) {
    if (mode != "autocast" && mode != "support") report.at(*c);
    if (mode == "perf") print_perf(*c, settings);
    if (mode == "value" || mode == "all") {
      check_values(*c, settings, report);
      if (c->twin_call) check_twin(*c, settings, report);
    }
    if (mode == "undefined" || mode == "all") check_undefined(*c, settings, report);
    if (mode == "gradient" || mode == "all") check_gradients(*c, settings, report);
  }
  if (mode == "autocast" || mode == "all") check_autocast(cases, settings, report);
  if (mode == "support" || mode == "all") print_support(cases, settings, report);
}

static int run(const Table& table, const std::vector<const Case*>& cases, const std::string& mode, const Settings& settings, progress::Progress& progress) {
  Report report(table, settings.shown, progress);
  const auto counts = [&](int lost) { std::printf("%d passed, %d failed, %d skipped\n", report.passed(), report.failed() + lost, report.skipped()); };
  try {
    if (mode == "difference") return print_differences(cases, settings, report), 0;
    run_all(cases, mode, settings, report);
  } catch (const progress::DeviceLost& e) {
    if (mode != "difference") counts(1);
    progress.end(e);
  }
  if (fused_checks) std::printf("%lld fused results compared with their composite forms\n", static_cast<long long>(fused_comparisons));
  counts(0);
  return report.failed() ? 1 : 0;
}

}  // namespace op_cases

int main(int argc, char** argv) {
  using namespace op_cases;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was printed before a crash is seen
  CLI::App app("Runs the table of cases for operations");
  std::string only = ".*", mode = "all", device = "cpu", dtype = "float32", progress_file;
  bool list = false;
  Settings settings;
  app.add_option("--only", only, "Regular expression on \"family/op: call\"");
  app.add_option("--mode", mode, "value, undefined, gradient, autocast, support, docs, perf or difference (between cpu and --device); all: the first five")
      ->check(CLI::IsMember({"value", "undefined", "gradient", "autocast", "support", "docs", "perf", "difference", "all"}));
  app.add_option("--device", device, "cpu or cuda");
  app.add_option("--dtype", dtype, "Of perf");
  app.add_option("--shown", settings.shown, "Failures printed for each case");
  app.add_option("--progress", progress_file, "File that says which case runs");
  app.add_option("--from", settings.from, "The first case, by its number in the whole table");
  app.add_flag("--list", list, "Prints the cases, and which have a reference of their own");
  CLI11_PARSE(app, argc, argv);
  try {
    backends::cuda::set_cudnn_allow_tf32(false);  // float32 is compared as such
    settings.device = Device(device), settings.perf_dtype = dtype_from_name(dtype);
    if (settings.device.is_cuda() && !cuda::is_available()) throw RuntimeError("no CUDA device: " + cuda::why_not());
    const std::regex pattern(only);
    const Table table = make_table();
    std::vector<const Case*> chosen;
    for (const Case& c : table.cases())
      if (std::regex_search(name_of(c), pattern)) chosen.push_back(&c);
    if (chosen.empty()) throw ValueError("no case is called like --only " + only);
    std::erase_if(chosen, [&](const Case* c) { return c - table.cases().data() < settings.from; });
    if (list) return print_list(chosen), 0;
    if (mode == "docs") return print_docs(chosen, settings), 0;
    progress::Progress progress(progress_file, settings.device);
    return run(table, chosen, mode, settings, progress);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "op_cases: %s\n", e.what());
    return 2;
  }
}
