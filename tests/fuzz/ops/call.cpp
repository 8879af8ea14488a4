#include "call.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

#include "../../op_cases/place.h"

namespace ops_fuzz {

static constexpr const char *kFills[] = {"case", "small", "special", "extreme", "zero"},
                            *kForms[] = {"op", "twin", "reduce", "pair"},
                            *kKinds[] = {"own", "undefined", "moved", "same", "view"};

template <class E, size_t n> static E parse_enum(const char* const (&names)[n], const std::string& text) {
  for (size_t i = 0; i < n; ++i)
    if (text == names[i]) return E(i);
  throw ValueError("expected a call, found the word \"" + text + "\"");
}

int64_t extent_of(const Input& in) {
  int64_t last = in.offset;
  for (int64_t d = 0; d < in.shape.size(); ++d) last += std::max<int64_t>(in.shape[d] - 1, 0) * in.strides[d];
  return last + 1;
}
bool overlaps(const Input& in) { return may_overlap(in.shape, in.strides); }

Lines::Lines() : table_(op_cases::make_table()) {
  static const std::regex opened_argument(R"(argument\(\d+, ("[^"]*"|[^()]*)\))");
  std::map<std::string, int> used;
  std::map<std::string, std::vector<const Case*>> by_operation;
  for (const Case& line : cases()) {
    std::string name = line.family + "/" + line.op + ": " + std::regex_replace(line.text, opened_argument, "$1");
    if (const int n = used[name]++) name += " #" + std::to_string(n + 1);
    names_.push_back(std::move(name));
    by_operation[line.op].push_back(&line);
  }
  for (auto& [name, lines] : by_operation) operations_.push_back(std::move(lines));
}

static std::string text_of(const Dims& dims) {
  std::string text = "(";
  for (int64_t d = 0; d < dims.size(); ++d) text += (d ? "," : "") + std::to_string(dims[d]);
  return text + ")";
}
static Dims parse_dims(const std::string& text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') throw ValueError("expected sizes, found " + text);
  Dims out;
  for (const char* at = text.c_str() + 1; *at && *at != ')';) {
    char* end = nullptr;
    out.push_back(std::strtoll(at, &end, 10));
    if (end == at) throw ValueError("expected sizes, found " + text);
    at = *end == ',' ? end + 1 : end;
  }
  return out;
}

static std::string text_of(const Input& in) {
  std::ostringstream out;
  out << kKinds[int(in.kind)];
  if (in.kind == Kind::Same || in.kind == Kind::View) out << ' ' << in.of;
  if (in.kind == Kind::Own) out << ' ' << name_of(in.dtype);
  if (in.kind == Kind::Own || in.kind == Kind::View)
    out << ' ' << text_of(in.shape) << ' ' << text_of(in.strides) << ' ' << in.offset;
  if (in.kind == Kind::Own) out << ' ' << kFills[int(in.fill)] << ' ' << in.seed << (in.grad ? " grad" : "");
  return out.str();
}
static std::string text_of(const Argument& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return "i" + std::to_string(*i);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "b1" : "b0";
  if (const auto* s = std::get_if<std::string>(&value)) return "s" + *s;
  char text[64];
  std::snprintf(text, sizeof text, "d%a", std::get<double>(value));
  return text;
}
std::string Lines::text(const Call& call) const {
  std::string text = name(*call.line) + " ; " + kForms[int(call.form)];
  for (const Input& in : call.inputs) text += " ; " + text_of(in);
  for (const auto& [k, value] : call.arguments) text += " ; " + std::to_string(k) + "=" + text_of(value);
  return text;
}

static Input parse_input(const std::string& text, const std::vector<Input>& before) {
  std::istringstream words(text);
  std::string word, shape, strides, grad;
  Input in;
  words >> word, in.kind = parse_enum<Kind>(kKinds, word);
  if (in.kind == Kind::Same || in.kind == Kind::View) {
    words >> in.of;
    if (in.of < 0 || in.of >= int(before.size()) || before[size_t(in.of)].kind != Kind::Own)
      throw ValueError("expected the number of an input before this one: " + text);
    const Input& of = before[size_t(in.of)];
    in.dtype = of.dtype, in.shape = of.shape, in.strides = of.strides, in.offset = of.offset;
  }
  if (in.kind == Kind::Own) words >> word, in.dtype = dtype_from_name(word);
  if (in.kind == Kind::Own || in.kind == Kind::View) {
    words >> shape >> strides >> in.offset;
    in.shape = parse_dims(shape), in.strides = parse_dims(strides);
    bool fits = in.shape.size() == in.strides.size() && in.shape.size() <= 16 && in.offset >= 0;
    for (int64_t d = 0; d < in.shape.size() && fits; ++d) fits = in.shape[d] >= 0 && in.strides[d] >= 0;
    if (fits && in.kind == Kind::View) fits = extent_of(in) <= extent_of(before[size_t(in.of)]) + kSpare;
    if (!fits) throw ValueError("expected sizes and strides that stay in the memory: " + text);
  }
  if (in.kind == Kind::Own)
    words >> word >> in.seed >> grad, in.fill = parse_enum<Fill>(kFills, word), in.grad = grad == "grad";
  return in;
}
static Argument parse_argument(const std::string& text) {
  const char* value = text.c_str() + 1;
  switch (text.empty() ? ' ' : text[0]) {
    case 'i': return int64_t(std::strtoll(value, nullptr, 10));
    case 'b': return *value == '1';
    case 's': return std::string(value);
    case 'd': return std::strtod(value, nullptr);
    default: throw ValueError("expected a constant, found " + text);
  }
}
Call Lines::parse(const std::string& text) const {
  std::vector<std::string> parts;
  for (size_t at = 0, end = 0; end != std::string::npos; at = end + 3) {
    end = text.find(" ; ", at);
    parts.push_back(text.substr(at, end == std::string::npos ? end : end - at));
  }
  const auto found = std::find(names_.begin(), names_.end(), parts[0]);
  if (found == names_.end()) throw ValueError("the table has no line \"" + parts[0] + "\"");
  if (parts.size() < 2) throw ValueError("expected a call, found " + text);
  Call call{&cases()[size_t(found - names_.begin())], parse_enum<Form>(kForms, parts[1]), {}, {}};
  for (size_t i = 2; i < parts.size(); ++i) {
    const size_t sign = parts[i].find('=');
    if (sign != std::string::npos) call.arguments[std::stoi(parts[i])] = parse_argument(parts[i].substr(sign + 1));
    else call.inputs.push_back(parse_input(parts[i], call.inputs));
  }
  const bool whole = (call.form != Form::Twin || call.line->twin_call) &&
                     (call.form != Form::Reduce || call.line->reduce) && (call.form != Form::Pair || call.line->pair) &&
                     std::any_of(call.line->shapes.begin(), call.line->shapes.end(),
                                 [&](const auto& set) { return set.size() == call.inputs.size(); });
  if (!whole) throw ValueError("the line of the table takes no such call: " + text);
  return call;
}

}  // namespace ops_fuzz
