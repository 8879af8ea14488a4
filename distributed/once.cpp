#include "once.h"

#include <charconv>
#include <cstring>

#include "../core/modes.h"

namespace tapir::inline v0::distributed {

std::string words_of_error() {
  try {
    throw;
  } catch (const std::exception& e) {
    if (*e.what()) return e.what();
  } catch (...) {}
  return "an error without words";
}

/// The text of src, on all ranks.
static std::string broadcast_text(const std::string& text, const ProcessGroup& group, int64_t src) {
  Tensor length = empty({1}, {.dtype = kInt64});
  length.data<int64_t>()[0] = int64_t(text.size());
  group.broadcast(length, src);
  Tensor bytes = empty({length.data<int64_t>()[0]}, {.dtype = kUInt8});
  if (group.rank() == src && !text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group.broadcast(bytes, src);
  return std::string(static_cast<const char*>(bytes.data_ptr()), size_t(bytes.numel()));
}

void share_outcome(const ProcessGroup& group, const std::string& error_of_rank_0) {
  const std::string error = broadcast_text(error_of_rank_0, group, 0);
  check_runtime(error.empty() || group.rank() == 0, "[once] rank 0 failed: {}", error);
}

void share_errors(const ProcessGroup& group, const std::string& mine) {
  const auto all = group.all_gather_text(mine);
  for (size_t r = 0; r < all.size(); ++r)
    check_runtime(all[r].empty() || !mine.empty(), "[together] rank {} failed: {}", r, all[r]);
}

StateDict broadcast_state_dict(const StateDict& state, const ProcessGroup& group, int64_t src) {
  NoGrad guard;
  // A line for each tensor: dtype, sizes, ":" and the name, which may hold anything but a line's end. Or "!" and an error.
  std::string list;
  std::exception_ptr mine;
  if (group.rank() == src) try {
      for (const auto& [name, t] : state) {
        check(name.find('\n') == std::string::npos, "[broadcast_state_dict] expected names of one line, got \"{}\"",
              name);
        list += std::to_string(int(t.dtype()));
        for (const int64_t n : t.shape()) list += " " + std::to_string(n);
        list += ":" + name + "\n";
      }
    } catch (...) {
      mine = std::current_exception(), list = "!" + words_of_error();
    }
  list = broadcast_text(list, group, src);
  if (mine) std::rethrow_exception(mine);
  check_runtime(!list.starts_with('!'), "[broadcast_state_dict] rank {} failed: {}", src, list.substr(1));
  StateDict out;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t colon = rest.find(':'), end = rest.find('\n', colon);
    std::vector<int64_t> numbers;
    for (const char *at = rest.data(), *stop = at + colon; at < stop;) {
      int64_t n = 0;
      at = std::from_chars(at, stop, n).ptr + 1;
      numbers.push_back(n);
    }
    const std::string name(rest.substr(colon + 1, end - colon - 1));
    Tensor t = empty(Shape(std::vector(numbers.begin() + 1, numbers.end())), {.dtype = DType(numbers[0])});
    if (group.rank() == src) t.copy_(state.at(name).detach());
    group.broadcast(t, src);
    out.append(name, t);
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace tapir::inline v0::distributed
