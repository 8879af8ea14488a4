#include <tapir/train/progress.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <tapir/train/table.h>
#include <tapir/train/terminal.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {
/// What f(fd) writes into a file.
template <class F> std::string written(F f) {
  TemporaryFolder folder;
  const int fd = open((folder / "out").c_str(), O_RDWR | O_CREAT, 0600);
  f(fd);
  close(fd);
  return slurp(folder / "out");
}
}  // namespace

TEST_CASE("BI-394 no escape codes in files, sparse plain lines") {
  const auto loop = [](double interval) {
    return written([&](int fd) {
      train::ProgressBar bar("epoch 1", 1000, {.fd = fd, .plain_interval = interval});
      for (int i = 0; i < 1000; ++i) bar.update(1, "loss 0.5");
    });
  };
  CHECK(loop(3600).empty());
  const auto lines = loop(0);
  CHECK(lines.find('\x1b') == std::string::npos);
  CHECK(lines.find('\r') == std::string::npos);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 1000);
  CHECK(mentions(lines, {"epoch 1 100%", "1000/1000", "it/s", "loss 0.5"}));
}

TEST_CASE("on a terminal the line redraws at most ten times a second and goes away") {
  const auto text = written([](int fd) {
    train::ProgressBar bar("epoch 1", 100000, {.fd = fd, .terminal = true});
    for (int i = 0; i < 100000; ++i) bar.update();
  });
  CHECK(text.starts_with("\repoch 1   0%"));
  CHECK(text.ends_with("\r\x1b[K"));
  CHECK(std::count(text.begin(), text.end(), '\r') < 20);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(
      written([](int fd) { train::ProgressBar bar("x", 10, {.fd = fd, .enabled = false, .terminal = true}); }).empty());
}

TEST_CASE("what the program printed before a row or a bar comes before it") {
  const auto text = written([](int fd) {
    std::fflush(stdout);
    const int before = dup(1);
    dup2(fd, 1);
    std::printf("data\n");
    train::Table({"loss"}).row({"1"});
    std::printf("more\n");
    train::ProgressBar("epoch", 1, {.fd = 1, .plain_interval = 0}).update();
    std::fflush(stdout);
    dup2(before, 1);
    close(before);
  });
  CHECK(text.find("data\n") == 0);
  CHECK(text.find("more\n") > text.find("loss"));
  CHECK(text.find("more\n") < text.find("epoch"));
}

TEST_CASE("a pseudo-terminal is a terminal, a dumb one is not") {
  const int fd = posix_openpt(O_RDWR | O_NOCTTY);
  if (fd < 0 || grantpt(fd) != 0 || unlockpt(fd) != 0) SKIP_TEST("no pseudo-terminals here");
  const int side = open(ptsname(fd), O_RDWR | O_NOCTTY);
  const char* had = getenv("TERM");
  const std::string before = had ? had : "";
  setenv("TERM", "xterm", 1);
  CHECK(train::is_terminal(side));
  CHECK(train::columns_of(side) >= 1);
  setenv("TERM", "dumb", 1);
  CHECK_FALSE(train::is_terminal(side));
  had ? setenv("TERM", before.c_str(), 1) : unsetenv("TERM");
  close(side);
  close(fd);
}

TEST_CASE("BI-394 a pipe whose reader has gone, a closed descriptor: no signal, and silence") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    train::ProgressBar bar("x", 10, {.fd = ends[1], .terminal = true, .interval = 0});
    for (int i = 0; i < 10; ++i) bar.update();
    const bool silent = !train::write_text(ends[1], "x") && !train::write_text(-1, "x") && !bar.due();
    train::Table({"a"}, ends[1]).row({"1"});
    sigset_t pending;
    sigpending(&pending);
    _exit(silent && !sigismember(&pending, SIGPIPE) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  close(ends[1]);
}

