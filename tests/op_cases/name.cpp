#include "name.h"

#include <algorithm>
#include <map>
#include <regex>

namespace op_cases {

/// "linalg.solve_" and "linalg::solve": solve. One of two forms, or names, of a function speaks for the other.
static std::string bare(std::string name) {
  static const std::map<std::string, std::string> others = {
      {"ger", "outer"}, {"moveaxis", "movedim"}, {"triplet_margin_with_distance_loss", "triplet_loss_of_distances"}, {"vdot", "dot"}};
  name.erase(0, name.find_last_of(".:") + 1);
  if (name.ends_with('_')) name.pop_back();
  if (const size_t form = name.find("_with_indices"); form != name.npos) name.erase(form);
  const auto other = others.find(name);
  return other == others.end() ? name : other->second;
}

bool is_one_call(const Case& c) {
  const bool called = c.text.starts_with(c.op) || c.text.starts_with("linalg::" + c.op);
  return called && std::count(c.text.begin(), c.text.end(), '(') == 1 && c.text.find("distance,") == c.text.npos;
}

std::string wrong_name(const Case& c, const std::string& message) {
  if (message.find("[allocate]") != message.npos) return "";  // there is no memory, whoever asks
  if (!message.starts_with('[')) return "no function speaks: " + message;
  const std::string speaks = bare(message.substr(1, message.find(']') - 1)), text = c.op + "(" + c.twin_name + "(" + c.text;
  static const std::regex function("([A-Za-z_][A-Za-z_0-9]*) *\\(");
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at)
    if (bare((*at)[1]) == speaks) return "";
  return is_one_call(c) ? "another function speaks: " + message : "";
}

}  // namespace op_cases
