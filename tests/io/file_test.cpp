#include <tapir/io/file.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <thread>

#include <tapir/io/npy.h>
#include <tapir/io/pt.h>
#include <tapir/io/safetensors.h>
#include <tapir/io/shown_path.h>
#include <tapir/train/checkpoint.h>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("BI-240 what is not a readable file is refused with path and reason, and a FIFO never blocks") {
  TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(mentions(message_of<RuntimeError>([&] { io::InputFile("op", folder / "none"); }),
                 {"[op]", "none", "No such file"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::InputFile("op", folder.path); }), {"folder"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::InputFile("op", folder / "fifo"); }), {"FIFO"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::InputFile("op", "/dev/null"); }), {"/dev/null", "device"}));
  CHECK_THROWS_AS(io::InputFile("op", std::string("a\0b", 3)), RuntimeError);
  CHECK_THROWS_AS(io::InputFile("op", ""), RuntimeError);
  spit(folder / "secret", "x");
  chmod((folder / "secret").c_str(), 0);
  if (geteuid() != 0)
    CHECK(mentions(message_of<RuntimeError>([&] { io::InputFile("op", folder / "secret"); }), {"Permission"}));
}

TEST_CASE("reading inside, across and beyond a file") {
  TemporaryFolder folder;
  std::string bytes(700000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i * 7919 >> 5);
  spit(folder / "f", bytes);
  io::InputFile file("op", folder / "f");
  CHECK(file.size() == 700000);
  for (const auto& [at, count] : {std::pair{0, 10}, {262140, 10}, {100, 600000}, {5, 3}, {699999, 1}, {700000, 0}}) {
    std::string part(size_t(count), '?');
    file.read(at, part.data(), count);
    CHECK(part == bytes.substr(size_t(at), size_t(count)));
  }
  char c;
  CHECK_THROWS_AS(file.read(700000, &c, 1), RuntimeError);
  CHECK_THROWS_AS(file.read(-1, &c, 1), RuntimeError);
  CHECK_THROWS_AS(io::read_file("op", folder / "f", 1000), RuntimeError);
  CHECK(io::read_file("op", folder / "f") == bytes);
}

TEST_CASE("BI-266 a file that shrinks while it is read") {
  TemporaryFolder folder;
  spit(folder / "f", std::string(1000000, 'x'));
  io::InputFile file("op", folder / "f");
  REQUIRE(truncate((folder / "f").c_str(), 1000) == 0);
  std::string out(1000000, '\0');
  CHECK(mentions(message_of<RuntimeError>([&] { file.read(0, out.data(), 1000000); }), {"1000", "ends"}));
}

TEST_CASE("BI-313 the k-th call fails: the old file or the new one, no leftovers") {
  for (const int error : {ENOSPC, EIO, EDQUOT, EINTR, 0})
    for (const bool sticky : {false, true}) {
      int k = 1;
      for (bool succeeded = false, reached = true; !succeeded || reached; ++k) {
        TemporaryFolder folder;
        spit(folder / "f", "old");
        std::string message;
        {
          FailingCalls failing(k, error, sticky);
          message = message_of<RuntimeError>([&] { io::write_file("op", folder / "f", "the new content"); });
          reached = failing.reached();
        }
        succeeded = message.empty();
        INFO("call " << k << " error " << error << " sticky " << sticky << ": " << message);
        const auto content = slurp(folder / "f");
        CHECK((content == "old" || content == "the new content"));
        if (succeeded) CHECK(content == "the new content");
        else CHECK(mentions(message, {"[op]", "/f"}));
        if (error == EINTR && !sticky) CHECK(succeeded);
        CHECK(names_in(folder.path).size() == 1);
        REQUIRE(k < 30);
        if (succeeded && !reached) break;
      }
      CHECK(k > 5);
    }
}

TEST_CASE("BI-313 reading: EINTR is retried, EIO is an error") {
  TemporaryFolder folder;
  spit(folder / "f", std::string(5000, 'x'));
  for (int k = 1; k <= 2; ++k) {
    {
      FailingCalls failing(k, EINTR, false);
      CHECK(io::read_file("op", folder / "f").size() == 5000);
    }
    for (const int error : {EIO, EINTR}) {
      FailingCalls failing(k, error, true);
      CHECK_THROWS_AS(io::read_file("op", folder / "f"), RuntimeError);
    }
  }
}