TEST_CASE("the line fits its width, whatever stands in it") {
  train::ProgressBar bar("epoch 1/3", 469, {.enabled = false});
  bar.update(211, "loss 0.1\n\x1b[2J23");
  for (const int width : {0, 1, 10, 40, 60, 80, 200}) CHECK(int(bar.line(width).size()) <= width);
  CHECK(mentions(bar.line(120), {"epoch 1/3  44%", "[", ">", "211/469", "left", "loss 0.1[2J23"}));
  train::ProgressBar unknown("rows", 0, {.unit = "rows", .enabled = false});
  unknown.update(5);
  CHECK(mentions(unknown.line(80), {"rows 5", "rows/s"}));
  CHECK(unknown.line(80).find('%') == std::string::npos);
  train::ProgressBar beyond("x", 2, {.enabled = false});
  beyond.update(5);
  CHECK(mentions(beyond.line(80), {"100%", "5/2"}));
  beyond.update(-50);
  CHECK(mentions(beyond.line(80), {"0%"}));
}

TEST_CASE("times and numbers for people") {
  CHECK(train::clock_text(0) == "00:00");
  CHECK(train::clock_text(21.4) == "00:21");
  CHECK(train::clock_text(3723) == "1:02:03");
  CHECK(train::clock_text(-1) == "--:--");
  CHECK(train::clock_text(1e300) == "--:--");
  CHECK(train::short_number(0) == "0.00");
  CHECK(train::short_number(0.01234) == "0.0123");
  CHECK(train::short_number(12.34) == "12.3");
  CHECK(train::short_number(45678.9) == "45679");
  CHECK(train::fixed(98.756, 2) == "98.76");
  CHECK(train::fixed(1e300, 2).size() > 300);
  CHECK(train::bytes_text(340) == "340 B");
  CHECK(train::bytes_text(12.04e6) == "12.0 MB");
  CHECK(train::bytes_text(1.5e9) == "1.50 GB");
}

TEST_CASE("a table: header once, columns aligned") {
  const auto text = written([](int fd) {
    train::Table table({"epoch", "train loss"}, fd, 6);
    table.row({"1", "0.25"});
    table.row({"2", "0.125"});
  });
  CHECK(text == " epoch  train loss\n     1        0.25\n     2       0.125\n");
  CHECK_THROWS_AS(train::Table({"a", "b"}).line({"1"}), ValueError);
}

TEST_CASE("labels and texts bring no control characters to the terminal") {
  const std::string evil =
      "a\x1b]0;title\x07\x1b[2J\n\r\x7f\xc2\x9b"
      "31mb\xc3\xa9";  // C0, DEL, C1 in UTF-8; e acute stays
  CHECK(train::plain(evil) == "a]0;title[2J31mb\xc3\xa9");
  // What is left out must not make one of what stands around it, and no byte stands for it alone.
  CHECK(train::plain("\xc2\x1b\x9b"
                     "2J") == "??2J");
  CHECK(train::plain("a\x9b"
                     "2J\xe0\x82\x9b\xf0\x9f\xa6\x9b\xc2\x9b\xc2\xa0\xc2") == "a?2J???\xf0\x9f\xa6\x9b\xc2\xa0?");
  const auto bar = written([&](int fd) {
    train::ProgressBar bar(evil, 10, {.unit = evil, .fd = fd, .plain_interval = 0});
    bar.update(1, evil);
  });
  const auto table = written([&](int fd) {
    train::Table table({evil, "b"}, fd);
    table.row({"1", evil});
  });
  for (const std::string& text : {bar, table}) {
    CHECK(std::none_of(text.begin(), text.end(), [](char c) { return (uint8_t(c) < 0x20 && c != '\n') || c == 0x7f; }));
    CHECK(text.find("\xc2\x9b") == std::string::npos);
    CHECK(text.find("a]0;title[2J31mb\xc3\xa9") != std::string::npos);
  }
  CHECK(std::count(bar.begin(), bar.end(), '\n') == 1);
  CHECK(std::count(table.begin(), table.end(), '\n') == 2);
}

TEST_CASE("an interval is a number of seconds") {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -1.}) {
    CHECK(mentions(message_of<ValueError>([&] { train::ProgressBar("x", 10, {.interval = bad}); }),
                   {"[ProgressBar]", "interval"}));
    CHECK(mentions(message_of<ValueError>([&] { train::ProgressBar("x", 10, {.plain_interval = bad}); }),
                   {"[ProgressBar]", "plain_interval"}));
  }
}
