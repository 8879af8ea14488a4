#include "fused_source.h"

#include <vector>

#include "../../core/error.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

std::string text(int64_t v) { return std::to_string(v); }
const char* name_of_type(DType t) {
  constexpr const char* names[] = {"float",   "double",  "Half",   "BFloat16", "int64_t",
                                   "int32_t", "int16_t", "int8_t", "uint8_t",  "bool"};
  return names[int(t)];
}

/// Where a value is known: of the call, of a row (once the folds of earlier stages are done), of an element.
enum class Scope : uint8_t { Call, Row, Element };

class Writer {
 public:
  Writer(const FusedLayout& layout, const FusedParams& params) : l_(layout), p_(params), count_(int(params.count)) {
    int word = number_word(layout);
    for (int i = 0; i < count_; ++i) {
      const DType type = computes_in(params, i);
      const FusedNumbers& n = numbers_.emplace_back(numbers_of(params.steps[i], type));
      types_.push_back(type), first_number_.push_back(word);
      for (int k = 0; k < n.count; ++k) word += n.of[k].kind == FusedNumber::Kind::Argument;
      find_scope(i);
    }
    words_ = word;
  }
  std::string kernel(const std::string& name);

 private:
  const FusedStep& step(int i) const { return p_.steps[i]; }
  bool is(int i, FusedKind kind) const { return step(i).kind == kind; }
  /// The input that step i loads.
  int input(int i) const { return l_.outputs + step(i).operand[0]; }
  void find_scope(int i);
  std::string word(int at) const { return "a.words[" + text(at) + "]"; }
  std::string pointer(int operand, const std::string& offset) const;
  std::string number(int i, int which) const;
  std::string numbers(int i, const char* type) const;
  std::string expression(int i, const std::string& element) const;
  void line(const std::string& s) { out_.append(size_t(indent_) * 2, ' ') += s + "\n"; }
  void open(const std::string& s) { line(s + " {"), ++indent_; }
  void close() { --indent_, line("}"); }
  void value(int i, const std::string& element) {
    line(std::string("const ") + name_of_type(step(i).type) + " v" + text(i) + " = " + expression(i, element) + ";");
  }
  void values(Scope scope, int stage);
  void offsets(int first, int last, const char* index, const std::vector<bool>& wanted, const std::string& base,
               const std::string& name);
  std::vector<bool> needed(const std::vector<int>& targets) const;
  void elements(const std::vector<int>& targets, bool stores);
  void row();
  int stages() const;

  const FusedLayout& l_;
  const FusedParams& p_;
  int count_, words_ = 0, indent_ = 0;
  std::vector<DType> types_;
  std::vector<FusedNumbers> numbers_;
  std::vector<int> first_number_;
  std::vector<Scope> scope_;
  std::vector<int> stage_;  // how many folds stand before a value, one behind the other
  std::string out_;
};

void Writer::find_scope(int i) {
  const FusedStep& s = step(i);
  Scope scope = Scope::Call;
  int stage = 0;
  const auto follow = [&](int k) {
    scope = std::max(scope, scope_[size_t(k)]), stage = std::max(stage, stage_[size_t(k)]);
  };
  if (s.kind == FusedKind::Load) {
    const Place place = l_.place[input(i)];
    scope = place == Place::One ? Scope::Call : place == Place::Row ? Scope::Row : Scope::Element;
  } else {
    for (int k = 0; k < s.arity(); ++k) follow(s.operand[k]);
  }
  if (s.kind == FusedKind::Keep) {
    if (s.operand[0] != i) follow(s.operand[0]);
    scope = Scope::Element;
  }
  if (s.kind == FusedKind::Reduce) {
    check_internal(l_.rows, "[fused] expected rows where a step reduces, got {}", p_.row_dims);
    scope = Scope::Row, ++stage;
  }
  scope_.push_back(scope), stage_.push_back(stage);
}

int Writer::stages() const {
  int most = 0;
  for (const int s : stage_) most = std::max(most, s);
  return most;
}

/// The operand's elements from that offset on.
std::string Writer::pointer(int operand, const std::string& offset) const {
  const std::string type = std::string(operand < l_.outputs ? "" : "const ") + name_of_type(l_.type[operand]);
  return "static_cast<" + type + "*>(a.data[" + text(operand) + "]) + " + offset;
}

