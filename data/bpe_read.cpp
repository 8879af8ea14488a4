// tokenizer.json, vocab.json and merges.txt. What would change the tokens and is not known here is an error that names the field.
#include <algorithm>
#include <charconv>
#include <utility>

#include "../core/error.h"
#include "../io/file.h"
#include "../io/json.h"
#include "../io/json_value.h"
#include "bpe_model.h"

namespace tapir::inline v0::data {

namespace {

using io::JsonReader;
using io::read_json_value;
using io::Value;
using Field = io::JsonField;
using Token = JsonReader::Token;
using Kind = Value::Kind;

constexpr int kMaxDepth = 32;

/// The characters that bytes are written as.
std::array<uint32_t, 256> byte_characters() {
  std::array<uint32_t, 256> out = {};
  uint32_t others = 256;
  for (uint32_t b = 0; b < 256; ++b)
    out[b] = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : others++;
  return out;
}

/// The token that a field names by its id.
int32_t id_of(const Field& field) {
  const Value& id = field.value;
  if (id.kind() != Kind::Int || id.to_int() >= BPEModel::kMaxTokens) field.refuse("a token below 4194304");
  return int32_t(id.to_int());
}

class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}
  /// Messages name that file from here on.
  void in_file(std::string where) { where_ = std::move(where); }
  void vocabulary(JsonReader& json);
  void merge_list(JsonReader& json);
  void merge_lines(std::string_view text);
  void settings(const Value& file, const Value& model);
  void special(const std::vector<std::string>& contents);
  void use_gpt2_words() { model_.splits = {SplitPattern::GPT2}; }
  BPEModel finish();

 private:
  void add_token(std::string_view text, int64_t id, std::string_view field);
  void add_merge(std::string_view left, std::string_view right);
  void model_settings(const Field& model);
  void added_tokens(const Field& list);
  void pre_tokenizer(const Field& field);
  void split(const Field& field);
  void decoder(const Field& field);
  void post_processor(const Field& field);
  void template_processor(const Field& field);
  void check_known(const std::vector<int32_t>& ids, const char* field) const;

  std::string where_;
  BPEModel model_;
  std::vector<std::pair<std::string, std::string>> merges_;
  bool byte_level_ = false;
};

void Reader::add_token(std::string_view text, int64_t id, std::string_view field) {
  check_runtime(id < BPEModel::kMaxTokens, "{}: expected tokens below {} in {}, got {} of \"{}\"", where_,
                BPEModel::kMaxTokens, field, id, io::shown(text));
  if (size_t(id) >= model_.by_id.size()) model_.by_id.resize(size_t(id) + 1, -1);
  const BPEToken* taken = model_.find(id);
  check_runtime(!taken, "{}: expected one token for each id in {}, got {} of \"{}\" and of \"{}\"", where_, field, id,
                taken ? io::shown(taken->text) : "", io::shown(text));
  const bool fresh = model_.ids.emplace(text, int32_t(id)).second;
  check_runtime(fresh, "{}: expected every token once in {}, got \"{}\" twice", where_, field, io::shown(text));
  model_.by_id[size_t(id)] = int32_t(model_.tokens.size());
  model_.tokens.push_back({std::string(text), bpe_bytes(text), int32_t(id)});
}

void Reader::vocabulary(JsonReader& json) {
  for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
    const std::string text(json.text());
    json.expect(Token::Number, "the id", text);
    int64_t id = 0;
    if (!json.to_int(id)) json.fail_at("an integer from 0 on as a token's id");
    add_token(text, id, "vocab");
  }
}