TEST_CASE("BI-313 a full disk") {
  TemporaryFolder folder;
  spit(folder / "f", "old");
  const pid_t child = fork();
  if (child == 0) {  // a limit on file sizes stands in for the full disk
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto message =
        message_of<RuntimeError>([&] { io::write_file("op", folder / "f", std::string(100000, 'x')); });
    _exit(mentions(message, {"write", "/f"}) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(slurp(folder / "f") == "old");
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("BI-314 no folder, a file as folder, a path too long, a folder as target") {
  TemporaryFolder folder;
  spit(folder / "file", "x");
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "none/f", "x"); }),
                 {"none/f", "No such file"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "file/f", "x"); }),
                 {"file/f", "Not a directory"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / std::string(300, 'a'), "x"); }),
                 {"too long"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder.path, "x"); }), {"folder"}));
  CHECK_THROWS_AS(io::write_file("op", "", "x"), RuntimeError);
  CHECK_THROWS_AS(io::write_file("op", "/dev/null", "x"), RuntimeError);
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("BI-316 a temporary of a dead run is reused; one that is a link is not followed") {
  TemporaryFolder folder;
  spit(folder / "f.tmp", std::string(100, 'z'));
  io::write_file("op", folder / "f", "new");
  CHECK(slurp(folder / "f") == "new");
  CHECK(names_in(folder.path).size() == 1);

  spit(folder / "other", "precious");
  REQUIRE(symlink((folder / "other").c_str(), (folder / "f.tmp").c_str()) == 0);
  CHECK_THROWS_AS(io::write_file("op", folder / "f", "newer"), RuntimeError);
  unlink((folder / "f.tmp").c_str());
  REQUIRE(link((folder / "other").c_str(), (folder / "f.tmp").c_str()) == 0);
  io::write_file("op", folder / "f", "newer");
  CHECK(slurp(folder / "f") == "newer");
  CHECK(slurp(folder / "other") == "precious");
}

TEST_CASE("a symbolic link as target stays one") {
  TemporaryFolder folder;
  spit(folder / "real", "old");
  REQUIRE(symlink("real", (folder / "link").c_str()) == 0);
  io::write_file("op", folder / "link", "new");
  CHECK(slurp(folder / "real") == "new");
  struct stat info;
  REQUIRE(lstat((folder / "link").c_str(), &info) == 0);
  CHECK(S_ISLNK(info.st_mode));
  // Also where it names nothing yet, over another link.
  REQUIRE((symlink("second", (folder / "first").c_str()) == 0 &&
           symlink((folder / "later").c_str(), (folder / "second").c_str()) == 0));
  io::write_file("op", folder / "first", "came");
  CHECK(slurp(folder / "later") == "came");
  CHECK((lstat((folder / "first").c_str(), &info) == 0 && S_ISLNK(info.st_mode)));
  CHECK((lstat((folder / "second").c_str(), &info) == 0 && S_ISLNK(info.st_mode)));
  REQUIRE((symlink("loop", (folder / "loop").c_str()) == 0 && symlink("none/f", (folder / "lost").c_str()) == 0));
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "loop", "x"); }),
                 {"loop", "levels of symbolic links"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "lost", "x"); }),
                 {"lost", "No such file"}));
  CHECK(names_in(folder.path).size() == 7);
}

