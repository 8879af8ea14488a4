#include <bit>
#include <cstdio>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "file.h"
#include "pickle.h"
#include "pickle_globals.h"

namespace tapir::inline v0::io::pickle {

// Note [Pickle]
// A pickle is a program for a stack machine with a memo. Ours knows the opcodes that torch.save writes; calls go to the
// functions of kGlobals alone, which are code of ours. Objects are nodes in one arena, named by number, so that shared
// and even cyclic objects are plain data; at the end they become a Value, with a limit on depth and on how much sharing
// may multiply.

namespace {

constexpr size_t kMaxNodes = size_t(1) << 25, kMaxTensors = size_t(1) << 21, kMaxLong = 4096, kMaxKey = size_t(1) << 20;
using Kind = Value::Kind;

enum class NodeKind : uint8_t {
  None,
  Bool,
  Int,
  BigInt,
  Float,
  Text,
  Bytes,
  DType,
  Tensor,
  List,
  Tuple,
  Dict,
  Global,
  Storage
};
using Id = uint32_t;
struct Node {
  NodeKind kind;
  bool ordered = false;  // of a dict: made by OrderedDict(), the one object that takes attributes
  union {
    int64_t integer = 0;  // also the place in one of the side tables
    double number;
  };
};
struct StorageNode {
  std::string_view key;
  DType dtype;
  bool untyped;
  int64_t count;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where, Tensors& tensors)
      : bytes_(bytes), where_(where), tensors_(tensors) {}
  Value run();

 private:
  [[noreturn]] void fail_at(const std::string& what) const {
    fail(ErrorKind::Runtime, "{}: pickle, byte {}: {}", where_, int64_t(op_at_), what);
  }
  void need(bool ok, const char* what) const {
    if (!ok) [[unlikely]]
      fail_at(what);
  }

