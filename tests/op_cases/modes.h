// What is done with the table.
#pragma once
#include <tapir/core/generator.h>
#include <tapir/core/modes.h>

#include "../progress.h"
#include "case.h"

namespace op_cases {

struct Settings {
  Device device = kCPU;
  int shown = 3;  // failures printed for each case
  int64_t from = 0;
  DType perf_dtype = kFloat32;
};

/// Counts, and prints what fails.
class Report {
 public:
  Report(const Table& table, int shown, progress::Progress& progress) : first_(table.cases().data()), shown_(shown), progress_(progress) {}
  /// The case begins, or a part of it.
  void at(const Case& c, const std::string& what = "");
  /// An empty text: passed.
  void add(const Case& c, const std::string& what, const std::string& text);
  /// Throws where a text was said because the device is lost.
  void check_device(const std::string& text) { progress_.checked(text); }
  void skip() { ++skipped_; }
  int passed() const { return passed_; }
  int failed() const { return failed_; }
  int skipped() const { return skipped_; }

 private:
  const Case* first_;
  int shown_, passed_ = 0, failed_ = 0, skipped_ = 0, in_case_ = 0;
  const Case* last_ = nullptr;
  progress::Progress& progress_;
};

/// Runs f; the text of what it throws, or gives.
std::string outcome(const std::function<std::string()>& f);
/// "(2, 3) (3,)"
std::string text_of(const std::vector<Shape>& shapes);

void check_values(const Case& c, const Settings& s, Report& report);
void check_twin(const Case& c, const Settings& s, Report& report);
void check_undefined(const Case& c, const Settings& s, Report& report);
void check_gradients(const Case& c, const Settings& s, Report& report);
void check_autocast(const std::vector<const Case*>& cases, const Settings& s, Report& report);
void print_support(const std::vector<const Case*>& cases, const Settings& s, Report& report);
void print_docs(const std::vector<const Case*>& cases, const Settings& s);
void print_differences(const std::vector<const Case*>& cases, const Settings& s, Report& report);
void print_perf(const Case& c, const Settings& s);

}  // namespace op_cases
