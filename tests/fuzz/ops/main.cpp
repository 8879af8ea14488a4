// Random and hostile calls of every operation of the table (tests/op_cases):
//     ops_fuzz [--seconds 60] [--calls N] [--seed S] [--device cuda] [--corpus FOLDER] [--known FILE]
//     ops_fuzz --replay 'LINE'
// A call gives a result or one of Tapir's errors; then it is compared with itself on contiguous copies, compiled, on the device, with the
// table's reference and with finite differences. A finding is made smaller and printed as a line for --replay.
#include <tapir/core/cuda.h>
#include <tapir/core/parallel.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "campaign.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers' own end the process where there is no memory. These throw, and theirs watch malloc as before.
void* operator new(size_t n) {
  constexpr size_t kMost = size_t(1) << 32;
  if (void* const p = n <= kMost ? std::malloc(n ? n : 1) : nullptr) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept { return std::malloc(n ? n : 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace ops_fuzz {

/// Regular expressions, one a line.
static std::vector<std::regex> known_in(const std::vector<std::string>& paths) {
  std::vector<std::regex> out;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) throw RuntimeError("there is no " + path);
    for (std::string line; std::getline(file, line);)
      if (!line.empty() && line[0] != '#') out.emplace_back(line);
  }
  return out;
}

/// The lines of its files, without comments; those that the table does not know any more are counted and left out.
static std::vector<std::string> corpus_of(const std::string& folder, const Lines& lines, int& skipped) {
  std::vector<std::string> out;
  if (folder.empty()) return out;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      try {
        lines.parse(line), out.push_back(line);
      } catch (const ValueError& e) {
        std::printf("skipped: %s\n", e.what()), ++skipped;
      }
    }
  }
  return out;
}

static int replay(const Lines& lines, const std::string& text, const Settings& settings) {
  Counts counts;
  set_num_threads(1);
  const Call call = lines.parse(text);
  const Outcome outcome = run(call, build(call).x);
  std::printf("%s %s\n", name_of(outcome.end), outcome.message.c_str());
  for (const Tensor& y : outcome.y)
    if (y.defined()) std::printf("%s %s\n", std::string(tapir::name_of(y.dtype())).c_str(), y.shape().str().c_str());
  const auto finding = examine(call, {.device = settings.device}, counts);
  if (finding) std::printf("FINDING %s: %s\n", finding->check.c_str(), finding->message.c_str());
  return finding ? 1 : 0;
}

static int fuzz(const Lines& lines, const std::string& folder, const Settings& settings) {
  int skipped = 0;
  const std::vector<std::string> corpus = corpus_of(folder, lines, skipped);
  Campaign campaign(lines, settings);
  campaign.run(corpus);
  const Counts& n = campaign.counts();
  const int findings = int(campaign.found().size()), failed = findings + (n.unclear > 0);
  const auto count = [](int64_t v) { return static_cast<long long>(v); };
  std::printf(
      "%lld results; %lld beside contiguous copies, %lld beside references, %lld backward; %lld calls with known "
      "findings\n",
      count(n.results), count(n.contiguous), count(n.references), count(n.backward), count(campaign.known()));
  std::printf("%lld errors, %lld of them unclear%s%s\n", count(n.errors), count(n.unclear),
              n.unclear ? ", the first: " : "", n.unclear_text);
  std::printf("%lld calls, %lld compiled, %lld on the device, %lld gradients: %d findings\n", count(n.calls),
              count(n.compiled), count(n.device), count(n.gradients), findings);
  std::printf("%d passed, %d failed, %d skipped\n", std::max(int(corpus.size()) + 1 - failed, 0), failed, skipped);
  return failed ? 1 : 0;
}

}  // namespace ops_fuzz

int main(int argc, char** argv) {
  using namespace ops_fuzz;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CLI::App app("Random and hostile calls of every operation");
  Settings settings;
  std::string device, line, corpus;
  std::vector<std::string> known;
  app.add_option("--seed", settings.seed, "Of the random calls");
  app.add_option("--calls", settings.calls, "How many; 0: until the time is over");
  app.add_option("--seconds", settings.seconds, "How long; 0: until the calls are done");
  app.add_option("--device", device, "Compare with cuda too");
  app.add_option("--corpus", corpus, "Folder of calls that run first");
  app.add_option("--known", known,
                 "Files of findings that are not reported: \"CHECK OPERATION FORM\", regular expressions");
  app.add_option("--compiled", settings.compiled, "One call in so many is compiled");
  app.add_option("--gradients", settings.gradient, "One call in so many meets finite differences");
  app.add_option("--replay", line, "One call, as a finding prints it");
  CLI11_PARSE(app, argc, argv);
  try {
    backends::cuda::set_cudnn_allow_tf32(false);  // float32 is compared as such
    if (!device.empty()) settings.device = Device(device);
    settings.known = known_in(known);
    const Lines lines;
    return line.empty() ? fuzz(lines, corpus, settings) : replay(lines, line, settings);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ops_fuzz: %s\n", e.what());
    return 2;
  }
}