TEST_CASE("BI-315 BI-318 many savers and a reader of one path: always one whole file") {
  TemporaryFolder folder;
  io::write_file("op", folder / "f", std::string(20000, 'a'));
  const auto save = [&](char letter) {
    for (int i = 0; i < 25; ++i) io::write_file("op", folder / "f", std::string(20000, letter));
  };
  const pid_t child = fork();
  if (child == 0) {
    save('p');
    _exit(0);
  }
  std::vector<std::thread> savers;
  for (const char letter : {'b', 'c', 'd'}) savers.emplace_back(save, letter);
  int torn = 0;
  for (int i = 0; i < 200; ++i) {
    const auto content = io::read_file("op", folder / "f");
    torn += content.size() != 20000 || content.find_first_not_of(content[0]) != std::string::npos;
  }
  for (auto& t : savers) t.join();
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(torn == 0);
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("BI-312 SIGKILL at any moment: the old or the new file") {
  TemporaryFolder folder;
  io::write_file("op", folder / "f", std::string(300000, 'a'));
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (char letter = 'b';; letter = letter == 'z' ? 'a' : char(letter + 1))
        io::write_file("op", folder / "f", std::string(300000, letter));
    usleep(useconds_t(300 + round * 211));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto content = slurp(folder / "f");
    REQUIRE(content.size() == 300000);
    REQUIRE(content.find_first_not_of(content[0]) == std::string::npos);
  }
  io::write_file("op", folder / "f", "end");
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("BI-319 an exception in the middle of a save") {
  TemporaryFolder folder;
  spit(folder / "f", "old");
  try {
    io::OutputFile file("op", folder / "f");
    file.write("half of it");
    throw 1;
  } catch (int) {}
  CHECK(slurp(folder / "f") == "old");
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("UTF-8 and what messages show") {
  int64_t bad = -1;
  CHECK(io::valid_utf8("plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80"));
  for (const char* text :
       {"\x80", "\xc0\xaf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    CHECK_FALSE(io::valid_utf8(std::string("12345678") + text, &bad));
  CHECK(bad == 8);
  CHECK(io::shown("a\nb\x7f") == "a\\x0ab\\x7f");
  CHECK(io::shown("\xc3\xa9\xff") == "\\xc3\\xa9\\xff");
  CHECK(io::shown("\xc2\x80_\xc2\x9b"
                  "2J\xc2\xa0\xc3\x9b\xe0\xa0\x80") ==
        "\\xc2\\x80_\\xc2\\x9b"
        "2J\xc2\xa0\xc3\x9b\xe0\xa0\x80");
  CHECK(io::shown_path(std::string(300, 'a') + "\n") == std::string(300, 'a') + "\\x0a");
  CHECK(io::shown(std::string(10'000'000, 'a')).size() < 120);
}

TEST_CASE("messages show the names of files without control characters, and whole") {
  const TemporaryFolder folder;
  const std::string name = folder / ("no\033[31m\nsuch\xc2\x9b" + std::string(100, 'a')),
                    safe = folder / ("no\\x1b[31m\\x0asuch\\xc2\\x9b" + std::string(100, 'a'));
  const auto is_safe = [&](const std::string& text) {
    return mentions(text, {safe.c_str()}) && text.find('\033') == text.npos && text.find('\n') == text.npos;
  };
  CHECK(is_safe(message_of<RuntimeError>([&] { io::read_file("op", name); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { io::write_file("op", name + "/f", ""); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { train::Checkpoint(folder.path).load(name); })));
  spit(name, "no file of any known kind");
  CHECK(is_safe(message_of<RuntimeError>([&] { io::read_file("op", name, 3); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { io::load_safetensors(name); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { io::load_npy(name); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { io::load_npz(name); })));
  CHECK(is_safe(message_of<RuntimeError>([&] { io::load_pt(name); })));
}

TEST_CASE("a limit on the size of files is an error, not a signal that ends the process") {
  TemporaryFolder folder;
  spit(folder / "f", "old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    bool good = true;
    for (int i = 0; i < 2; ++i)
      good &= mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "f", std::string(100000, 'x')); }),
                       {"write", "/f", "File too large"});
    sigset_t mask, pending;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask), sigpending(&pending);
    good &= !sigismember(&mask, SIGXFSZ) && !sigismember(&pending, SIGXFSZ);  // nothing is left behind
    std::thread([&] {                                                         // who holds the signal back keeps it
      sigset_t held;
      sigemptyset(&held), sigaddset(&held, SIGXFSZ);
      pthread_sigmask(SIG_BLOCK, &held, nullptr);
      good &= !message_of<RuntimeError>([&] { io::write_file("op", folder / "f", std::string(100000, 'x')); }).empty();
      sigpending(&pending);
      good &= sigismember(&pending, SIGXFSZ) == 1;
      const timespec none{};
      sigtimedwait(&held, nullptr, &none);
    })
        .join();
    io::write_file("op", folder / "f", "new");
    _exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(slurp(folder / "f") == "new");
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("a close that fails is an error") {
  TemporaryFolder folder;
  {
    const auto saved = io::system_calls();
    io::system_calls().close = [](int fd) { return ::close(fd), errno = EIO, -1; };
    CHECK(mentions(message_of<RuntimeError>([&] { io::write_file("op", folder / "f", "new"); }),
                   {"[op]", "close", "/f"}));
    io::system_calls() = saved;
  }
  CHECK(slurp(folder / "f") == "new");
}

TEST_CASE("the temporary file of a dead saver goes, that of a living one stays") {
  TemporaryFolder folder;
  spit(folder / "f.tmp", "half");
  io::remove_abandoned(folder / "f");
  CHECK(names_in(folder.path).empty());
  io::remove_abandoned(folder / "f");
  {
    io::OutputFile file("op", folder / "f");
    file.write("whole");
    io::remove_abandoned(folder / "f");
    CHECK(names_in(folder.path).size() == 1);
    file.commit();
  }
  CHECK(slurp(folder / "f") == "whole");
  spit(folder / "other", "precious");
  REQUIRE(symlink((folder / "other").c_str(), (folder / "g.tmp").c_str()) == 0);
  io::remove_abandoned(folder / "g");
  CHECK(slurp(folder / "other") == "precious");
}
