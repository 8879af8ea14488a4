// Replays recorded PyTorch results: conformance [--cases DIR] [--only REGEX] [--device cpu] [--by-op] [--json FILE]
// [--progress FILE] [--from N]: FILE says which case runs, by number and name; N is where to go on.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

#include "../progress.h"
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

struct Options {
  std::string folder, only = ".*", device = "cpu", json_file, progress;
  int64_t from = 0;
  bool by_op = false, quiet = false;
};

struct Outcomes {
  std::map<std::string, Count> families;
  std::map<std::string, std::map<std::string, Count>> names;
  Json report = Json::array();

  void add(const std::string& family, const std::string& id, const std::optional<std::string>& text, bool quiet) {
    for (Count* c : {&families[family], &names[family][id.substr(0, id.rfind('/'))], &total_})
      ++(!text ? c->unsupported : text->empty() ? c->passed : c->failed);
    if (text && !text->empty() && !quiet) std::printf("FAILED %s/%s: %s\n", family.c_str(), id.c_str(), text->c_str());
    report.push_back({{"family", family},
                      {"name", id},
                      {"outcome", !text           ? "unsupported"
                                  : text->empty() ? "passed"
                                                  : "failed"},
                      {"text", text.value_or("")}});
  }
  const Count& total() const { return total_; }
  int print(const Options& o) const {
    for (auto& [family, count] : families) {
      if (o.by_op)
        for (auto& [name, c] : names.at(family))
          std::printf("%s/%s: %s\n", family.c_str(), name.c_str(), c.str().c_str());
      std::printf("%s: %s\n", family.c_str(), count.str().c_str());
    }
    if (!o.json_file.empty()) std::ofstream(o.json_file) << report.dump(1) << "\n";
    std::printf("%s\n", total_.str().c_str());
    return total_.failed ? 1 : 0;
  }

 private:
  Count total_;
};

static int run_all(const Options& o) {
  backends::cuda::set_cudnn_allow_tf32(false);  // float32 is compared as such
  run_device = Device(o.device);
  if (run_device.is_cuda() && !cuda::is_available()) throw RuntimeError("no CUDA device: " + cuda::why_not());
  const std::regex pattern(o.only);
  Runner runner(o.folder);
  progress::Progress progress(o.progress, run_device);
  Outcomes outcomes;
  std::vector<std::string> files;
  for (auto& entry : fs::directory_iterator(o.folder))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().stem().string());
  std::sort(files.begin(), files.end());
  int64_t index = -1, found = 0;
  for (const std::string& name : files) {
    const Family family(o.folder, name);
    for (const Json& json : family.cases) {
      const std::string id = json.value("name", "?");
      ++index;
      if (!std::regex_search(name + "/" + id, pattern)) continue;
      ++found;
      if (index < o.from) continue;
      progress.at(index, name + "/" + id, outcomes.total().passed, outcomes.total().failed);
      const std::optional<std::string> text = runner.run(family, json);
      try {
        outcomes.add(name, id, text ? std::optional(progress.checked(*text)) : text, o.quiet);
      } catch (const progress::DeviceLost& e) {
        outcomes.add(name, id, e.what(), true);
        outcomes.print(o);
        progress.end(e);
      }
    }
  }
  if (found == 0) throw ValueError("no case in " + o.folder + " is called like --only " + o.only);
  return outcomes.print(o);
}

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was printed before a crash is seen
  CLI::App app("Replays recorded PyTorch results");
  Options o;
  app.add_option("--cases", o.folder, "Folder of case files (default: $TAPIR_CONFORMANCE, else ../shared/conformance)");
  app.add_option("--only", o.only, "Regular expression on \"family/name/number\"");
  app.add_option("--device", o.device, "cpu or cuda");
  app.add_flag("--by-op", o.by_op, "One line for each family/name");
  app.add_flag("--quiet", o.quiet, "No line for each failure");
  app.add_option("--json", o.json_file, "Writes every case's outcome to a file");
  app.add_option("--progress", o.progress, "File that says which case runs");
  app.add_option("--from", o.from, "The first case, by its number among all");
  CLI11_PARSE(app, argc, argv);
  o.folder = find_cases(o.folder);
  if (o.folder.empty() || !fs::exists(o.folder)) {
    std::printf("no case files%s%s: set TAPIR_CONFORMANCE or --cases\n0 passed, 0 failed, 0 unsupported\n",
                o.folder.empty() ? "" : " in ", o.folder.c_str());
    return 0;
  }
  try {
    return run_all(o);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "conformance: %s\n", e.what());
    return 2;
  }
}
