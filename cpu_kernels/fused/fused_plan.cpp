#include "fused_tiles.h"

namespace tapir::inline v0::cpu {

bool FusedCall::goes_in_registers(int i) const {
  const FusedStep& s = steps_[i];
  if (!computes(i)) return false;
  if (s.kind == FusedKind::Reduce) return s.type == kFloat32 && !is_row_number(s.operand[0]);
  return !is_row_number(i) && has_block(i);
}

void FusedCall::plan_registers(int least) {
  plans_.make(kBlockSteps);
  for (int i = 0; i < count_; ++i) {
    int last = -1, steps = 0;
    const auto waits = [&](int k) {  // for a result of whole rows
      for (int j = 0; j < steps_[k].arity(); ++j)
        if (const int v = steps_[k].operand[j]; v >= i && steps_[v].kind == FusedKind::Reduce) return true;
      return false;
    };
    for (int k = i; k < count_ && (is_ready(k) || (goes_in_registers(k) && !waits(k))); ++k)
      if (!is_ready(k)) last = k, ++steps;
    if (steps >= least) plan_run(i, last);
    if (last >= 0) i = last;
  }
}

/// Steps first to last: the newest value stays, others come from memory, and go there if anybody else wants them.
void FusedCall::plan_run(int first, int last) {
  int newest = -1, begin = -1;
  for (int i = first; i <= last; ++i) {
    if (is_ready(i)) continue;
    if (begin < 0) begin = i, values_[i].block_first = planned_, values_[i].block_last = last;
    plan_step(i, newest);
    if (newest == i) plan_saves(i, last);
  }
  plans_[planned_++] = {.run = block_end()};
}

void FusedCall::plan_step(int i, int& newest) {
  const FusedStep& s = steps_[i];
  const auto add = [&](const BlockPlan& plan) { plans_[planned_++] = plan; };
  const auto is_number = [&](int v) { return steps_[v].kind == FusedKind::Number || is_row_number(v); };
  const auto number = [&](BlockStep::Run run, int v) {
    BlockPlan plan{.run = run};
    if (steps_[v].kind == FusedKind::Number) store_scalar(&plan.number, kFloat32, steps_[v].numbers[0]);
    else plan.row = v;
    return plan;
  };
  const bool chooses = s.kind == FusedKind::Ternary;
  const bool by_words = chooses && values_[s.operand[0]].words;
  const auto function = [&](Other other, bool swapped) {
    return chooses ? block_where(other, swapped, by_words) : block_function(s, other, swapped);
  };
  int a = s.operand[chooses], b = s.arity() >= 2 ? s.operand[1 + chooses] : -1;
  const bool swapped = a != newest && b == newest && b >= 0;
  if (swapped) std::swap(a, b);
  if (a != newest) add(is_number(a) ? number(block_number(), a) : BlockPlan{.run = block_load(), .value = a});
  newest = i;
  if (s.kind == FusedKind::Reduce) add({.run = block_reduce(ReduceOp(s.op)), .sums = i}), newest = a;
  else if (b < 0 || a == b) add({.run = function(Other::Same, false)});
  else if (is_number(b)) add(number(function(Other::Number, swapped), b));
  else add({.run = function(Other::Memory, swapped), .value = b});
  if (chooses) plans_[planned_ - 1].mask = s.operand[0];
  if (by_words) plans_[planned_ - 1].limit = numbers_[i].limit;
}

/// Writes value i, the newest one, to where others than the next step look for it.
void FusedCall::plan_saves(int i, int last) {
  int next = i + 1;
  while (next <= last && is_ready(next)) ++next;
  bool wanted = false;
  for (int k = i + 1; k < count_; ++k) {
    const FusedStep& user = steps_[k];
    bool uses = false;
    for (int j = 0; j < user.arity(); ++j) uses |= user.operand[j] == i;
    if (!uses) continue;
    if (user.kind == FusedKind::Store && streams(operands_[user.operand[1]]))
      plans_[planned_++] = {.run = block_stream(), .output = user.operand[1]};
    else wanted |= k != next || next > last;
  }
  if (wanted) plans_[planned_++] = {.run = block_save(), .value = i};
}

bool FusedTiles::is_ready(int i) const {
  const FusedKind kind = steps_[i].kind;
  if (kind != FusedKind::Store && values_[i].last < 0) return true;  // nobody asks for it
  if (kind == FusedKind::Number || kind == FusedKind::Keep) return true;
  return kind == FusedKind::Load && (values_[i].fixed || values_[i].slot < 0);
}

bool FusedTiles::streams(const FusedOperand& out) const {
  const bool aligned =
      tiles_->width % 16 == 0 && (!tiles_->by_row || tiles_->row % 16 == 0 || operands_[0].space.rank <= 1);
  return out.stream && aligned && reinterpret_cast<uintptr_t>(out.data) % 64 == 0;
}

void FusedTiles::run_in_registers(int i, int64_t flat, int64_t n, Thread& t) const {
  const int last = values_[i].block_last;
  int64_t steps = 0;
  for (int k = i; k <= last; ++k) {
    if (values_[k].last < 0) continue;
    if (steps_[k].kind == FusedKind::Load) load(k, flat, n, t);
    else if (steps_[k].kind != FusedKind::Number) {
      t.at[k] = values_[k].output >= 0 ? place(operands_[values_[k].output], flat) : slot(k, t);
      if (steps_[k].kind == FusedKind::Keep) fill_array(steps_[k].operand[0], t), keep(k, flat, n, t.at);
      ++steps;
    }
  }
  int at = values_[i].block_first;
  for (bool more = true; more; ++at) {
    const BlockPlan& plan = plans_[at];
    t.blocks[at].run = plan.run, t.blocks[at].number = plan.number;
    if (plan.value >= 0) t.blocks[at].memory = reinterpret_cast<float*>(t.at[plan.value]);
    if (plan.row >= 0) t.blocks[at].number = *reinterpret_cast<const float*>(t.repeated[plan.row]);
    if (plan.output >= 0) t.blocks[at].memory = reinterpret_cast<float*>(place(operands_[plan.output], flat));
    if (plan.mask >= 0) t.blocks[at].mask = t.at[plan.mask], t.blocks[at].limit = plan.limit;
    more = plan.run != block_end();
  }
  const int64_t done = run_blocks(t.blocks + values_[i].block_first, n, t.fetcher, kBlock * steps / computing_);
  for (int k = values_[i].block_first; k < at; ++k)
    if (plans_[k].output >= 0) t.streamed[plans_[k].output] = done;
  for (int k = i; k <= last && done < n; ++k)
    if (!is_ready(k) && values_[k].last >= 0) fill_arrays(steps_[k], t), run_step(k, done, n, t.at);
}

}  // namespace tapir::inline v0::cpu
