// The main of every Catch2 program, compiled once. It adds `--folder NAME` (the test files of tests/NAME/ alone), behind it `--shard K/N` (of
// these every N-th test case, from the K-th on, for N programs that share them), and ends with one plain line, `N passed, N failed, N skipped`,
// in test cases. Names that no test case has are a failure (Catch2 2 says so of none).
#define CATCH_CONFIG_RUNNER
#include "catch.h"
#include "source_dir.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {
int passed = 0, failed = 0, skipped_count = 0;
bool skipped_now = false;
std::string current;

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

struct Counter : ListenerBase {
  using ListenerBase::ListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    current = info.name;
    skipped_now = false;
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++(stats.totals.assertions.failed > 0 ? failed : skipped_now ? skipped_count : passed);
  }
};
CATCH_REGISTER_LISTENER(Counter)

/// The test cases written in tests/<folder>/, as exact names for Catch's own filter.
std::vector<std::string> of_folder(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests()) {
#if __has_include(<catch2/catch_all.hpp>)
    const auto& info = test.getTestCaseInfo();
#else
    const auto& info = test;
#endif
    if (info.isHidden() || !std::strstr(info.lineInfo.file, ("/tests/" + folder + "/").c_str())) continue;
    names.push_back(tapir_tests::filter_of(info.name));
  }
  return names;
}

std::string quoted_for_shell(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// Were test cases asked for by name, and none has it?
bool ran_nothing(const Catch::ConfigData& asked) {
  return passed + failed + skipped_count == 0 && !asked.testsOrTags.empty() && !asked.listTests && !asked.listTags;
}
}  // namespace

std::string tapir_tests::filter_of(const std::string& name) {
  std::string quoted = "\"";
  for (const char c : name) {
    if (std::strchr("\\,\"", c)) quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string tapir_tests::own_path() {
  char path[PATH_MAX] = {};
  return readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ? "" : path;
}

std::string tapir_tests::own_command() { return TAPIR_EMULATOR " " + quoted_for_shell(own_path()); }

int tapir_tests::run_alone(const std::string& settings, const std::string& name) {
  const std::string command = settings + " " + own_command() + " " + quoted_for_shell(filter_of(name));
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return -1;
  std::string output;
  int good = 0, bad = 0;
  for (char line[4096]; std::fgets(line, sizeof line, pipe); output += line)
    if (int p, f; std::sscanf(line, "%d passed, %d failed, %*d skipped", &p, &f) == 2) good = p, bad = f;
  const int status = pclose(pipe);
  UNSCOPED_INFO(command << '\n' << output);
  return status ? status : good == 0 || bad > 0;
}

void tapir_tests::skipped(int line, const char* why) {
  std::printf("skipped: %s (line %d): %s\n", current.c_str(), line, why);
  skipped_now = true;
}

int main(int argc, char** argv) {
  Catch::Session session;
  std::vector<const char*> arguments;
  std::vector<std::string> names;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--folder") == 0 && i + 1 < argc) {
      const auto found = of_folder(argv[++i]);
      if (found.empty()) return std::fprintf(stderr, "there is no test case in tests/%s/\n", argv[i]), 2;
      names.insert(names.end(), found.begin(), found.end());
    } else if (std::strcmp(argv[i], "--shard") == 0 && i + 1 < argc) {
      size_t k = 0, n = 0;
      if (std::sscanf(argv[++i], "%zu/%zu", &k, &n) != 2 || k >= n || names.size() < n)
        return std::fprintf(stderr, "--shard: expected K/N, K below N, behind a --folder of N test cases or more\n"), 2;
      std::vector<std::string> own;
      for (size_t j = k; j < names.size(); j += n) own.push_back(names[j]);
      names = std::move(own);
    } else {
      arguments.push_back(argv[i]);
    }
  }
  if (const int error = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data())) return error;
  auto& wanted = session.configData().testsOrTags;
  for (const auto& name : names) {
    if (!wanted.empty()) wanted.push_back(",");
    wanted.push_back(name);
  }
  int result = session.run();
  if (ran_nothing(session.configData())) std::fprintf(stderr, "no test case has such a name\n"), result = 2;
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped_count);
  return result;
}
