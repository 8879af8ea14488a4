#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "../core/no_copy.h"

namespace tapir::inline v0::train {

struct ProgressOptions {
  std::string unit = "it";
  int fd = 2;                         // standard error: results on standard output stay clean
  bool enabled = true;                // off on every rank but 0
  std::optional<bool> terminal = {};  // by default asked of the system
  double interval = 0.1;              // seconds between redraws on a terminal
  double plain_interval = 10;         // seconds between lines elsewhere
};

/// A line that shows how far a loop is: `epoch 1  45% [====>     ] 211/469  12.3 it/s  00:21 left  loss 0.123`. On a
/// terminal it redraws itself; into a file or a pipe it writes a plain line now and then, without escape codes. When
/// nobody reads, it falls silent.
class ProgressBar : NoCopy {
 public:
  /// `total` 0 or less: unknown.
  ProgressBar(std::string_view label, int64_t total, const ProgressOptions& options = {});
  ~ProgressBar();
  /// True when the next update would be drawn: ask before you make an expensive `text`.
  bool due() const;
  /// `steps` more are done; `text` stands at the end ("loss 0.123").
  void update(int64_t steps = 1, std::string_view text = {});
  /// Takes the bar off the terminal; what is printed next begins a fresh line. The destructor does it too.
  void finish();
  int64_t done() const { return done_; }
  double seconds() const;
  /// Steps per second so far.
  double rate() const;
  /// The line as it would be drawn, at most `columns` wide.
  std::string line(int columns) const;

 private:
  void draw();
  std::string label_, text_;
  int64_t total_, done_ = 0;
  ProgressOptions options_;
  bool terminal_, live_, drawn_ = false;
  double start_, last_draw_;
};

/// "00:21", "1:02:03"
std::string clock_text(double seconds);
/// "12.3", "4567", "0.0123": about three digits.
std::string short_number(double value);

}  // namespace tapir::inline v0::train
