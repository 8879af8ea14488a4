#include "json_value.h"

#include <algorithm>
#include <charconv>

#include "../core/error.h"
#include "file.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

using Token = JsonReader::Token;
using Kind = Value::Kind;

static double to_double(const JsonReader& json) {
  double number = 0;
  const std::string_view digits = json.text();
  if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
    json.fail_at("a number that a double can hold");
  return number;
}

std::string new_json_key(const JsonReader& json, const Value& object) {
  std::string key(json.text());
  if (object.find(key)) json.fail_at("keys that differ");
  if (object.size() == kMaxJsonKeys) json.fail_at("at most 1000 settings");
  return key;
}

Value read_json_value(JsonReader& json, Token first) {
  switch (first) {
    case Token::BeginObject: {
      Value out = Value::dict();
      for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
        const std::string key = new_json_key(json, out);
        out.append(key, read_json_value(json, json.next()));
      }
      return out;
    }
    case Token::BeginArray: {
      std::vector<Value> items;
      for (Token token = json.next(); token != Token::EndArray; token = json.next())
        items.push_back(read_json_value(json, token));
      return Value::list(std::move(items));
    }
    case Token::Number: {
      int64_t integer = 0;
      return json.to_int(integer) ? Value(integer) : Value(to_double(json));
    }
    case Token::True: return true;
    case Token::False: return false;
    case Token::Null: return {};
    default: return std::string(json.text());
  }
}

Value read_json_file(std::string_view op, const std::string& path) {
  const std::string text = read_file(op, path);
  JsonReader json(text, "[" + std::string(op) + "] " + shown_path(path), 32);
  json.expect(Token::BeginObject, "the file");
  Value out = read_json_value(json, Token::BeginObject);
  json.expect(Token::End, "the rest");
  return out;
}

void JsonField::refuse(std::string_view expected) const {
  std::string got = value.kind_name();
  if (value.kind() == Kind::Text) got = "\"" + shown(value.to_text()) + "\"";
  if (value.kind() == Kind::Bool) got = value.to_bool() ? "true" : "false";
  fail(ErrorKind::Runtime, "{}: expected {} as {}, got {}", where, expected, name, got);
}
JsonField JsonField::operator[](std::string_view key) const {
  static const Value none{};
  if (value.kind() != Kind::Dict) refuse("an object");
  const Value* found = value.find(key);
  return {where, name.empty() ? std::string(key) : name + "." + std::string(key), found ? *found : none};
}
std::vector<JsonField> JsonField::items() const {
  if (value.kind() != Kind::List) refuse("a list");
  std::vector<JsonField> out;
  for (const Value& item : value.items()) out.push_back({where, name + "[" + std::to_string(out.size()) + "]", item});
  return out;
}
const std::string& JsonField::text() const {
  if (value.kind() != Kind::Text) refuse("a string");
  return value.to_text();
}
bool JsonField::flag(bool otherwise) const {
  if (!is_none() && value.kind() != Kind::Bool) refuse("true or false");
  return is_none() ? otherwise : value.to_bool();
}
int64_t JsonField::integer() const {
  if (value.kind() != Kind::Int || value.to_int() < 0) refuse("an integer from 0 on");
  return value.to_int();
}
double JsonField::number() const {
  if (value.kind() != Kind::Int && value.kind() != Kind::Float) refuse("a number");
  return value.to_double();
}
void JsonField::only(std::initializer_list<std::string_view> known) const {
  if (value.kind() != Kind::Dict) refuse("an object");
  for (const Value& key : value.keys())
    if (std::find(known.begin(), known.end(), key.to_text()) == known.end())
      fail(ErrorKind::Runtime, "{}: expected no \"{}\" in {}: it is not known here", where, shown(key.to_text()),
           name.empty() ? "the file" : name);
}

}  // namespace tapir::inline v0::io