/// Number `which` of step i, counted from its first.
std::string Writer::number(int i, int which) const {
  const FusedNumbers& n = numbers_[size_t(i)];
  const std::string type = name_of_type(n.of[which].type);
  switch (n.of[which].kind) {
    case FusedNumber::Kind::Zero: return type + "(0)";
    case FusedNumber::Kind::One: return type + "(1)";
    case FusedNumber::Kind::MinusOne: return type + "(-1)";
    default: break;
  }
  int at = first_number_[size_t(i)];
  for (int k = 0; k < which; ++k) at += n.of[k].kind == FusedNumber::Kind::Argument;
  return "number_of<" + type + ">(" + word(at) + ")";
}
std::string Writer::numbers(int i, const char* struct_name) const {
  const int count = numbers_[size_t(i)].count;
  std::string s = std::string(struct_name) + "<" + name_of_type(types_[size_t(i)]) + ">{";
  for (int k = 0; k < count; ++k) s += (k ? ", " : "") + number(i, k);
  return s + "}";
}

/// `element`: the place of this element in its thread's pack, "[j]".
std::string Writer::expression(int i, const std::string& element) const {
  const FusedStep& s = step(i);
  const auto v = [&](int k) { return "v" + text(s.operand[k]); };
  const std::string type = name_of_type(types_[size_t(i)]), op = text(formula_of(s, types_[size_t(i)]));
  switch (s.kind) {
    case FusedKind::Load: return "x" + text(i) + element;
    case FusedKind::Number: return number(i, 0);
    case FusedKind::Cast: return "converted<" + std::string(name_of_type(s.type)) + ">(" + v(0) + ")";
    case FusedKind::Unary:
      return "OneUnary<UnaryOp(" + op + "), " + type + ">{" + numbers(i, "UnaryNumbers") + "}(" + v(0) + ")";
    case FusedKind::Binary:
      return "OneBinary<BinaryOp(" + op + "), " + type + ">{" + numbers(i, "BinaryNumbers") + "}(" + v(0) + ", " +
             v(1) + ")";
    case FusedKind::Ternary:
      return "OneTernary<TernaryOp(" + op + "), " + type + ">{" + numbers(i, "TernaryNumbers") + "}(" + v(0) + ", " +
             v(1) + ", " + v(2) + ")";
    case FusedKind::Keep: return "w" + text(i) + element + " >> 8 >= uint32_t(" + number(i, 2) + ")";
    default: fail(ErrorKind::Internal, "[fused] expected a step with a value, got kind {}", int(s.kind));
  }
}

/// The values of that scope which are known after so many folds, and that no earlier call has written.
void Writer::values(Scope scope, int stage) {
  for (int i = 0; i < count_; ++i) {
    if (scope_[size_t(i)] != scope || stage_[size_t(i)] != stage || is(i, FusedKind::Store) || is(i, FusedKind::Reduce))
      continue;
    if (is(i, FusedKind::Load)) {
      const std::string offset = scope == Scope::Row ? "b" + text(input(i)) : "0";
      line(std::string("const ") + name_of_type(step(i).type) + " x" + text(i) + " = *(" + pointer(input(i), offset) +
           ");");
    }
    value(i, "");
  }
}

/// int64_t <name><k> = <base> + what the dimensions [first, last) add for the element or pack that `index` counts.
void Writer::offsets(int first, int last, const char* index, const std::vector<bool>& wanted, const std::string& base,
                     const std::string& name) {
  std::vector<int> list;
  for (int k = 0; k < l_.operands; ++k)
    if (wanted[size_t(k)]) list.push_back(k);
  const auto stride = [&](int k, int d) { return "int64_t(" + word(stride_word(l_, k, d)) + ")"; };
  bool any = false;
  for (const int k : list) {
    std::string start = base.empty() ? "0" : base + text(k);
    if (l_.flat[k]) start = std::string(index) + " * " + text(l_.width);
    else if (last - first == 1) start += " + " + std::string(index) + " * " + stride(k, first);
    else any |= last > first;
    line("int64_t " + name + text(k) + " = " + start + ";");
  }
  if (!any) return;
  open("");
  line(std::string(l_.wide ? "int64_t" : "uint32_t") + " rest = " + (l_.wide ? "" : "uint32_t") + "(" + index + ");");
  for (int d = first; d < last; ++d) {
    const std::string at = "at" + text(d);
    line("const int64_t " + at + " = " +
         (d + 1 == last ? "rest" : "coordinate(rest, " + word(dim_word(d)) + ", " + word(dim_word(d) + 1) + ")") + ";");
    for (const int k : list)
      if (!l_.flat[k]) line(name + text(k) + " += " + at + " * " + stride(k, d) + ";");
  }
  close();
}