void Reader::merge_list(JsonReader& json) {
  for (Token token = json.next(); token != Token::EndArray; token = json.next()) {
    if (token == Token::BeginArray) {
      json.expect(Token::String, "the left half of a merge");
      const std::string left(json.text());
      json.expect(Token::String, "the right half of a merge");
      merges_.emplace_back(left, json.text());
      json.expect(Token::EndArray, "the end of a merge");
    } else {
      const size_t space = token == Token::String ? json.text().find(' ') : std::string_view::npos;
      if (space == std::string_view::npos || json.text().find(' ', space + 1) != std::string_view::npos)
        json.fail_at("two tokens in model.merges");
      merges_.emplace_back(json.text().substr(0, space), json.text().substr(space + 1));
    }
  }
}

/// Lines "left right", the lowest rank first; a first line "#version: 0.2".
void Reader::merge_lines(std::string_view text) {
  for (int64_t line = 1; !text.empty(); ++line) {
    std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (one.empty() || one.starts_with("#version")) continue;
    const size_t space = one.find(' ');
    check_runtime(space != one.npos && one.find(' ', space + 1) == one.npos,
                  "{}: expected two tokens in line {}, got \"{}\"", where_, line, io::shown(one));
    merges_.emplace_back(one.substr(0, space), one.substr(space + 1));
  }
}

void Reader::settings(const Value& file, const Value& model) {
  const Field all{where_, "", file};
  // How many tokens a batch has is the caller's: truncation and padding change no token.
  all.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
            "decoder", "model"});
  model_settings({where_, "model", model});
  if (const Field n = all["normalizer"];
      !n.is_none() && (n["type"].text() != "Sequence" || !n["normalizers"].items().empty()))
    n["type"].refuse("no normalizer");
  if (!all["added_tokens"].is_none()) added_tokens(all["added_tokens"]);
  pre_tokenizer(all["pre_tokenizer"]);
  if (!byte_level_) all["pre_tokenizer"].refuse("one that ends in ByteLevel");
  if (!all["decoder"].is_none()) decoder(all["decoder"]);
  if (!all["post_processor"].is_none()) post_processor(all["post_processor"]);
}

void Reader::model_settings(const Field& model) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!model["type"].is_none() && model["type"].text() != "BPE") model["type"].refuse("\"BPE\"");
  if (const Field dropout = model["dropout"];
      !dropout.is_none() && !(dropout.value.kind() == Kind::Int && dropout.value.to_int() == 0))
    dropout.refuse("null");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Field f = model[affix]; !f.is_none() && !f.text().empty()) f.refuse("null");
  if (model["byte_fallback"].flag(false)) model["byte_fallback"].refuse("false");
  model_.fuse_unknown = model["fuse_unk"].flag(false);
  model_.ignore_merges = model["ignore_merges"].flag(false);
  if (const Field unknown = model["unk_token"]; !unknown.is_none()) {
    const auto found = model_.ids.find(unknown.text());
    if (found == model_.ids.end()) unknown.refuse("a token of the vocabulary");
    model_.unknown = found->second;
  }
}

void Reader::added_tokens(const Field& list) {
  for (const Field& f : list.items()) {
    f.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (f["single_word"].flag(false)) f["single_word"].refuse("false");
    const AddedToken token{f["content"].text(), id_of(f["id"]), f["special"].flag(false), f["lstrip"].flag(false),
                           f["rstrip"].flag(false)};
    const auto known = model_.ids.find(token.content);
    if (known == model_.ids.end()) add_token(token.content, token.id, f.name);
    else
      check_runtime(known->second == token.id, "{}: expected {} as {}, as in the vocabulary, got {}", where_,
                    known->second, f["id"].name, token.id);
    BPEToken& named = model_.tokens[size_t(model_.by_id[size_t(token.id)])];
    named.special = token.special;
    named.bytes = token.content;
    model_.added[f["normalized"].flag(!token.special)].add(token);
  }
}

