// Runs the table, and compares README.md with it. To write the list anew:
//     build/release/tests/tapir_tests "[list of bad inputs]" | sed -n '/^# /,/^===/p' | sed '$d' > tests/bad_inputs/README.md
#include "table.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "source_dir.h"

namespace bad_inputs {

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

namespace {
struct Unexpected : std::logic_error {
  using logic_error::logic_error;
};
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tapir_bad_inputs." + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};
}  // namespace

void expect(bool holds, const char* what) {
  if (!holds) throw Unexpected(std::string("expected ") + what);
}
std::string temporary(const std::string& name) {
  static const Folder folder;
  return (folder.path / name).string();
}

Variable::Variable(const char* name, const std::string& value) : name_(name) {
  if (const char* set = std::getenv(name)) before_ = set;
  ::setenv(name, value.c_str(), 1);
}
Variable::~Variable() {
  if (before_) ::setenv(name_, before_->c_str(), 1);
  else ::unsetenv(name_);
}

namespace {

/// What the entry did: its kind, and the text of the error.
std::pair<std::string, std::string> outcome_of(const Entry& e) {
  try {
    e.run();
  } catch (const OutOfMemoryError& error) {
    return {"O", error.what()};
  } catch (const ValueError& error) {
    return {"V", error.what()};
  } catch (const RuntimeError& error) {
    return {"R", error.what()};
  } catch (const std::exception& error) {
    return {"an exception that is not Tapir's", error.what()};
  } catch (...) {
    return {"an exception that is no std::exception", ""};
  }
  return {"=", ""};
}
const char* mark_of(Outcome o) {
  switch (o) {
    case Outcome::Value: return "V";
    case Outcome::Runtime: return "R";
    case Outcome::OutOfMemory: return "O";
    case Outcome::Fine: break;
  }
  return "=";
}
/// A training step of a small model: 0 where it is what it always is.
double wrong_by() {
  Tensor w = tensor({{1., 2.}, {3., 4.}}).requires_grad_();
  sum(matmul(w, tensor({{1., 0.}, {0., 2.}})) * w).backward();
  return std::abs(w.grad().detach().sum().item() - 32);
}
/// What is wrong with the entry; empty when nothing is.
std::string verdict(const Entry& e) {
  const auto [mark, text] = outcome_of(e);
  if (mark != mark_of(e.outcome)) return std::string("expected ") + mark_of(e.outcome) + ", got " + mark + ": " + text;
  if (mark != "=" && (text.empty() || text[0] != '[')) return "names no operation: " + text;
  if (has(text, "got false") || has(text, "please report")) return "a bare condition: " + text;
  for (const char* word : e.words)
    if (!has(text, word)) return std::string("no \"") + word + "\" in: " + text;
  if (!modes.grad || modes.recorder || modes.autocast) return "a scope was left open";
  return wrong_by() == 0 ? "" : "the next correct call is wrong";
}

std::vector<Entry> sorted_entries() {
  std::vector<Entry> out = entries();
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  return out;
}
/// As a cell of a table in Markdown.
std::string cell(std::string text) {
  for (size_t i = 0; (i = text.find('|', i)) != text.npos; i += 2) text.insert(i, "\\");
  return text;
}
std::string list() {
  std::string out =
      "# Bad inputs\n\n"
      "What users and files must not break, an entry a line. `V`: `ValueError`, `R`: `RuntimeError`, `O`: "
      "`OutOfMemoryError`, `=`: no\n"
      "error, and what the entry expects holds. The message begins with the operation in brackets and holds the words "
      "of the last\n"
      "column. After each entry a correct call gives what it should.\n\n"
      "The entries are the tables of `table_*.cpp`, and a test compares this page with them. To write it anew:\n\n"
      "```sh\n"
      "build/release/tests/tapir_tests \"[list of bad inputs]\" | sed -n '/^# /,/^===/p' | sed '$d' > "
      "tests/bad_inputs/README.md\n"
      "```\n\n"
      "| id | | input | words of the message |\n|---|---|---|---|\n";
  for (const Entry& e : sorted_entries()) {
    out += tapir::format("| BI-{} | {} | `{}` |", e.id, mark_of(e.outcome), cell(e.input));
    for (size_t i = 0; i < e.words.size(); ++i) out += (i ? ", " : " ") + cell(e.words[i]);
    out += " |\n";
  }
  return out;
}

}  // namespace
}  // namespace bad_inputs

TEST_CASE("bad inputs: every entry of the table is refused as it says, or fine") {
  std::set<int> ids;
  for (const bad_inputs::Entry& e : bad_inputs::sorted_entries()) {
    INFO("BI-" << e.id << ": " << e.input);
    CHECK(ids.insert(e.id).second);
#if defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__)  // their `new` ends the process where there is no memory
    if (e.outcome == bad_inputs::Outcome::OutOfMemory) continue;
#endif
    CHECK(bad_inputs::verdict(e) == "");
  }
  CHECK(ids.size() >= 150);
}

TEST_CASE("bad inputs: README.md lists the table") {
  std::ifstream file(TAPIR_SOURCE_DIR "/tests/bad_inputs/README.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  CHECK(page == bad_inputs::list());
}

TEST_CASE("bad inputs: prints the list", "[.][list of bad inputs]") { std::fputs(bad_inputs::list().c_str(), stdout); }
