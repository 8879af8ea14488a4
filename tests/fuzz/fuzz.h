// What the fuzz targets share: the input as a file in memory, and the rule that a parser may throw RuntimeError and nothing else.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <tapir/core/error.h>

/// Calls read(path) on a file of these bytes.
template <class F> int fuzz(const uint8_t* data, size_t size, F read) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (fd < 0 || (size && pwrite(fd, data, size, 0) != ssize_t(size)) || ftruncate(fd, off_t(size)) != 0) abort();
  try {
    read(path);
  } catch (const tapir::RuntimeError&) {}
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
