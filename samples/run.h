#pragma once
// What the samples have around their loops: options (options.h), Ctrl-C, progress, a table, a plot, TensorBoard, checkpoints.
#include <csignal>
#include <limits>

#include "options.h"

namespace samples {

/// The second half of a training step: gradients of the loss, clipped to a norm of 1, and an update.
inline void clipped_update(const Tensor& loss, nn::Module& net, optim::Optimizer& opt, amp::GradScaler& scaler) {
  scaler.scale(loss).backward();
  scaler.unscale_(opt);
  optim::clip_grad_norm_(net.parameters(), 1.0);
  scaler.step(opt);
  scaler.update();
}

inline volatile std::sig_atomic_t signalled = 0;
inline void on_signal(int signal) {
  if (signalled) std::signal(signal, SIG_DFL), std::raise(signal);
  signalled = 1;
}

/// One training run: the loss of every step and the metrics of every epoch go to the progress bar, the table, the plot, TensorBoard
/// and the checkpoints.
///     samples::Run run(o, {"test acc %"}, {.higher_is_better = true});
///     run.keep("model", net).keep("optimizer", opt).keep("loader", loader);
///     while (run.next_epoch(loader.size())) {
///       for (auto& [x, y] : loader) { ...; if (!run.step(loss)) break; }
///       if (run.interrupted()) return run.finish();
///       run.end_epoch({accuracy()});
///     }
///     return run.finish();
class Run {
 public:
  /// `metrics`: what end_epoch is given; the last one says which checkpoint is the best.
  Run(const Options& o, std::vector<std::string> metrics, const train::CheckpointOptions& files = {})
      : options_(o), metrics_(std::move(metrics)), table_(columns()), values_(metrics_.size() + 1),
        loss_sum_(zeros({}, {.device = Device(o.device)})) {
    if (!o.checkpoint.empty()) checkpoint_.emplace(o.checkpoint, files);
    if (!o.logdir.empty() && !o.rank) log_.emplace(o.logdir);
    keep("run", *this);
    std::signal(SIGINT, on_signal), std::signal(SIGTERM, on_signal);
  }
  /// A part of the checkpoints, which must outlive this. The weights of modules go to TensorBoard as histograms.
  template <class T> Run& keep(std::string_view name, T& part) {
    if (checkpoint_) checkpoint_->add(name, part);
    if constexpr (std::is_base_of_v<nn::Module, T>) modules_.emplace_back(std::string(name), &part);
    return *this;
  }
  /// For --explain: what compile() has made of the step is printed once, after the first epoch.
  template <class Step> Run& explain(const Step& step) {
    if (options_.explain && !options_.rank) explain_ = [&step] { return step.explain(); };
    return *this;
  }
  /// Is there another epoch, of so many batches? The first call resumes where that was asked for.
  bool next_epoch(int64_t batches) {
    check(batches > 0, "expected at least one batch in an epoch, got {}", batches);
    if (options_.resume && checkpoint_ && !resumed_) resume();
    resumed_ = true, halted_ = false;
    if (stopped() || epoch_ >= options_.epochs) return false;
    bar_.emplace("epoch " + std::to_string(epoch_ + 1), batches,
                 train::ProgressOptions{.unit = "batch", .enabled = !options_.rank});
    if (in_epoch_) bar_->update(in_epoch_);
    began_ = in_epoch_;
    return true;
  }
  int64_t epoch() const { return epoch_; }
  int64_t steps() const { return steps_; }
  /// Steps of this epoch that are done: above 0 at its beginning when it was resumed.
  int64_t in_epoch() const { return in_epoch_; }
  /// Did Ctrl-C end this epoch before its last step? Then there is nothing to show of it, and its checkpoint is written.
  bool interrupted() const { return halted_ && stop_; }
  /// One more step is done; false when the loop should end: the checkpoint is then of this very place. The loss is read from the device
  /// only where it is shown.
  bool step(const Tensor& loss) {
    NoGrad guard;
    loss_sum_.add_(loss.detach().to(kFloat32));
    ++steps_, ++in_epoch_;
    if (log_ && steps_ % 50 == 0) log_->add_scalar("loss/step", loss.item(), steps_);
    bar_->update(1, bar_->due() ? "loss " + train::fixed(mean_loss(), 4) : "");
    halted_ = stopped();
    if (!options_.profile.empty() && !options_.rank) profile();
    if (halted_ || (options_.checkpoint_every && steps_ % options_.checkpoint_every == 0)) save();
    return !halted_;
  }
  /// The metrics in the order of their names. An epoch that --steps ended early is shown, but its checkpoint stays within it.
  void end_epoch(const std::vector<double>& metrics) {
    std::vector<double> values = {mean_loss()};
    values.insert(values.end(), metrics.begin(), metrics.end());
    const double rate = double(in_epoch_ - began_) / bar_->seconds();
    bar_.reset();
    if (profile_) end_profile();
    ++epoch_;
    for (size_t i = 0; i < values_.size(); ++i) values_[i].push_back(values.at(i));
    if (!options_.rank) show(values, rate);
    if (log_) log_epoch(values);
    if (!options_.plot.empty() && !options_.rank) plot();
    print_explanation();
    loss_sum_.zero_(), in_epoch_ = 0;
    if (!halted_) save();
  }
  /// A picture for people: a PNG file (of no name: none), and TensorBoard's.
  void picture(const std::string& path, std::string_view name, const Tensor& image) {
    if (!path.empty()) io::save_png(path, image);
    if (log_) log_->add_image(name, image, epoch_);
  }
  /// Of the newest epoch: metric i in the order of their names; NaN before the first.
  double last(size_t i) const {
    return values_[i + 1].empty() ? std::numeric_limits<double>::quiet_NaN() : values_[i + 1].back();
  }
  /// The program's exit status; says how to go on after Ctrl-C.
  int finish() {
    bar_.reset();
    print_explanation();
    if (log_ && epoch_) log_hparams();
    if ((stop_ || signalled) && !options_.rank)
      std::printf(checkpoint_ ? "interrupted; go on with --resume --checkpoint %s\n" : "interrupted%s\n",
                  options_.checkpoint.c_str()),
          std::fflush(stdout);
    return anybody(stop_ || signalled) ? 130 : 0;
  }

