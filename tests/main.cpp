// The main of every Catch2 program, compiled once. It adds `--folder NAME` (the test files of tests/NAME/ alone) and ends with one
// plain line, `N passed, N failed, N skipped`, in test cases.
#define CATCH_CONFIG_RUNNER
#include "catch.h"

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
    if (!std::strstr(info.lineInfo.file, ("/tests/" + folder + "/").c_str())) continue;
    std::string quoted = "\"";
    for (const char c : info.name) {
      if (std::strchr("\\,\"", c)) quoted += '\\';
      quoted += c;
    }
    names.push_back(quoted + '"');
  }
  return names;
}
}  // namespace

void tapir_tests::skipped(int line, const char* why) {
  std::printf("skipped: %s (line %d): %s\n", current.c_str(), line, why);
  skipped_now = true;
}

int main(int argc, char** argv) {
  Catch::Session session;
  std::vector<const char*> arguments;
  std::vector<std::string> names;
  bool by_folder = false;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--folder") == 0 && i + 1 < argc) {
      by_folder = true;
      for (const auto& name : of_folder(argv[++i])) names.push_back(name);
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
  const int result = by_folder && names.empty() ? 0 : session.run();
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped_count);
  return result;
}
