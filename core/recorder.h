#pragma once
#include <string>

#include "modes.h"

namespace tapir::inline v0 {

class Tensor;
struct Storage;

namespace detail {
struct Stamp;

/// Receives what host code does besides calling kernels while a program is recorded: modes.recorder of that thread; null where nothing is
/// recorded. A program holds kernel calls alone, so the recorder refuses what the host does, or writes down what the program depends on.
struct Recorder {
  uint64_t first_node = 0;  // of the graph that the recorded function makes: its sequence number
  /// The host needs values; throws.
  virtual void host_reads(const char* op, const char* file, unsigned line) = 0;
  /// The host does what is no kernel call; throws a ValueError of that text. Neither throws while a program is checked.
  virtual void host_acts(const std::string& text) = 0;
  /// Fresh memory was filled with numbers that the caller gave: they are constants.
  virtual void host_writes(const void* data) = 0;
  /// The caller takes memory into its own hands, by data<T>(): what it computes there, a program cannot see.
  virtual void host_takes(const void* data) = 0;
  /// Before a leaf's gradient changes; `replaced`: nobody looks at the old one.
  virtual void gradient_changes(const Tensor& leaf, bool replaced) = 0;
  /// Somebody asks for a leaf's gradient, which is there.
  virtual void gradient_asked(const Tensor& leaf, const Tensor& gradient) = 0;
  /// Before a tensor in that memory changes its requires_grad.
  virtual void leaf_changes(Storage& storage) = 0;
  /// Host code depends on an object, or is about to change its flag: Note [What a compiled program takes for constant].
  virtual void object_asked(Stamp& stamp) = 0;
  /// backward() enters a node that was made before `first_node`.
  virtual void outer_graph() = 0;
  /// The default generator of this thread begins anew.
  virtual void seeded() = 0;

 protected:
  ~Recorder() = default;
};

}  // namespace detail
}  // namespace tapir::inline v0