  // Bytes.
  std::string_view take(uint64_t n) {
    need(n <= bytes_.size() - at_, "expected more bytes, the pickle ends there");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T> T number() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    need(end != bytes_.npos && end - at_ <= 1000, "expected a name that ends with a newline");
    const auto text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  // Nodes.
  Id make(NodeKind kind, int64_t integer = 0) {
    need(nodes_.size() < kMaxNodes, "too many objects");
    Node n{};
    n.kind = kind, n.integer = integer;
    nodes_.push_back(n);
    return Id(nodes_.size() - 1);
  }
  Id make_text(NodeKind kind, std::string_view text) {
    texts_.push_back(text);
    return make(kind, int64_t(texts_.size() - 1));
  }
  Id make_list(NodeKind kind, std::vector<Id> items = {}) {
    lists_.push_back(std::move(items));
    return make(kind, int64_t(lists_.size() - 1));
  }
  Id make_long(std::string_view two_complement);
  Id make_unicode(std::string_view text) {
    need(valid_utf8(text), "expected a text in UTF-8");
    return make_text(NodeKind::Text, text);
  }
  Id make_dict(Id pairs_of);
  Node& node(Id id) { return nodes_[id]; }
  bool is(Id id, NodeKind kind) const { return nodes_[id].kind == kind; }
  std::vector<Id>& list(Id id) { return lists_[size_t(nodes_[id].integer)]; }
  std::string_view text(Id id) const { return texts_[size_t(nodes_[id].integer)]; }
  bool is_list_like(Id id) const { return is(id, NodeKind::List) || is(id, NodeKind::Tuple); }
  int64_t integer(Id id, const char* what) {
    need(is(id, NodeKind::Int), what);
    return node(id).integer;
  }

  // The stack. What lies below the last mark is out of reach.
  void push(Id id) { stack_.push_back(id); }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id top() {
    need(stack_.size() > floor(), "expected a value on the stack, it is empty");
    return stack_.back();
  }
  Id pop() {
    const Id id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_mark() {
    need(!marks_.empty(), "expected a mark on the stack, there is none");
    std::vector<Id> items(stack_.begin() + int64_t(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  Id pop_tuple(size_t n) {
    std::vector<Id> items(n);
    for (size_t i = n; i-- > 0;) items[i] = pop();
    return make_list(NodeKind::Tuple, std::move(items));
  }
  void remember(uint32_t slot) {
    need(memo_.size() < kMaxNodes, "too many memo slots");
    memo_[slot] = top();
  }
  Id recall(uint32_t slot) {
    const auto found = memo_.find(slot);
    need(found != memo_.end(), "expected a memo slot that was set");
    return found->second;
  }

  void step(unsigned char op);
  bool step_value(unsigned char op);
  bool step_container(unsigned char op);
  void append(Id to, const std::vector<Id>& items);
  void set_items(Id to, const std::vector<Id>& items);
  Id find_global(std::string_view module, std::string_view name);
  Id load_storage(Id id);
  Id reduce(Id callee, Id arguments);
  Id encode(const std::vector<Id>& args);
  Id rebuild_tensor(Global how, const std::vector<Id>& args);
  Dims dims(Id id, const char* what);
  void build(Id target, Id state);

  Value convert(Id id, int depth);
  Value convert_dict(const std::vector<Id>& pairs, int depth);
  void append_key(std::string& out, Id id, int depth) const;

  std::string_view bytes_;
  const std::string& where_;
  Tensors& tensors_;
  size_t at_ = 0, op_at_ = 0, cost_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::string_view> texts_;
  std::deque<std::string> owned_;
  std::deque<std::vector<Id>> lists_;
  std::vector<Tensor> tensor_table_;
  std::vector<StorageNode> storages_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, Id> memo_;
};

Value Reader::run() {
  const Id singletons[] = {make(NodeKind::None), make(NodeKind::Bool, 0), make(NodeKind::Bool, 1)};
  (void)singletons;  // numbers 0, 1, 2: they cost nothing however often they stand there
  for (;;) {
    op_at_ = at_;
    need(at_ < bytes_.size(), "expected STOP, the pickle ends there");
    const auto op = static_cast<unsigned char>(bytes_[at_++]);
    if (op == '.') break;
    step(op);
  }
  need(at_ == bytes_.size(), "expected STOP to be the last byte");
  need(stack_.size() == 1 && marks_.empty(), "expected one value on the stack at STOP");
  return convert(stack_[0], 0);
}

Id Reader::make_long(std::string_view b) {
  need(b.size() <= kMaxLong, "expected an integer of at most 4096 bytes");
  while (b.size() > 8 && b[b.size() - 1] == (b[b.size() - 2] & 0x80 ? '\xff' : '\0')) b.remove_suffix(1);
  if (b.size() > 8) return make_text(NodeKind::BigInt, b);
  uint64_t v = !b.empty() && (b.back() & 0x80) ? ~uint64_t(0) : 0;
  for (size_t i = b.size(); i-- > 0;) v = v << 8 | uint8_t(b[i]);
  return make(NodeKind::Int, int64_t(v));
}

void Reader::step(unsigned char op) {
  if (step_value(op) || step_container(op)) return;
  switch (op) {
    case 0x80: {  // PROTO
      const int protocol = number<uint8_t>();
      if (protocol < 2 || protocol > 5) fail_at(tapir::format("expected protocol 2 to 5, got {}", protocol));
      return;
    }
    case 0x95: return void(number<uint64_t>());  // FRAME
    case 'q': return remember(number<uint8_t>());
    case 'r': return remember(number<uint32_t>());
    case 0x94: return remember(uint32_t(memo_.size()));
    case 'h': return push(recall(number<uint8_t>()));
    case 'j': return push(recall(number<uint32_t>()));
    case 'c': {
      const auto module = line();
      return push(find_global(module, line()));
    }
    case 0x93: {  // STACK_GLOBAL
      const Id name = pop(), module = pop();
      need(is(name, NodeKind::Text) && is(module, NodeKind::Text), "expected two texts that name a global");
      return push(find_global(text(module), text(name)));
    }
    case 'Q': return push(load_storage(pop()));
    case 'R':
    case 0x81: {  // REDUCE, NEWOBJ
      const Id arguments = pop(), callee = pop();
      return push(reduce(callee, arguments));
    }
    case 'b': {
      const Id state = pop();
      return build(top(), state);
    }
    default: {
      char code[8];
      std::snprintf(code, sizeof code, "0x%02x", op);
      fail_at(tapir::format("opcode {} is not among those that torch.save writes", code));
    }
  }
}

bool Reader::step_value(unsigned char op) {
  switch (op) {
    case 'N': return push(0), true;
    case 0x89: return push(1), true;
    case 0x88: return push(2), true;
    case 'K': return push(make(NodeKind::Int, number<uint8_t>())), true;
    case 'M': return push(make(NodeKind::Int, number<uint16_t>())), true;
    case 'J': return push(make(NodeKind::Int, number<int32_t>())), true;
    case 0x8a: return push(make_long(take(number<uint8_t>()))), true;
    case 0x8b: return push(make_long(take(number<uint32_t>()))), true;
    case 'G': {
      uint64_t bits = number<uint64_t>(), swapped = 0;
      for (int i = 0; i < 8; ++i) swapped = swapped << 8 | (bits >> 8 * i & 0xff);
      const Id id = make(NodeKind::Float);
      node(id).number = std::bit_cast<double>(swapped);
      return push(id), true;
    }
    case 'X': return push(make_unicode(take(number<uint32_t>()))), true;
    case 0x8c: return push(make_unicode(take(number<uint8_t>()))), true;
    case 0x8d: return push(make_unicode(take(number<uint64_t>()))), true;
    case 'U': return push(make_unicode(take(number<uint8_t>()))), true;  // SHORT_BINSTRING of Python 2
    case 'C': return push(make_text(NodeKind::Bytes, take(number<uint8_t>()))), true;
    case 'B': return push(make_text(NodeKind::Bytes, take(number<uint32_t>()))), true;
    case 0x8e:
    case 0x96: return push(make_text(NodeKind::Bytes, take(number<uint64_t>()))), true;
    default: return false;
  }
}

bool Reader::step_container(unsigned char op) {
  switch (op) {
    case '(': need(marks_.size() < kMaxNodes, "too many marks"); return marks_.push_back(stack_.size()), true;
    case ')': return push(make_list(NodeKind::Tuple)), true;
    case ']': return push(make_list(NodeKind::List)), true;
    case 0x8f: return push(make_list(NodeKind::List)), true;  // EMPTY_SET
    case '}': return push(make_list(NodeKind::Dict)), true;
    case 't': return push(make_list(NodeKind::Tuple, pop_mark())), true;
    case 0x91: return push(make_list(NodeKind::List, pop_mark())), true;  // FROZENSET
    case 0x85: return push(pop_tuple(1)), true;
    case 0x86: return push(pop_tuple(2)), true;
    case 0x87: return push(pop_tuple(3)), true;
    case 'a': {
      const Id item = pop();
      return append(top(), {item}), true;
    }
    case 'e':
    case 0x90: {  // APPENDS, ADDITEMS
      const auto items = pop_mark();
      return append(top(), items), true;
    }
    case 's': {
      const Id value = pop(), key = pop();
      return set_items(top(), {key, value}), true;
    }
    case 'u': {
      const auto items = pop_mark();
      return set_items(top(), items), true;
    }
    default: return false;
  }
}

void Reader::append(Id to, const std::vector<Id>& items) {
  need(is(to, NodeKind::List), "expected a list to append to");
  auto& list_of = list(to);
  list_of.insert(list_of.end(), items.begin(), items.end());
}

void Reader::set_items(Id to, const std::vector<Id>& items) {
  need(is(to, NodeKind::Dict), "expected a dict to set items of");
  need(items.size() % 2 == 0, "expected pairs of keys and values");
  auto& pairs = list(to);
  pairs.insert(pairs.end(), items.begin(), items.end());
}

Id Reader::find_global(std::string_view module, std::string_view name) {
  for (size_t i = 0; i < std::size(kGlobals); ++i) {
    if (kGlobals[i].module != module || kGlobals[i].name != name) continue;
    if (kGlobals[i].global == Global::DType) return make(NodeKind::DType, int64_t(kGlobals[i].dtype));
    return make(NodeKind::Global, int64_t(i));
  }
  fail_at(tapir::format("the file asks for {}.{}, which is not plain data; save a state_dict() instead", shown(module),
                        shown(name)));
}

/// ("storage", type, key, location, count)
Id Reader::load_storage(Id id) {
  need(is(id, NodeKind::Tuple), "expected a persistent id that is a tuple");
  const auto& parts = list(id);
  const bool good = parts.size() >= 5 && is(parts[0], NodeKind::Text) && text(parts[0]) == "storage" &&
                    is(parts[1], NodeKind::Global) && is(parts[2], NodeKind::Text) && is(parts[3], NodeKind::Text) &&
                    is(parts[4], NodeKind::Int);
  need(good, "expected a persistent id (\"storage\", type, key, device, count)");
  const GlobalName& type = kGlobals[node(parts[1]).integer];
  if (type.global != Global::Storage && type.global != Global::UntypedStorage)
    fail_at(tapir::format("storage \"{}\" has the type {}, which Tapir lacks", shown(text(parts[2])), type.name));
  need(node(parts[4]).integer >= 0, "expected a count of elements from 0 on");
  storages_.push_back({text(parts[2]), type.dtype, type.global == Global::UntypedStorage, node(parts[4]).integer});
  return make(NodeKind::Storage, int64_t(storages_.size() - 1));
}

Id Reader::make_dict(Id from) {
  if (is(from, NodeKind::Dict)) {
    std::vector<Id> copy = list(from);
    return make_list(NodeKind::Dict, std::move(copy));
  }
  need(is_list_like(from), "expected a dict, or a list of pairs");
  std::vector<Id> pairs;
  for (const Id pair : list(from)) {
    need(is_list_like(pair) && list(pair).size() == 2, "expected a list of pairs");
    pairs.insert(pairs.end(), list(pair).begin(), list(pair).end());
  }
  return make_list(NodeKind::Dict, std::move(pairs));
}

Id Reader::reduce(Id callee, Id arguments) {
  need(is(callee, NodeKind::Global), "expected a call of a known function");
  need(is(arguments, NodeKind::Tuple), "expected a tuple of arguments");
  const GlobalName& f = kGlobals[node(callee).integer];
  const std::vector<Id>& args = list(arguments);
  const auto wants = [&](bool ok) {
    if (!ok) fail_at(tapir::format("{}.{} called with arguments that it does not take", f.module, f.name));
  };
  switch (f.global) {
    case Global::OrderedDict:
    case Global::Counter: {
      wants(args.size() <= 1);
      const Id out = args.empty() ? make_list(NodeKind::Dict) : make_dict(args[0]);
      node(out).ordered = true;
      return out;
    }
    case Global::Set:
    case Global::Size: {
      wants(args.size() <= 1 && (args.empty() || is_list_like(args[0])));
      auto items = args.empty() ? std::vector<Id>() : list(args[0]);
      return make_list(f.global == Global::Size ? NodeKind::Tuple : NodeKind::List, std::move(items));
    }
    case Global::Device: {
      wants(!args.empty() && args.size() <= 2 && is(args[0], NodeKind::Text));
      if (args.size() == 1) return args[0];
      owned_.push_back(std::string(text(args[0])) + ":" + std::to_string(integer(args[1], "expected a device number")));
      return make_text(NodeKind::Text, owned_.back());
    }
    case Global::Layout: wants(args.size() == 1 && is(args[0], NodeKind::Text)); return args[0];
    case Global::Encode: return encode(args);
    case Global::ByteArray:
      wants(args.empty() || (args.size() == 1 && is(args[0], NodeKind::Bytes)));
      return args.empty() ? make_text(NodeKind::Bytes, {}) : args[0];
    case Global::RebuildTensor:
    case Global::RebuildTensorV2:
    case Global::RebuildTensorV3: return rebuild_tensor(f.global, args);
    case Global::RebuildParameter: {
      wants(args.size() >= 2 && is(args[0], NodeKind::Tensor) && is(args[1], NodeKind::Bool));
      Tensor x = tensor_table_[size_t(node(args[0]).integer)].detach();
      if (node(args[1]).integer && is_floating(x.dtype())) x.requires_grad_();
      tensor_table_.push_back(x);
      return make(NodeKind::Tensor, int64_t(tensor_table_.size() - 1));
    }
    case Global::RebuildFromType: {  // (function, type, arguments, attributes): a tensor with Python attributes
      wants(args.size() == 4 && is(args[0], NodeKind::Global) && is(args[1], NodeKind::Global) &&
            kGlobals[node(args[1]).integer].global == Global::TensorType);
      const Global inner = kGlobals[node(args[0]).integer].global;
      wants(inner >= Global::RebuildTensor && inner <= Global::RebuildParameter);
      return reduce(args[0], args[2]);
    }
    default: fail_at(tapir::format("{}.{} is not called in data", f.module, f.name));
  }
}

/// _codecs.encode(text, "latin1"): how protocol 2 writes bytes.
Id Reader::encode(const std::vector<Id>& args) {
  need(args.size() == 2 && is(args[0], NodeKind::Text) && is(args[1], NodeKind::Text) && text(args[1]) == "latin1",
       "expected _codecs.encode(text, \"latin1\")");
  std::string out;
  const auto from = text(args[0]);
  for (size_t i = 0; i < from.size(); ++i) {
    auto c = static_cast<unsigned char>(from[i]);
    if (c >= 0x80) {
      need(c == 0xC2 || c == 0xC3, "expected a text in Latin-1");
      c = static_cast<unsigned char>(c << 6 | (from[++i] & 0x3f));
    }
    out += char(c);
  }
  owned_.push_back(std::move(out));
  return make_text(NodeKind::Bytes, owned_.back());
}

Dims Reader::dims(Id id, const char* what) {
  need(is_list_like(id) && list(id).size() <= size_t(kMaxRank), what);
  Dims out;
  for (const Id d : list(id)) {
    need(is(d, NodeKind::Int), what);
    out.push_back(node(d).integer);
  }
  return out;
}

/// (storage, offset, sizes, strides[, requires_grad, hooks[, dtype of V3][, metadata]])
Id Reader::rebuild_tensor(Global how, const std::vector<Id>& args) {
  const bool v1 = how == Global::RebuildTensor, v3 = how == Global::RebuildTensorV3;
  need(args.size() >= (v1   ? 4u
                       : v3 ? 7u
                            : 6u) &&
           is(args[0], NodeKind::Storage),
       "expected a tensor of (storage, offset, sizes, strides, ...)");
  const StorageNode& s = storages_[size_t(node(args[0]).integer)];
  TensorRecord record;
  record.storage = s.key, record.storage_count = s.count, record.dtype = s.dtype, record.untyped = s.untyped;
  record.offset = integer(args[1], "expected an offset that is an integer");
  record.sizes = dims(args[2], "expected sizes: at most 16 integers");
  record.strides = dims(args[3], "expected strides: at most 16 integers");
  if (!v1) {
    need(is(args[4], NodeKind::Bool), "expected requires_grad to be a bool");
    record.requires_grad = node(args[4]).integer != 0;
  }
  if (v3) {
    need(is(args[6], NodeKind::DType), "expected a dtype that Tapir has");
    record.dtype = DType(node(args[6]).integer), record.untyped = true;
    need(s.untyped, "expected an untyped storage beside a dtype");
  } else need(!s.untyped, "expected a storage with a dtype");
  if (const size_t last = v3 ? 7 : 6; !v1 && args.size() > last) {  // conjugate and negative views
    const bool plain = is(args[last], NodeKind::None) || (is(args[last], NodeKind::Dict) && list(args[last]).empty());
    need(plain, "expected a tensor without conjugate or negative bits");
  }
  need(tensor_table_.size() < kMaxTensors, "too many tensors");
  Tensor x = tensors_.read(record);
  if (record.requires_grad && is_floating(record.dtype)) x.requires_grad_();
  tensor_table_.push_back(std::move(x));
  return make(NodeKind::Tensor, int64_t(tensor_table_.size() - 1));
}

/// A module's state_dict carries versions as attributes; they are passed over.
void Reader::build(Id target, Id state) {
  need(is(target, NodeKind::Dict) && node(target).ordered && is(state, NodeKind::Dict),
       "expected attributes of an OrderedDict");
}

/// Two keys that Python finds equal have the same text here.
void Reader::append_key(std::string& out, Id id, int depth) const {
  const Node& n = nodes_[id];
  need(depth < kMaxDepth && out.size() < kMaxKey, "a key too deep or too long");
  out += char('a' + int(n.kind));
  switch (n.kind) {
    case NodeKind::None:
    case NodeKind::Bool:
    case NodeKind::Int:
    case NodeKind::DType:
    case NodeKind::Float: out.append(reinterpret_cast<const char*>(&n.integer), 8); return;
    case NodeKind::BigInt:
    case NodeKind::Text:
    case NodeKind::Bytes: out.append(text(id)); return;
    case NodeKind::Tuple:
      for (const Id item : lists_[size_t(n.integer)]) append_key(out, item, depth + 1);
      out += ')';
      return;
    default: fail_at("expected keys that are numbers, texts or tuples");
  }
}

Value Reader::convert_dict(const std::vector<Id>& pairs, int depth) {
  Value out = Value::dict();
  std::unordered_map<std::string, size_t> last;  // of a key that stands twice the last value counts, at the first place
  std::vector<std::pair<Id, Id>> items;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    std::string key;
    append_key(key, pairs[i], 0);
    cost_ += key.size();
    const auto [at, fresh] = last.emplace(std::move(key), items.size());
    if (fresh) items.emplace_back(pairs[i], pairs[i + 1]);
    else items[at->second].second = pairs[i + 1];
  }
  for (const auto& [key, value] : items) {
    Value k = convert(key, depth + 1);
    out.append(std::move(k), convert(value, depth + 1));
  }
  return out;
}

Value Reader::convert(Id id, int depth) {
  need(depth < kMaxDepth, "nested deeper than 200 levels, or within itself");
  ++cost_;
  need(cost_ < (size_t(1) << 22) + 16 * bytes_.size(), "shared objects multiply beyond the limit");
  const Node& n = nodes_[id];
  switch (n.kind) {
    case NodeKind::None: return {};
    case NodeKind::Bool: return n.integer != 0;
    case NodeKind::Int: return n.integer;
    case NodeKind::Float: return n.number;
    case NodeKind::DType: return DType(n.integer);
    case NodeKind::Tensor: return tensor_table_[size_t(n.integer)];
    case NodeKind::BigInt:
    case NodeKind::Text:
    case NodeKind::Bytes:
      cost_ += text(id).size();
      return n.kind == NodeKind::Text    ? Value(text(id))
             : n.kind == NodeKind::Bytes ? Value::bytes(text(id))
                                         : Value::big_int(text(id));
    case NodeKind::List:
    case NodeKind::Tuple: {
      std::vector<Value> items;
      for (const Id item : list(id)) items.push_back(convert(item, depth + 1));
      return n.kind == NodeKind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case NodeKind::Dict: return convert_dict(list(id), depth);
    default: fail_at("expected data, the file holds a bare class, function or storage");
  }
}

}  // namespace

Value read(std::string_view bytes, const std::string& where, Tensors& tensors) {
  return Reader(bytes, where, tensors).run();
}

}  // namespace tapir::inline v0::io::pickle
