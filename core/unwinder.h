#pragma once
// Note [Two unwinders]
// Errors that the plugin throws are caught by the program, and those of a ScratchPool pass through the plugin. Both are told apart by the
// names of their types, so that two C++ libraries do. Of libgcc there had better be one, the shared one (GCC's manual, -shared-libgcc): a
// program linked with -static-libgcc has an unwinder of its own, whose register table is filled by the first throw of its own, and
// an exception of the plugin's that arrives earlier ends in abort() (_Unwind_SetGR, GCC 12). So each side throws once before. What is left
// where the C++ libraries are two: std::uncaught_exceptions() counts what this side threw less what it caught.

namespace tapir::inline v0 {

[[gnu::visibility("hidden")]] inline void fill_unwinder() {
  try {
    throw 0;
  } catch (int) {}
}

}  // namespace tapir::inline v0