  StateDict state_dict() const {
    StateDict out = {{"place", tensor(std::vector<int64_t>{epoch_, steps_, in_epoch_})},
                     {"loss_sum", loss_sum_.clone()}};
    for (size_t i = 0; i < values_.size(); ++i) out.set("values" + std::to_string(i), tensor(values_[i]));
    return out;
  }
  void load_state_dict(const StateDict& state) {
    const auto place = state.at("place").to_vector<int64_t>();
    epoch_ = place.at(0), steps_ = place.at(1), in_epoch_ = place.at(2);
    loss_sum_.copy_(state.at("loss_sum"));
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = state.at("values" + std::to_string(i)).to_vector<double>();
  }

 private:
  std::vector<std::string> columns() const {
    std::vector<std::string> out = {"epoch", "train loss"};
    out.insert(out.end(), metrics_.begin(), metrics_.end());
    out.insert(out.end(), {"batch/s", "peak memory"});
    return out;
  }
  void resume() {
    const auto step = checkpoint_->resume();
    if (!options_.rank && step) std::printf("resumed after step %lld\n", static_cast<long long>(*step));
    if (!options_.rank && !step) std::printf("no checkpoint in %s yet\n", options_.checkpoint.c_str());
    if (step && options_.rank)  // the file has rank 0's place in the random numbers
      default_generator().set_state(options_.seed + uint64_t(options_.rank), default_generator().offset());
  }
  void print_explanation() {
    if (const auto text = std::exchange(explain_, nullptr)) std::printf("\n%s\n", text().c_str());
  }
  /// Ranks stop in the same place, and none ends before rank 0 has written its checkpoint: a launcher would then end that too.
  bool anybody(bool me) const { return options_.any_rank ? options_.any_rank(me) : me; }
  bool stopped() {
    stop_ = anybody(signalled);
    return stop_ || (options_.steps && steps_ >= options_.steps);
  }
  double mean_loss() const { return loss_sum_.item() / double(std::max<int64_t>(1, in_epoch_)); }
  /// Ten steps behind the first three, or fewer where the epoch ends before.
  void profile() {
    if (++steps_here_ == 3) profile_.emplace();
    else if (profile_ && (steps_here_ == 13 || halted_)) end_profile();
  }
  void end_profile() {
    profile_->stop();
    std::printf("\n%s", profile_->table({.row_limit = 40}).c_str());
    profile_->export_chrome_trace(options_.profile);
    profile_.reset();
  }
  void show(const std::vector<double>& values, double rate) {
    const bool cuda = Device(options_.device).is_cuda();
    std::vector<std::string> cells = {std::to_string(epoch_)};
    for (const double value : values)
      cells.push_back(train::fixed(value, std::abs(value) < 0.01 ? 6 : std::abs(value) < 10 ? 4 : 2));
    cells.push_back(train::fixed(rate, 1));
    cells.push_back(train::bytes_text(double(cuda ? cuda::max_memory_allocated() : memory_stats().max_allocated)));
    table_.row(cells);
  }
  void log_epoch(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) log_->add_scalar(i ? metrics_[i - 1] : "train loss", values[i], epoch_);
    for (const auto& [name, module] : modules_)
      for (const auto& [weight, value] : module->named_parameters())
        log_->add_histogram(name + "/" + weight, value.detach(), epoch_);
  }
  void log_hparams() {
    std::vector<std::pair<std::string, double>> results;
    for (size_t i = 0; i < metrics_.size(); ++i) results.emplace_back(metrics_[i], last(i));
    log_->add_hparams({{"epochs", options_.epochs},
                       {"batch size", options_.batch_size},
                       {"learning rate", options_.lr},
                       {"seed", options_.seed},
                       {"device", options_.device}},
                      results);
    log_->flush();
  }
  void save() {
    if (!checkpoint_ || options_.rank) return;
    std::optional<double> metric;
    if (!metrics_.empty() && !values_.back().empty()) metric = values_.back().back();
    checkpoint_->save(steps_, metric);
  }
  /// Losses in one panel, every other metric in one of its own.
  void plot() const {
    std::vector<double> x;
    for (size_t i = 1; i <= values_[0].size(); ++i) x.push_back(double(i));
    std::vector<train::Panel> panels = {{"loss", "epoch", "loss", {{"train loss", x, values_[0]}}, false}};
    for (size_t i = 0; i < metrics_.size(); ++i) {
      const train::Curve curve{metrics_[i], x, values_[i + 1]};
      if (metrics_[i].find("loss") != std::string::npos) panels[0].curves.push_back(curve);
      else panels.push_back({metrics_[i], "epoch", metrics_[i], {curve}, false});
    }
    train::save_plot(options_.plot, panels);
  }
  Options options_;
  std::vector<std::string> metrics_;
  train::Table table_;
  std::vector<std::vector<double>> values_;  // train loss, then the metrics, of each epoch
  Tensor loss_sum_;                          // of the epoch so far
  std::optional<train::Checkpoint> checkpoint_;
  std::optional<train::SummaryWriter> log_;
  std::optional<train::ProgressBar> bar_;
  std::optional<profiler::Profile> profile_;
  std::vector<std::pair<std::string, nn::Module*>> modules_;
  std::function<std::string()> explain_;
  int64_t epoch_ = 0, steps_ = 0, in_epoch_ = 0, began_ = 0, steps_here_ = 0;  // here: since the program began
  bool resumed_ = false, halted_ = false, stop_ = false;                       // stop: a signal came, to any rank
};

}  // namespace samples
