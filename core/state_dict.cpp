#include "state_dict.h"

#include <algorithm>

#include "checks.h"

namespace tapir::inline v0 {

/// How many letters must be changed, added or left out to make one text of the other (Levenshtein 1966).
static size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

void check_names(std::string_view op, const StateDict& state) {
  std::vector<std::string_view> names;
  for (auto& [n, t] : state) names.push_back(n);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorKind::Value, "[{}] expected each name once, got \"{}\" twice", op, *twice);
}

void StateDict::fail_missing(std::string_view name) const {
  std::vector<std::pair<size_t, std::string_view>> near;
  for (auto& [n, t] : items_) {
    const bool tail = n.ends_with(name) || name.ends_with(n);  // a prefix is missing, or too much
    const size_t distance = tail ? 0 : edits(n, name);
    if (distance <= std::max<size_t>(2, name.size() / 4)) near.emplace_back(distance, n);
  }
  std::stable_sort(near.begin(), near.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::string hint;
  for (size_t i = 0; i < near.size() && i < 3; ++i)
    (hint += i ? ", \"" : "; near it: \"").append(near[i].second) += '"';
  fail(ErrorKind::Value, "[StateDict] expected a tensor named \"{}\", found none among {}{}", name, int64_t(size()),
       hint);
}

}  // namespace tapir::inline v0