/// The steps whose values the targets need for each element.
std::vector<bool> Writer::needed(const std::vector<int>& targets) const {
  std::vector<bool> need(size_t(count_), false);
  for (const int t : targets) need[step(t).operand[0]] = true;
  for (int i = count_; i-- > 0;) {
    if (scope_[size_t(i)] != Scope::Element) need[size_t(i)] = false;
    if (!need[size_t(i)]) continue;
    for (int k = 0; k < step(i).arity(); ++k) need[step(i).operand[k]] = true;
    if (is(i, FusedKind::Keep) && step(i).operand[0] != i) need[step(i).operand[0]] = true;
  }
  return need;
}

/// One pass over the elements of the call, or of a row: pack `i` of them. The targets are stores, or what is folded.
void Writer::elements(const std::vector<int>& targets, bool stores) {
  const std::vector<bool> need = needed(targets);
  const std::string w = text(l_.width);
  if (l_.width > 1 && l_.columns == 1)
    line("const int count = first_of(int64_t(" + word(kWordLine) + ") - i * " + w + ", " + w + ");");
  else line("constexpr int count = " + w + ";");
  std::vector<bool> used(size_t(l_.operands), false);
  for (int i = 0; i < count_; ++i)
    if (need[size_t(i)] && is(i, FusedKind::Load)) used[size_t(input(i))] = true;
  for (const int t : targets)
    if (stores) used[step(t).operand[1]] = true;
  offsets(0, l_.columns, "i", used, l_.rows ? "b" : "", "o");
  for (int i = 0; i < count_; ++i) {
    if (!need[size_t(i)] || !is(i, FusedKind::Load)) continue;
    const int k = input(i);
    const std::string x = "x" + text(i), from = pointer(k, "o" + text(k)), type = name_of_type(step(i).type);
    line(type + " " + x + "[" + w + "];");
    if (l_.place[k] == Place::Pack) line("load_packs(" + from + ", count, " + x + ");");
    else line("load_neighbours(" + from + ", int64_t(" + word(step_word(l_, k)) + "), count, " + x + ");");
  }
  const std::string at = std::string(l_.rows ? "row * int64_t(" + word(kWordLine) + ") + " : "") + "i * " + w;
  for (int i = 0; i < count_; ++i) {
    if (!need[size_t(i)] || !is(i, FusedKind::Keep)) continue;
    const int base = step(i).operand[0];
    check_internal(base == i || scope_[size_t(base)] != Scope::Element,
                   "[fused] expected one number to draw from, got one for each element in step {}", i);
    line("uint32_t w" + text(i) + "[" + w + "];");
    line("draw(uint64_t(" + number(i, 0) + "), uint64_t(" + number(i, 1) + ")" +
         (base == i ? "" : " + uint64_t(v" + text(base) + ")") + ", " + at + ", w" + text(i) + ");");
  }
  for (const int t : targets)
    if (stores) line(std::string(name_of_type(step(t).type)) + " y" + text(t) + "[" + w + "];");
  line("#pragma unroll");
  open("for (int j = 0; j < " + w + "; ++j)");
  for (int i = 0; i < count_; ++i)
    if (need[size_t(i)]) value(i, "[j]");
  for (const int t : targets) {
    const std::string v = "v" + text(step(t).operand[0]);
    if (stores) line("y" + text(t) + "[j] = " + v + ";");
    else
      line("if (j < count) r" + text(t) + " = f" + text(t) + "(r" + text(t) + ", converted<" +
           name_of_type(types_[size_t(t)]) + ">(" + v + "));");
  }
  close();
  for (const int t : targets) {
    if (!stores) continue;
    const int k = step(t).operand[1];
    const std::string to = pointer(k, "o" + text(k));
    if (l_.place[k] == Place::Pack) line("store_packs(" + to + ", count, y" + text(t) + ");");
    else line("store_neighbours(" + to + ", int64_t(" + word(step_word(l_, k)) + "), count, y" + text(t) + ");");
  }
}

