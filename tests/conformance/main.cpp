// Replays recorded PyTorch results: conformance [--cases DIR] [--only REGEX] [--device cpu] [--by-op] [--json FILE]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

#include "run.h"
#include "source_dir.h"

namespace fs = std::filesystem;
using namespace conformance;

struct Count {
  int passed = 0, failed = 0, unsupported = 0;
  std::string str() const {
    return std::to_string(passed) + " passed, " + std::to_string(failed) + " failed, " + std::to_string(unsupported) +
           " unsupported";
  }
};

/// The folder with the cases: the option, $TAPIR_CONFORMANCE, or ../shared/conformance beside the repository. Empty: none.
static std::string find_cases(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* env = std::getenv("TAPIR_CONFORMANCE"); env && *env) return env;
  for (const char* base : {"..", TAPIR_SOURCE_DIR "/.."})
    if (fs::exists(fs::path(base) / "shared/conformance")) return (fs::path(base) / "shared/conformance").string();
  return "";
}

int main(int argc, char** argv) {
  CLI::App app("Replays recorded PyTorch results");
  std::string folder, only = ".*", device = "cpu", json_file;
  bool by_op = false, quiet = false;
  app.add_option("--cases", folder, "Folder of case files (default: $TAPIR_CONFORMANCE, else ../shared/conformance)");
  app.add_option("--only", only, "Regular expression on \"family/name/number\"");
  app.add_option("--device", device, "cpu or cuda");
  app.add_flag("--by-op", by_op, "One line for each family/name");
  app.add_flag("--quiet", quiet, "No line for each failure");
  app.add_option("--json", json_file, "Writes every case's outcome to a file");
  CLI11_PARSE(app, argc, argv);
  folder = find_cases(folder);
  if (folder.empty() || !fs::exists(folder)) {
    std::printf("no case files%s%s: set TAPIR_CONFORMANCE or --cases\n0 passed, 0 failed, 0 unsupported\n",
                folder.empty() ? "" : " in ", folder.c_str());
    return 0;
  }
  try {
    backends::cuda::set_cudnn_allow_tf32(false);  // float32 is compared as such
    run_device = Device(device);
    if (run_device.is_cuda() && !cuda::is_available()) throw RuntimeError("no CUDA device: " + cuda::why_not());
    const std::regex pattern(only);
    Runner runner(folder);
    std::map<std::string, Count> families;
    std::map<std::string, std::map<std::string, Count>> names;
    Json report = Json::array();
    std::vector<std::string> files;
    for (auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path().stem().string());
    std::sort(files.begin(), files.end());
    for (const std::string& name : files) {
      const Family family(folder, name);
      for (const Json& json : family.cases) {
        const std::string id = json.value("name", "?");
        if (!std::regex_search(name + "/" + id, pattern)) continue;
        const std::optional<std::string> text = runner.run(family, json);
        for (Count* c : {&families[name], &names[name][id.substr(0, id.rfind('/'))]})
          ++(!text ? c->unsupported : text->empty() ? c->passed : c->failed);
        if (text && !text->empty() && !quiet)
          std::printf("FAILED %s/%s: %s\n", name.c_str(), id.c_str(), text->c_str());
        if (!json_file.empty())
          report.push_back({{"family", name},
                            {"name", id},
                            {"outcome", !text           ? "unsupported"
                                        : text->empty() ? "passed"
                                                        : "failed"},
                            {"text", text.value_or("")}});
      }
    }
    if (families.empty()) throw ValueError("no case in " + folder + " is called like --only " + only);
    Count total;
    for (auto& [family, count] : families) {
      if (by_op)
        for (auto& [name, c] : names[family]) std::printf("%s/%s: %s\n", family.c_str(), name.c_str(), c.str().c_str());
      std::printf("%s: %s\n", family.c_str(), count.str().c_str());
      total.passed += count.passed, total.failed += count.failed, total.unsupported += count.unsupported;
    }
    if (!json_file.empty()) std::ofstream(json_file) << report.dump(1) << "\n";
    std::printf("%s\n", total.str().c_str());
    return total.failed ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "conformance: %s\n", e.what());
    return 2;
  }
}
