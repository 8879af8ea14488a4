#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tapir_tests {

/// Text that f prints to stderr.
template <class F> std::string stderr_of(F f) {
  std::FILE* file = std::tmpfile();
  std::fflush(stderr);
  const int before = dup(2);
  dup2(fileno(file), 2);
  f();
  std::fflush(stderr);
  dup2(before, 2);
  close(before);
  std::string text(4096, 0);
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace tapir_tests
