#pragma once

namespace tapir::inline v0 {

/// Set while a program is recorded in this thread. `note_host_write` hears of fresh memory that holds numbers which the caller gave, and
/// which are therefore constants; `note_host_access` of memory that the caller takes into its own hands, by data<T>(). What code outside
/// of the kernels computes, a program cannot see.
using NoteHost = void (*)(const void* data);
inline constinit thread_local NoteHost note_host_write = nullptr, note_host_access = nullptr;

}  // namespace tapir::inline v0