/// A row: one pass for each stage of folds, and one that stores. What is read again comes from a cache.
void Writer::row() {
  const std::string loop = "for (int64_t i = lane; i < int64_t(" + word(kWordPacks) + "); i += lanes)";
  std::vector<bool> all(size_t(l_.operands));
  for (int k = 0; k < l_.operands; ++k) all[size_t(k)] = l_.place[k] != Place::One;
  offsets(l_.columns, l_.rank, "row", all, "", "b");
  values(Scope::Row, 0);
  for (int stage = 1; stage <= stages(); ++stage) {
    std::vector<int> folds;
    for (int i = 0; i < count_; ++i) {
      if (!is(i, FusedKind::Reduce) || stage_[size_t(i)] != stage) continue;
      folds.push_back(i);
      const std::string type = name_of_type(types_[size_t(i)]), n = text(i);
      line(std::string("const ") + (ReduceOp(step(i).op) == ReduceOp::Sum ? "RowSum<" : "RowMax<") + type + "> f" + n +
           "{};");
      line(type + " r" + n + " = f" + n + ".start();");
    }
    if (!folds.empty()) {
      open(loop);
      elements(folds, false);
      close();
    }
    for (const int i : folds)
      line(std::string("const ") + name_of_type(types_[size_t(i)]) + " v" + text(i) + " = row_fold<" +
           (l_.block ? "true" : "false") + ">(r" + text(i) + ", f" + text(i) + ");");
    values(Scope::Row, stage);
  }
  std::vector<int> stores;
  for (int i = 0; i < count_; ++i)
    if (is(i, FusedKind::Store) && l_.place[step(i).operand[1]] != Place::Row) stores.push_back(i);
  if (!stores.empty()) {
    open(loop);
    elements(stores, true);
    close();
  }
  for (int i = 0; i < count_; ++i) {
    if (!is(i, FusedKind::Store) || l_.place[step(i).operand[1]] != Place::Row) continue;
    check_internal(scope_[step(i).operand[0]] != Scope::Element,
                   "[fused] expected one number of a row in step {}, got one for each element", i);
    const int k = step(i).operand[1];
    line("if (lane == 0) *(" + pointer(k, "b" + text(k)) + ") = v" + text(step(i).operand[0]) + ";");
  }
}

std::string Writer::kernel(const std::string& name) {
  line("namespace tapir::inline v0::cuda_kernels {");
  line("namespace " + name + "_types {");
  line("using namespace formulas;");
  line("struct Args {");
  line("  void* data[" + text(l_.operands) + "];");
  line("  uint64_t words[" + text(std::max(words_, 1)) + "];");
  line("};");
  open("extern \"C\" __global__ void __launch_bounds__(256) " + name + "(const Args a)");
  line("#if __CUDA_ARCH__ >= 900");  // Note [Early launches]
  line("asm volatile(\"griddepcontrol.launch_dependents;\");");
  line("asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");");
  line("#endif");
  values(Scope::Call, 0);
  if (l_.rows) {
    line(std::string("const int64_t lanes = ") + (l_.block ? "blockDim.x" : "32") + ", lane = threadIdx.x % " +
         (l_.block ? "blockDim.x" : "32") + ", groups = blockDim.x / lanes;");
    open("for (int64_t row = blockIdx.x * groups + threadIdx.x / lanes; row < int64_t(" + word(kWordRows) +
         "); row += gridDim.x * groups)");
    row();
  } else {
    std::vector<int> stores;
    for (int i = 0; i < count_; ++i)
      if (is(i, FusedKind::Store)) stores.push_back(i);
    line("const int64_t step = int64_t(gridDim.x) * blockDim.x;");
    open("for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < int64_t(" + word(kWordPacks) +
         "); i += step)");
    elements(stores, true);
  }
  close(), close();
  line("}  // namespace " + name + "_types");
  line("}  // namespace tapir::inline v0::cuda_kernels");
  return out_;
}

}  // namespace

std::string source_of(const FusedLayout& layout, const FusedParams& params, const std::string& name) {
  return Writer(layout, params).kernel(name);
}

}  // namespace tapir::inline v0::cuda_kernels
