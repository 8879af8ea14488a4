// Trains a ResNet on a folder of pictures, as torchvision's reference does: random crops and flips in worker threads, smoothed labels, a
// warm-up and a cosine, averaged weights; from scratch or from torchvision's weights; in one process, or in many (tapir-run --nproc 2 resnet).
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/models/resnet.h>

#include "pictures.h"
#include "ranks.h"
#include "run.h"
using namespace tapir;

struct ResNetSettings {
  std::string model = "resnet18", pretrained = {};
  bool freeze = false, sync_bn = false;
  int64_t width = 64;
  double label_smoothing = 0.1, weight_decay = 1e-4, warmup = 0.1, ema = 0.99;
  void add_to(samples::App& app) {
    app.add_option("--model", model, "Network")
        ->check(CLI::IsMember({"resnet18", "resnet34", "resnet50", "resnet101"}));
    app.add_option("--width", width, "Channels of the first stage; torchvision's networks have 64")
        ->check(samples::whole(1, 4096));
    app.add_option(
           "--pretrained", pretrained,
           "torchvision's weights (.pth, .safetensors) or a checkpoint; of other classes all but the last layer")
        ->check(samples::file_to_read());
    app.add_flag("--freeze", freeze, "Train the last layer alone");
    app.add_option("--label-smoothing", label_smoothing, "Share of a label that all classes have")
        ->check(samples::share());
    app.add_option("--weight-decay", weight_decay, "Of all but norms and biases")->check(samples::share());
    app.add_option("--warmup", warmup, "Share of the steps in which the rate rises; then it falls as a cosine")
        ->check(samples::share());
    app.add_option("--ema", ema, "Decay of the moving average of the weights, which is scored too; 0: none")
        ->check(samples::share());
    app.add_flag("--sync-bn", sync_bn, "In many processes: batch norms see the batches of all");
  }
};

/// What a file of weights holds for this network; the last layer of other classes stays as it is.
static StateDict weights_for(nn::Module& net, const std::string& path, bool show) {
  StateDict file = path.ends_with(".safetensors") ? io::load_safetensors(path) : io::to_state_dict(io::load_pt(path));
  if (file.contains("model.conv1.weight")) file = file.strip("model.");  // a checkpoint of training
  for (const auto& [name, own] : net.state_dict()) {
    const Tensor* given = file.find(name);
    const bool other = given && name.starts_with("fc.") && given->shape() != own.shape();
    if (show && other && name == "fc.weight")
      std::printf("%s: the last layer is new: %lld classes there, %lld here\n", path.c_str(),
                  static_cast<long long>(given->size(0)), static_cast<long long>(own.size(0)));
    if (other || (!given && name.ends_with("num_batches_tracked"))) file.set(name, own);  // old files lack the latter
  }
  return file;
}