void Reader::pre_tokenizer(const Field& field) {
  if (field.is_none()) return;
  const std::string type = field["type"].text();
  if (byte_level_) field.refuse("nothing after ByteLevel");
  if (type == "Sequence") {
    field.only({"type", "pretokenizers"});
    for (const Field& f : field["pretokenizers"].items()) pre_tokenizer(f);
  } else if (type == "ByteLevel") {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    byte_level_ = true;
    model_.prefix_space = field["add_prefix_space"].flag(true);
    if (model_.prefix_space && !model_.splits.empty()) field["add_prefix_space"].refuse("false after a split");
    if (field["use_regex"].flag(true)) model_.splits.push_back(SplitPattern::GPT2);
  } else if (type == "Digits") {
    field.only({"type", "individual_digits"});
    model_.splits.push_back(field["individual_digits"].flag(false) ? SplitPattern::Digits : SplitPattern::DigitRuns);
  } else if (type == "Split") {
    split(field);
  } else {
    field["type"].refuse("ByteLevel, Split, Digits or a Sequence of them");
  }
}

/// The patterns known here match every character, so that what is isolated and what is not removed is the same.
void Reader::split(const Field& field) {
  field.only({"type", "pattern", "behavior", "invert"});
  const Field expression = field["pattern"]["Regex"];
  const auto pattern = split_pattern(expression.text());
  if (!pattern) expression.refuse("the pattern of GPT-2, Llama 3 or Qwen 2");
  const std::string& behavior = field["behavior"].text();
  if (behavior != (field["invert"].flag(false) ? "Removed" : "Isolated"))
    field["behavior"].refuse("\"Isolated\" or, inverted, \"Removed\"");
  model_.splits.push_back(*pattern);
}

void Reader::decoder(const Field& field) {
  if (field["type"].text() == "Sequence")
    for (const Field& f : field["decoders"].items()) decoder(f);
  else if (field["type"].text() != "ByteLevel") field["type"].refuse("\"ByteLevel\"");
}

void Reader::post_processor(const Field& field) {
  const std::string type = field["type"].text();
  if (type == "Sequence")
    for (const Field& f : field["processors"].items()) post_processor(f);
  else if (type == "TemplateProcessing") template_processor(field);
  else if (type == "RobertaProcessing" || type == "BertProcessing")
    for (const auto& [key, ids] : {std::pair("cls", &model_.before), std::pair("sep", &model_.after)}) {
      const auto pair = field[key].items();
      if (pair.size() != 2) field[key].refuse("a token and its id");
      ids->push_back(id_of(pair[1]));
    }
  else if (type != "ByteLevel") field["type"].refuse("ByteLevel, TemplateProcessing, RobertaProcessing or a Sequence");
}

/// What `single` has before and after its one Sequence; the form for pairs of texts is not for us.
void Reader::template_processor(const Field& field) {
  std::vector<int32_t> before, after;
  int texts = 0;
  for (const Field& item : field["single"].items()) {
    if (!item["Sequence"].is_none()) {
      ++texts;
      continue;
    }
    const Field ids = field["special_tokens"][item["SpecialToken"]["id"].text()]["ids"];
    for (const Field& id : ids.items()) (texts ? after : before).push_back(id_of(id));
  }
  if (texts != 1) field["single"].refuse("one Sequence");
  model_.before.insert(model_.before.begin(), before.begin(), before.end());
  model_.after.insert(model_.after.end(), after.begin(), after.end());
}

void Reader::special(const std::vector<std::string>& contents) {
  for (const std::string& content : contents) {
    const auto found = model_.ids.find(content);
    if (found == model_.ids.end()) continue;
    BPEToken& token = model_.tokens[size_t(model_.by_id[size_t(found->second)])];
    token.special = true, token.bytes = content;
    model_.added[0].add({content, found->second, true, false, false});
  }
}

void Reader::check_known(const std::vector<int32_t>& ids, const char* field) const {
  for (const int32_t id : ids)
    check_runtime(model_.find(id), "{}: expected tokens of the vocabulary in {}, got {}", where_, field, id);
}

