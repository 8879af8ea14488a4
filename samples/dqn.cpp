// Learns to balance a pole on a cart from rewards alone: deep Q-learning with a replay memory and a target network (Mnih et al. 2015;
// double Q-learning: van Hasselt et al. 2015, arXiv 1509.06461). The cart is that of Barto, Sutton and Anderson 1983.
#include <algorithm>
#include <cmath>

#include "run.h"
using namespace tapir;

/// Position, speed, angle, angular speed; two actions push to the left or right. The pole falls beyond 12 degrees.
struct Cart {
  std::array<float, 4> state{};
  int steps = 0;
  void reset() {
    const auto noise = (rand({4}) * 0.1 - 0.05).to_vector<float>();
    std::copy(noise.begin(), noise.end(), state.begin());
    steps = 0;
  }
  /// True when the episode is over.
  bool push(int64_t action) {
    constexpr double kGravity = 9.8, kCart = 1, kPole = 0.1, kHalfLength = 0.5, kForce = 10, kSeconds = 0.02;
    const double cosine = std::cos(state[2]), sine = std::sin(state[2]), force = action ? kForce : -kForce;
    const double part = (force + kPole * kHalfLength * state[3] * state[3] * sine) / (kCart + kPole);
    const double turn =
        (kGravity * sine - cosine * part) / (kHalfLength * (4.0 / 3 - kPole * cosine * cosine / (kCart + kPole)));
    const double push = part - kPole * kHalfLength * turn * cosine / (kCart + kPole);
    const double change[4] = {state[1], push, state[3], turn};
    for (size_t i = 0; i < 4; ++i) state[i] += float(kSeconds * change[i]);
    ++steps;
    return fell() || steps >= 500;
  }
  StateDict state_dict() const {
    return {{"state", tensor(std::vector<float>(state.begin(), state.end()))}, {"steps", full({}, steps)}};
  }
  void load_state_dict(const StateDict& saved) {
    const auto values = saved.at("state").to_vector<float>();
    std::copy_n(values.begin(), 4, state.begin());
    steps = int(saved.at("steps").item());
  }
  /// What the network sees: about 1 where the pole falls.
  std::array<float, 4> seen() const { return {state[0] / 2.4f, state[1] / 2, state[2] / 0.2095f, state[3] / 2}; }
  bool fell() const { return std::abs(state[0]) > 2.4f || std::abs(state[2]) > 0.2095f; }
};

struct QNet : nn::Module {
  nn::Linear fc1{4, 128}, fc2{128, 128}, out{128, 2};
  Tensor forward(const Tensor& x) { return out(relu(fc2(relu(fc1(x))))); }  // (N, 4) -> (N, 2)
  TAPIR_FIELDS(fc1, fc2, out)
};

/// The newest pushes, one a row: state, action, state after it, and 1 unless the pole fell.
struct Replay {
  Tensor rows;
  int64_t size = 0, next = 0;
  Replay(int64_t capacity, Device device) : rows(zeros({capacity, 10}, {.device = device})) {}
  void add(const std::array<float, 4>& from, int64_t action, const std::array<float, 4>& to, bool fell) {
    std::vector<float> row(from.begin(), from.end());
    row.push_back(float(action));
    row.insert(row.end(), to.begin(), to.end());
    row.push_back(fell ? 0.f : 1.f);
    rows.select(0, next).copy_(tensor(row));
    next = (next + 1) % rows.size(0), size = std::min(size + 1, rows.size(0));
  }
  StateDict state_dict() const { return {{"rows", rows}, {"place", tensor(std::vector<int64_t>{size, next})}}; }
  void load_state_dict(const StateDict& state) {
    rows.copy_(state.at("rows"));
    const auto place = state.at("place").to_vector<int64_t>();
    size = place.at(0), next = place.at(1);
  }
};