/// Weights, what changes them, and their average. Parts refer to one another: it stays where it is.
template <class Block> struct Training {
  using Net = models::ResNet<Block>;
  const samples::Options& o;
  const ResNetSettings& r;
  Net net;
  std::optional<distributed::DistributedDataParallel<Net>> ddp;
  std::optional<train::AveragedModel<Net>> ema;
  optim::SGD opt;
  optim::LinearLR up;
  optim::CosineAnnealingLR down;
  optim::SequentialLR schedule;
  amp::GradScaler scaler;

  Training(const samples::Options& o, const ResNetSettings& r, Net started, const distributed::ProcessGroup& group,
           int64_t steps)
      : o(o), r(r), net(std::move(started)), opt(groups(), {.lr = o.lr, .momentum = 0.9, .nesterov = true}),
        up(opt, {.start_factor = 0.01, .total_iters = rise(steps)}),
        down(opt, std::max<int64_t>(1, steps - rise(steps))), schedule(opt, {&up, &down}, {rise(steps)}),
        scaler({.enabled = o.amp == "fp16"}) {
    if (group.size() > 1) ddp.emplace(net, distributed::DdpOptions(), group);  // all ranks take rank 0's weights
    if (r.ema > 0) ema.emplace(net, train::AverageOptions{.use_buffers = true});
  }
  int64_t rise(int64_t steps) const { return std::max<int64_t>(1, int64_t(double(steps) * r.warmup)); }
  /// Kernels decay; norms and biases do not.
  std::vector<optim::SGDGroup> groups() {
    optim::SGDGroup decays{.params = {}, .weight_decay = r.weight_decay}, stays{.params = {}, .weight_decay = 0.0};
    for (const Tensor& p : net.parameters())
      if (p.requires_grad()) (p.dim() > 1 ? decays : stays).params.push_back(p);
    return {decays, stays};
  }
  Tensor step(const Tensor& images, const Tensor& labels) {
    opt.zero_grad();
    const Tensor x = images.contiguous(kChannelsLast);
    Tensor loss;
    {
      amp::Autocast autocast(Device(o.device), o.precision());
      loss = cross_entropy(ddp ? (*ddp)(x) : net(x), labels, {.label_smoothing = r.label_smoothing});
    }
    scaler.scale(loss).backward();  // ends with the mean of all ranks' gradients
    scaler.step(opt);
    scaler.update();
    return loss;
  }
  void after_step() {
    schedule.step();
    if (!ema) return;
    const auto n = double(ema->n_averaged);
    ema->options.decay = std::min(r.ema, (1 + n) / (10 + n));  // young averages forget the beginning sooner
    ema->update_parameters(net);
  }
};

/// {mean loss, top-5 %, top-1 %}, each rank scoring a part of the pictures.
template <class Net, class Loader> static std::vector<double> evaluate(Net& net, Loader& loader,
                                                                       const samples::Options& o,
                                                                       const distributed::ProcessGroup& group) {
  NoGrad no_grad;
  for (auto& [name, buffer] : net.named_buffers()) group.broadcast(buffer);  // ranks may have statistics of their own
  InferenceMode guard;
  net.eval();
  const Device device(o.device);
  train::Accuracy top1, top5({.top_k = std::min<int64_t>(5, net.fc.out_features)});
  Tensor sums = zeros({2}, {.dtype = kFloat64, .device = device});  // losses, pictures
  for (auto& [images, labels] : loader) {
    amp::Autocast autocast(device, o.precision());
    const Tensor scores = net(images.contiguous(kChannelsLast)).to(kFloat32);
    top1.update(scores, labels), top5.update(scores, labels);
    sums.select(0, 0).add_(cross_entropy(scores, labels, {.reduction = Reduction::Sum}));
    sums.select(0, 1).add_(labels.numel());
  }
  group.all_reduce(sums), top1.all_reduce(group), top5.all_reduce(group);
  const auto total = sums.template to_vector<double>();
  return {total[0] / total[1], 100 * top5.compute(), 100 * top1.compute()};
}

