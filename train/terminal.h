#pragma once
#include <string>
#include <string_view>

namespace tapir::inline v0::train {

/// Writes to a file descriptor for people to read. False when nobody reads any more (a closed pipe, a closed
/// descriptor): never a signal, never an exception.
bool write_text(int fd, std::string_view text);
/// A label without control characters, which would move the cursor, break the line or talk to the terminal; broken UTF-8 as question
/// marks, for half a character may become one of those.
std::string plain(std::string_view text);
/// True for a terminal that redraws lines ($TERM is not "dumb").
bool is_terminal(int fd);
/// Columns of the terminal, 80 when unknown.
int columns_of(int fd);

}  // namespace tapir::inline v0::train