BPEModel Reader::finish() {
  check_known(model_.before, "post_processor"), check_known(model_.after, "post_processor");
  for (size_t i = 0; i < merges_.size(); ++i) {
    const auto& [left, right] = merges_[i];
    int32_t ids[3] = {};
    for (int part = 0; const std::string& text : {left, right, left + right}) {
      const auto found = model_.ids.find(text);
      check_runtime(found != model_.ids.end(),
                    "{}: expected tokens of the vocabulary in merges[{}] (\"{}\", \"{}\"), \"{}\" is none", where_,
                    int64_t(i), io::shown(left), io::shown(right), io::shown(text));
      ids[part++] = found->second;
    }
    model_.merges.insert_or_assign(uint64_t(ids[0]) << 32 | uint32_t(ids[1]), BPEMerge{int32_t(i), ids[2]});
  }
  for (size_t b = 0; b < 256; ++b) {
    const auto found = model_.ids.find(bpe_text(std::string(1, char(b))));
    model_.byte_ids[b] = found == model_.ids.end() ? -1 : found->second;
  }
  return std::move(model_);
}

/// The model of tokenizer.json: what is large is read in place and stands as null among its settings, which are returned.
Value read_model(JsonReader& json, Reader& reader) {
  Value settings = Value::dict();
  for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
    const std::string key = io::new_json_key(json, settings);
    Value value;
    if (key == "vocab") {
      json.expect(Token::BeginObject, "model.vocab");
      reader.vocabulary(json);
    } else if (key == "merges") {
      json.expect(Token::BeginArray, "model.merges");
      reader.merge_list(json);
    } else {
      value = read_json_value(json, json.next());
    }
    settings.append(key, std::move(value));
  }
  if (!settings.find("vocab") || !settings.find("merges")) json.fail_at("a vocab and merges in model");
  return settings;
}

}  // namespace

std::string bpe_text(std::string_view bytes) {
  static const auto characters = byte_characters();
  std::string out;
  for (const char byte : bytes) {
    const uint32_t c = characters[uint8_t(byte)];
    if (c < 0x80) out += char(c);
    else out += {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
  }
  return out;
}

std::string bpe_bytes(std::string_view text) {
  static const auto bytes = [] {
    std::array<int16_t, 324> out;
    out.fill(-1);
    const auto characters = byte_characters();
    for (size_t b = 0; b < 256; ++b) out[characters[b]] = int16_t(b);
    return out;
  }();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    const int byte = c.code < bytes.size() && (c.bytes > 1 || c.code < 0x80) ? bytes[c.code] : -1;
    if (byte < 0) return std::string(text);
    out += char(byte);
    at += c.bytes;
  }
  return out;
}

BPEModel read_tokenizer_json(const std::string& path) {
  const std::string text = io::read_file("BPETokenizer", path), where = "[BPETokenizer] " + path;
  Reader reader(where);
  JsonReader json(text, where, kMaxDepth);
  json.expect(Token::BeginObject, "the file");
  Value settings = Value::dict(), model;
  for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
    const std::string key = io::new_json_key(json, settings);
    if (key == "model") {
      json.expect(Token::BeginObject, "model");
      model = read_model(json, reader);
      settings.append(key, {});
    } else {
      settings.append(key, read_json_value(json, json.next()));
    }
  }
  json.expect(Token::End, "the end of the file");
  reader.settings(settings, model);
  return reader.finish();
}

BPEModel read_vocab_and_merges(const std::string& vocab, const std::string& merges,
                               const std::vector<std::string>& special) {
  const std::string text = io::read_file("BPETokenizer", vocab), lines = io::read_file("BPETokenizer", merges);
  Reader reader("[BPETokenizer] " + vocab);
  JsonReader json(text, "[BPETokenizer] " + vocab, kMaxDepth);
  json.expect(Token::BeginObject, "the vocabulary");
  reader.vocabulary(json);
  json.expect(Token::End, "the end of the file");
  reader.in_file("[BPETokenizer] " + merges);
  reader.merge_lines(lines);
  reader.use_gpt2_words();
  reader.special(special);
  return reader.finish();
}

}  // namespace tapir::inline v0::data
