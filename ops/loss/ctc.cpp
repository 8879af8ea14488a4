#include "../ctc.h"

#include <algorithm>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../front.h"
#include "../indexing.h"
#include "../pad.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "loss_front.h"

namespace tapir::inline v0 {
namespace {

using List = std::vector<int64_t>;
constexpr double kImpossible = -1e30;  // log 0 as a number: differences of it stay numbers

// Note [CTC]
// A target with a blank before, between and after its labels has L = 2 S + 1 states. alpha[s], the log-probability of all alignments of
// the first frames that end in state s, comes from s, from s - 1, and where the label differs from the one before also from s - 2.

/// What is known on the host of N targets with at most S labels.
struct States {
  int64_t count;     // L
  Tensor labels;     // (1, N, L)
  Tensor skip;       // (N, L): 0 where s - 2 may be left for s, else impossible
  Tensor last, end;  // (N, 2): the states in which an alignment may end; (N, 1): frames

  States(const Tensor& like, const List& targets, const List& starts, const List& lengths, const List& frames,
         int64_t blank) {
    const int64_t n = int64_t(lengths.size()), most = *std::max_element(lengths.begin(), lengths.end());
    count = 2 * most + 1;
    List label(size_t(n * count), blank), final_states;
    std::vector<double> barred(size_t(n * count), kImpossible);
    for (int64_t i = 0; i < n; ++i) {
      int64_t* const row = label.data() + i * count;
      for (int64_t k = 0; k < lengths[size_t(i)]; ++k) {
        row[2 * k + 1] = targets[size_t(starts[size_t(i)] + k)];
        if (k > 0 && row[2 * k + 1] != row[2 * k - 1]) barred[size_t(i * count + 2 * k + 1)] = 0;
      }
      const int64_t final_state = 2 * lengths[size_t(i)];
      final_states.push_back(final_state), final_states.push_back(std::max<int64_t>(0, final_state - 1));
    }
    const auto put = [&](const Tensor& t, const Shape& shape) { return to(view(t, shape), like.device()); };
    labels = put(tensor(label), {1, n, count});
    skip = put(tensor(barred, {.dtype = like.dtype()}), {n, count});
    last = put(tensor(final_states), {n, 2}), end = put(tensor(frames), {n, 1});
  }
};

Tensor log_add(std::initializer_list<Tensor> terms) { return logsumexp(stack(terms), 0); }

/// log_probs (T, N, C), at least float32 -> losses (N)
Tensor losses_of(const Tensor& log_probs, const States& s, const List& frames, const List& lengths) {
  const int64_t n = log_probs.shape()[1], steps = std::max<int64_t>(1, *std::max_element(frames.begin(), frames.end()));
  const bool ragged = *std::min_element(frames.begin(), frames.end()) < steps;
  const Tensor spoken =
      clamp_min(gather(narrow(log_probs, 0, 0, steps), 2, expand(s.labels, {steps, n, s.count})), kImpossible);
  const int64_t starts = std::min<int64_t>(2, s.count);  // an alignment begins with a blank or the first label
  Tensor alpha = pad(narrow(select(spoken, 0, 0), 1, 0, starts), {0, s.count - starts}, {.value = kImpossible});
  for (int64_t t = 1; t < steps; ++t) {
    const Tensor before = pad(alpha, {2, 0}, {.value = kImpossible});
    const Tensor next = add(log_add({alpha, narrow(before, 1, 1, s.count), add(narrow(before, 1, 0, s.count), s.skip)}),
                            select(spoken, 0, t));
    alpha = ragged ? where(gt(s.end, t), next, alpha) : next;
  }
  const Tensor ends = gather(alpha, 1, s.last), one = select(ends, 1, 0), two = select(ends, 1, 1);
  List single(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) single[i] = lengths[i] == 0;
  const Tensor empty_target = to(to(tensor(single), log_probs.device()), kBool);
  return neg(where(empty_target, one, log_add({one, two})));
}

/// Adds nothing, but exp(log_probs) of the frames to the gradient: with it the gradient is that of logits.
Tensor normaliser(const Tensor& log_probs, const States& s) {
  Tensor used;
  {
    NoGrad guard;
    List times(size_t(log_probs.shape()[0]));
    for (size_t t = 0; t < times.size(); ++t) times[t] = int64_t(t);
    used = lt(to(view(tensor(times), {int64_t(times.size()), 1}), log_probs.device()), transpose(s.end, 0, 1));
  }
  const Tensor p = where(unsqueeze(used, 2), exp(log_probs), 0);
  return sum(sub(p, p.detach()), {0, 2});
}

void check_lengths(const Tensor& log_probs, const Tensor& targets, const List& frames, const List& lengths,
                   const CtcLossOptions& o) {
  const char* op = "ctc_loss";
  const int64_t n = log_probs.shape()[1], classes = log_probs.shape()[2];
  common_device(op, {&log_probs, &targets});
  check(is_floating(log_probs.dtype()) && is_integral(targets.dtype()),
        "[{}] expected log_probs of a floating-point and targets of an integer dtype, got {} and {}", op, log_probs,
        targets);
  check(o.blank >= 0 && o.blank < classes, "[{}] blank must be in label range: expected 0 to {}, got {}", op,
        classes - 1, o.blank);
  check(n > 0 && int64_t(frames.size()) == n && int64_t(lengths.size()) == n,
        "[{}] input_lengths and target_lengths must be of size batch_size: expected {}, got {} and {}", op, n,
        int64_t(frames.size()), int64_t(lengths.size()));
  check(targets.dim() == 1 || (targets.dim() == 2 && targets.shape()[0] == n),
        "[{}] expected targets of shape (N, S) or (sum of lengths), got {}", op, targets);
  int64_t total = 0;
  for (size_t i = 0; i < size_t(n); ++i) {
    check(frames[i] >= 0 && frames[i] <= log_probs.shape()[0] && log_probs.shape()[0] > 0,
          "[{}] expected input_lengths to have value between 0 and {}, got {}", op, log_probs.shape()[0], frames[i]);
    check(lengths[i] >= 0 && (targets.dim() == 1 || lengths[i] <= targets.shape()[1]),
          "[{}] expected target_lengths of at least 0 that fit targets {}, got {}", op, targets, lengths[i]);
    total = lengths[i] > INT64_MAX - total ? INT64_MAX : total + lengths[i];
  }
  check(targets.dim() == 2 || total == targets.numel(),
        "[{}] expected targets whose length is the sum of target_lengths {}, got {}", op, total, targets);
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const List& frames, const List& lengths,
                const CtcLossOptions& o) {
  TAPIR_AUTOCAST(ctc_loss, log_probs, targets, frames, lengths, o);
  check(log_probs.dim() == 2 || log_probs.dim() == 3, "[ctc_loss] expected log_probs (T, N, C) or (T, C), got {}",
        log_probs);
  if (log_probs.dim() == 2) {
    const Tensor y = ctc_loss(unsqueeze(log_probs, 1), targets, frames, lengths, o);
    return o.reduction == Reduction::None ? squeeze(y, 0) : y;
  }
  check_lengths(log_probs, targets, frames, lengths, o);
  const List labels = targets.to_vector<int64_t>();
  List starts;
  for (size_t i = 0, at = 0; i < lengths.size(); at += size_t(lengths[i++]))
    starts.push_back(targets.dim() == 2 ? int64_t(i) * targets.shape()[1] : int64_t(at));
  for (size_t i = 0; i < lengths.size(); ++i)
    for (int64_t k = 0; k < lengths[i]; ++k) {
      const int64_t label = labels[size_t(starts[i] + k)];
      check(label >= 0 && label < log_probs.shape()[2], "[ctc_loss] expected targets between 0 and {}, got {}",
            log_probs.shape()[2] - 1, label);
    }
  const Tensor x = to(log_probs, compute_type(log_probs.dtype()));
  const States states(x, labels, starts, lengths, frames, o.blank);
  Tensor losses = add(losses_of(x, states, frames, lengths), normaliser(x, states));
  if (std::find(frames.begin(), frames.end(), 0) != frames.end()) {  // no frames align the empty target, at no cost
    List silent;
    std::vector<double> cost;
    for (size_t i = 0; i < frames.size(); ++i)
      silent.push_back(frames[i] == 0), cost.push_back(lengths[i] ? -kImpossible : 0.0);
    const auto here = [&](const Tensor& t) { return to(t, x.device()); };
    losses = where(to(here(tensor(silent)), kBool), here(tensor(cost, {.dtype = x.dtype()})), losses);
  }
  const Tensor impossible = gt(losses, -0.5 * kImpossible);
  losses = masked_fill(losses, impossible, o.zero_infinity ? 0.0 : std::numeric_limits<double>::infinity());
  if (o.reduction == Reduction::Mean) {
    List divisors;
    for (int64_t l : lengths) divisors.push_back(std::max<int64_t>(1, l));
    losses = div(losses, to(tensor(divisors), x.device()));
  }
  return to(reduced("ctc_loss", losses, o.reduction), log_probs.dtype());
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& o) {
  check_defined("ctc_loss", "log_probs", log_probs, "targets", targets, "input_lengths", input_lengths,
                "target_lengths", target_lengths);
  TAPIR_AUTOCAST(ctc_loss, log_probs, targets, input_lengths, target_lengths, o);
  for (const Tensor* t : {&input_lengths, &target_lengths})
    check(is_integral(t->dtype()), "[ctc_loss] expected lengths of an integer dtype, got {}", *t);
  return ctc_loss(log_probs, targets, input_lengths.to_vector<int64_t>(), target_lengths.to_vector<int64_t>(), o);
}

}  // namespace tapir::inline v0