static Tensor as_batch(const std::array<float, 4>& state, Device device) {
  return tensor(std::vector<float>(state.begin(), state.end())).view({1, 4}).to(device);
}
static int64_t best(QNet& net, const std::array<float, 4>& state, Device device) {
  InferenceMode guard;
  return argmax(net(as_batch(state, device)), 1).item<int64_t>();
}
/// Mean length of episodes without chance moves; 500 is all there is.
static double play(QNet& net, int episodes, Device device) {
  double steps = 0;
  for (int i = 0; i < episodes; ++i) {
    Cart cart;
    cart.reset();
    while (!cart.push(best(net, cart.seen(), device))) {}
    steps += cart.steps;
  }
  return steps / episodes;
}
/// How wrong the network is about pushes out of the memory: Bellman's equation, with actions chosen by `net` and valued by `target`. The
/// reward is 1 - gamma for a pole upright in the middle, less beside it, so that no value is above 1.
static Tensor bellman_loss(QNet& net, QNet& target, const Tensor& rows, double gamma) {
  const Tensor after = rows.narrow(1, 5, 4), alive = rows.narrow(1, 9, 1);
  Tensor wanted;
  {
    NoGrad guard;
    const Tensor choice = argmax(net(after), 1, {.keepdim = true});
    const Tensor reward = 1 - (abs(after.narrow(1, 0, 1)) + abs(after.narrow(1, 2, 1))) / 2;
    wanted = alive * ((1 - gamma) * reward + gamma * gather(target(after), 1, choice));
  }
  return smooth_l1_loss(gather(net(rows.narrow(1, 0, 4)), 1, rows.narrow(1, 4, 1).to(kInt64)), wanted);
}

/// The target network slowly becomes the other one.
static void follow(QNet& target, QNet& net, double share) {
  NoGrad guard;
  std::vector<Tensor> to = target.parameters(), from = net.parameters();
  for (size_t i = 0; i < to.size(); ++i) lerp_(to[i], from[i], share);
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 15, .batch_size = 64, .lr = 1e-3, .amp = {}};
  int64_t frames = 2000;
  double gamma = 0.98;
  samples::App app("Balances a pole by deep Q-learning", "dqn");
  app.add_option("--frames", frames, "Pushes in an epoch")->check(samples::whole(1));
  app.add_option("--gamma", gamma, "What a reward is worth one push later")->check(samples::share());
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    QNet net;
    net.to(device);
    QNet target = net.clone();
    optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0});
    optim::LinearLR schedule(opt, {.start_factor = 1, .end_factor = 0.05, .total_iters = o.epochs * frames});
    Replay replay(20000, device);
    Cart cart;
    cart.reset();

    auto step = compile(
        [&](const Tensor& rows) {
          opt.zero_grad();
          Tensor loss = bellman_loss(net, target, rows, gamma);
          loss.backward();
          optim::clip_grad_norm_(net.parameters(), 10.0);
          opt.step();
          follow(target, net, 0.005);
          return loss;
        },
        {.enabled = o.compile});

    samples::Run run(o, {"steps balanced"}, {.higher_is_better = true});
    run.keep("model", net).keep("target", target).keep("optimizer", opt).keep("schedule", schedule);
    run.keep("replay", replay).keep("cart", cart).explain(step);
    while (run.next_epoch(frames)) {
      while (run.in_epoch() < frames) {
        const double chance = std::max(0.02, 1.0 - double(run.steps()) / 5000);  // of a random push
        const std::array<float, 4> from = cart.seen();
        const int64_t action = rand({}).item() < chance ? randint(0, 2, {}).item<int64_t>() : best(net, from, device);
        const bool over = cart.push(action);
        replay.add(from, action, cart.seen(), cart.fell());
        if (over) cart.reset();
        Tensor loss = zeros({}, {.device = device});
        if (replay.size >= 500) {
          const Tensor at = randint(0, replay.size, {o.batch_size}, {.device = device});
          loss = step(replay.rows.index_select(0, at));
          schedule.step();
        }
        if (!run.step(loss)) break;
      }
      if (run.interrupted()) return run.finish();
      run.end_epoch({play(net, 20, device)});
    }
    std::printf("balances the pole for %.0f of 500 steps on average\n", run.last(0));
    return run.finish();
  });
}
