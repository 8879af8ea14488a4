#include "progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "../core/error.h"
#include "table.h"
#include "terminal.h"

namespace tapir::inline v0::train {

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

std::string clock_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "--:--";
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[48];
  if (s >= 3600) std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else std::snprintf(text, sizeof text, "%02lld:%02lld", s / 60, s % 60);
  return text;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  const int decimals = !std::isfinite(value) || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 || size == 0 ? 2 : 4;
  return fixed(value, decimals);
}

ProgressBar::ProgressBar(std::string_view label, int64_t total, const ProgressOptions& options)
    : label_(plain(label)), total_(std::max<int64_t>(total, 0)), options_(options),
      terminal_(options.terminal.value_or(is_terminal(options.fd))), live_(options.enabled), start_(now()),
      last_draw_(start_) {
  check(options.interval >= 0 && options.plain_interval >= 0,
        "[ProgressBar] expected interval and plain_interval of at least 0 seconds, got {} and {}", options.interval,
        options.plain_interval);
  options_.unit = plain(options_.unit);
  if (terminal_ && live_) draw();
}

ProgressBar::~ProgressBar() { finish(); }

double ProgressBar::seconds() const { return now() - start_; }

double ProgressBar::rate() const {
  const double s = seconds();
  return s > 0 ? double(done_) / s : 0;
}

bool ProgressBar::due() const {
  return live_ && now() - last_draw_ >= (terminal_ ? options_.interval : options_.plain_interval);
}

void ProgressBar::update(int64_t steps, std::string_view text) {
  done_ += steps;
  if (!text.empty()) text_ = plain(text);
  if (due()) draw();
}

std::string ProgressBar::line(int columns) const {
  const double speed = rate();
  char percent[16] = "";
  if (total_)
    std::snprintf(percent, sizeof percent, " %3d%%",
                  int(std::clamp(100.0 * double(done_) / double(total_), 0.0, 100.0)));
  std::string tail = " " + std::to_string(done_) + (total_ ? "/" + std::to_string(total_) : "") + "  " +
                     short_number(speed) + " " + options_.unit + "/s  ";
  tail += total_ && done_ < total_ ? clock_text(speed > 0 ? double(total_ - done_) / speed : -1) + " left"
                                   : clock_text(seconds());
  if (!text_.empty()) tail += "  " + text_;
  std::string out = label_ + percent;
  const int room = std::min(30, columns - int(out.size() + tail.size()) - 4);
  if (total_ && room >= 5) {
    const int full = int(double(room) * std::clamp(double(done_) / double(total_), 0.0, 1.0));
    out += " [" + std::string(size_t(full), '=');
    if (full < room) out += ">" + std::string(size_t(room - full - 1), ' ');
    out += "]";
  }
  out += tail;
  if (int(out.size()) > columns) out.resize(size_t(std::max(columns, 0)));
  return out;
}

void ProgressBar::draw() {
  last_draw_ = now();
  drawn_ = true;
  // One column less: a full last column wraps on some terminals.
  live_ = write_text(options_.fd, terminal_ ? "\r" + line(columns_of(options_.fd) - 1) + "\x1b[K" : line(120) + "\n");
}

void ProgressBar::finish() {
  if (terminal_ && live_ && drawn_) write_text(options_.fd, "\r\x1b[K");
  live_ = false;
}

}  // namespace tapir::inline v0::train