template <class Block> static int learn(models::ResNet<Block> net, const samples::Options& o, const ResNetSettings& r,
                                        data::DataLoader<samples::Pictures>& loader,
                                        data::DataLoader<samples::Pictures>& val,
                                        const distributed::ProcessGroup& group) {
  if (!r.pretrained.empty())
    samples::from_option("--pretrained", [&] { net.load_state_dict(weights_for(net, r.pretrained, !o.rank)); });
  if (r.freeze) net.requires_grad_(false), net.fc.requires_grad_(true);
  if (r.sync_bn) distributed::convert_sync_batchnorm(net);
  net.to(Device(o.device));
  net.to(kChannelsLast);
  Training<Block> t(o, r, std::move(net), group, o.epochs * loader.size());
  auto step = compile([&](const Tensor& images, const Tensor& labels) { return t.step(images, labels); },
                      {.enabled = o.compile});

  std::vector<std::string> metrics = {"val loss", "top-5 %", "top-1 %"};
  if (t.ema) metrics.push_back("EMA top-1 %");
  samples::Run run(o, metrics, {.higher_is_better = true});
  run.keep("model", t.net).keep("optimizer", t.opt).keep("schedule", t.schedule).keep("scaler", t.scaler);
  run.keep("loader", loader).explain(step);
  if (t.ema) run.keep("ema", *t.ema);
  while (run.next_epoch(loader.size())) {
    t.net.train(!r.freeze);  // what is frozen keeps its statistics
    for (auto& [images, labels] : loader) {
      const Tensor loss = step(images, labels);
      t.after_step();
      if (!run.step(loss)) break;
    }
    if (run.interrupted()) return run.finish();
    std::vector<double> scores = evaluate(t.net, val, o, group);
    if (t.ema) scores.push_back(evaluate(t.ema->module, val, o, group)[2]);
    run.end_epoch(scores);
    check_internal(!t.ddp || t.ddp->differing_parameters().empty(), "[resnet] expected the same weights on all ranks");
  }
  if (!o.rank) {
    std::printf("%s: top-1 %.2f %%, top-5 %.2f %%", r.model.c_str(), run.last(2), run.last(1));
    std::printf(t.ema ? " (EMA %.2f %%)\n" : "\n", t.ema ? run.last(3) : 0.);
  }
  return run.finish();
}

static int load_and_learn(samples::Options& o, const ResNetSettings& r, samples::PictureOptions& pictures,
                          const samples::RankOptions& ranks) {
  const distributed::ProcessGroup group = ranks.join(o);
  check(!o.compile || group.size() == 1, "--compile: expected one process, got {}", group.size());
  pictures.find();
  const data::Shared<samples::Pictures> train(pictures.train()), val(pictures.validation());
  o.check_batch(train->size() / group.size());
  check(train->classes() == val->classes(), "--data: expected the same classes in both parts, got {} and {} of them",
        train->classes().size(), val->classes().size());
  const auto loader_of = [&](const data::Shared<samples::Pictures>& set, bool training) {
    return data::DataLoader(
        set, {.batch_size = o.batch_size,
              .num_workers = pictures.workers,
              .seed = o.seed,
              .drop_last = training,
              .device = Device(o.device),
              .sampler = data::DistributedSampler(set->size(), group.rank(), group.size(),
                                                  {.shuffle = training, .seed = o.seed, .drop_last = true})});
  };
  auto loader = loader_of(train, true), val_loader = loader_of(val, false);
  if (!o.rank)
    std::printf("data: %s\n%s; %lld training and %lld validation images of %lld classes, %lld x %lld\n",
                pictures.path.c_str(), r.model.c_str(), static_cast<long long>(train->size()),
                static_cast<long long>(val->size()), static_cast<long long>(train->classes().size()),
                static_cast<long long>(pictures.size), static_cast<long long>(pictures.size));
  const models::ResNetOptions how{.num_classes = int64_t(train->classes().size()), .width = r.width};
  if (r.model == "resnet18") return learn(models::resnet18(how), o, r, loader, val_loader, group);
  if (r.model == "resnet34") return learn(models::resnet34(how), o, r, loader, val_loader, group);
  if (r.model == "resnet50") return learn(models::resnet50(how), o, r, loader, val_loader, group);
  return learn(models::resnet101(how), o, r, loader, val_loader, group);
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 5, .batch_size = 32, .lr = 0.02};
  samples::PictureOptions pictures;
  samples::RankOptions ranks;
  ResNetSettings settings;
  samples::App app("Trains a ResNet on a folder of pictures; in many processes with tapir-run --nproc 2 resnet",
                   "resnet");
  settings.add_to(app);
  pictures.add_to(app);
  ranks.add_to(app);
  return samples::main(app, argc, argv, o, [&] { return load_and_learn(o, settings, pictures, ranks); });
}
