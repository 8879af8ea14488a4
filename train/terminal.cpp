#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "../core/held_signals.h"
#include "../io/file.h"

namespace tapir::inline v0::train {

bool write_text(int fd, std::string_view text) {
  const int error = errno;
  const HeldSignals held;
  std::fflush(stdout);  // what the program printed before comes before
  bool good = true;
  for (int interrupts = 0; good && !text.empty();) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(size_t(n));
    else good = errno == EINTR && ++interrupts < 1000;
  }
  errno = error;
  return good;
}

std::string plain(std::string_view text) {
  std::string out;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const auto c = uint8_t(text[i]);
    length = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    const std::string_view letter = text.substr(i, length);
    if (!io::valid_utf8(letter)) out += '?', length = 1;
    else if (c >= 0x20 && c != 0x7f && !(c == 0xc2 && uint8_t(letter[1]) < 0xa0))
      out += letter;  // not U+0080 to U+009F
  }
  return out;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term && *term && std::string_view(term) != "dumb";
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace tapir::inline v0::train
