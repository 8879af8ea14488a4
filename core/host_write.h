#pragma once

namespace tapir::inline v0 {

/// Set while a program is recorded in this thread: hears of fresh memory that holds numbers which the caller gave, and which are therefore
/// constants. Other memory that no kernel wrote was computed by code that a program cannot see.
using NoteHostWrite = void (*)(const void* data);
inline constinit thread_local NoteHostWrite note_host_write = nullptr;

}  // namespace tapir::inline v0
