#include "checkpoint.h"

#include <memory>
#include <vector>

#include "../autograd/saved_hooks.h"
#include "../core/generator.h"
#include "../ops/autocast.h"

namespace tapir::inline v0 {
static thread_local bool recomputing = false;
bool in_recomputation() { return recomputing; }
}  // namespace tapir::inline v0

namespace tapir::inline v0::detail {
namespace {

/// One checkpointed call: how to run it again, and what the second run has made so far.
struct Frame {
  std::unique_ptr<Recompute> again;
  bool preserve_rng_state;
  uint64_t seed, offset;
  bool cast = modes.autocast;
  AutocastRegion region = cast ? *modes.autocast : AutocastRegion();
  int64_t count = 0;           // values that the first run saved
  std::vector<Tensor> values;  // of the second run; each is handed out once
};

/// The random state of the first run, for the second.
class RandomState {
 public:
  explicit RandomState(const Frame& frame)
      : on_(frame.preserve_rng_state), seed_(default_generator().seed()), offset_(default_generator().offset()) {
    if (on_) default_generator().set_state(frame.seed, frame.offset);
  }
  ~RandomState() {
    if (on_) default_generator().set_state(seed_, offset_);
  }

 private:
  bool on_;
  uint64_t seed_, offset_;
};

struct Collect final : SavedTensorHooks {
  std::vector<Tensor>& values;
  explicit Collect(std::vector<Tensor>& values) : values(values) {}
  PackedTensor* pack(const Tensor& x) override { return values.push_back(x), nullptr; }
};

void compute_again(Frame& frame) {
  frame.values.clear();
  EnableGrad guard;
  RandomState random(frame);
  frame.region.cache = nullptr;
  ScopedMode<AutocastRegion*> autocast(modes.autocast, frame.cast ? &frame.region : nullptr);
  ScopedMode<bool> again(recomputing, true);
  Collect hooks(frame.values);
  frame.again->run();
  check(int64_t(frame.values.size()) == frame.count,
        "[checkpoint] expected the second run to save {} tensors for backward, as the first did, got {}: the function "
        "must "
        "compute the same both times",
        frame.count, int64_t(frame.values.size()));
}

struct Numbered final : PackedTensor {
  std::shared_ptr<Frame> frame;
  int64_t number;
  Numbered(std::shared_ptr<Frame> frame, int64_t number) : frame(std::move(frame)), number(number) {}
  Tensor unpack() override {
    auto& values = frame->values;
    if (number >= int64_t(values.size()) || !values[size_t(number)].defined()) compute_again(*frame);
    return std::exchange(values[size_t(number)], Tensor());
  }
};

}  // namespace

struct CheckpointScope::Hooks final : SavedTensorHooks {
  std::shared_ptr<Frame> frame = std::make_shared<Frame>();
  PackedTensor* pack(const Tensor&) override { return new Numbered(frame, frame->count++); }
};

CheckpointScope::CheckpointScope(Recompute* again, const CheckpointOptions& options) : hooks_(new Hooks) {
  Frame& f = *hooks_->frame;
  f.again.reset(again), f.preserve_rng_state = options.preserve_rng_state;
  f.seed = default_generator().seed(), f.offset = default_generator().offset();
}
CheckpointScope::~CheckpointScope() { delete hooks_; }

}  // namespace tapir::inline v0::detail
