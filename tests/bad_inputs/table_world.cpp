// Processes, the environment, training tools, models, distributions, the core.
#include <unistd.h>

#include <tapir/models/gpt2.h>

#include "table.h"

using namespace bad_inputs;
using namespace train;
using distributed::CommHook;
using distributed::DistributedDataParallel;
using distributed::FullyShardedDataParallel;
using distributed::GradBucket;
using distributed::launch_info;
using distributed::ProcessGroup;

namespace {
/// A process alone, as torchrun describes it, with one variable changed.
distributed::LaunchInfo place(const char* name, const std::string& value) {
  const Variable rank("RANK", "0"), world("WORLD_SIZE", "1"), address("MASTER_ADDR", "127.0.0.1"),
      port("MASTER_PORT", "29511");
  const Variable changed(name, value);
  return launch_info();
}
ProcessGroup group() {
  return distributed::init_process_group(
      {.launch = {.rank = 0, .world_size = 1, .address = "127.0.0.1", .port = 20000 + int(getpid() % 20000)}});
}
struct Net : nn::Module {
  nn::Linear fc{2, 2};
  Tensor forward(const Tensor& x) { return fc(x); }
  TAPIR_FIELDS(fc)
};
struct Throws : CommHook {
  bool at_begin;
  explicit Throws(bool at_begin) : at_begin(at_begin) {}
  void begin(const GradBucket&) override {
    if (at_begin) throw 5;
  }
  void finish(const GradBucket&) override {
    if (!at_begin) throw 5;
  }
};
models::GPT2LMHeadModel gpt() {
  return models::GPT2LMHeadModel({.vocab_size = 5, .n_positions = 8, .n_embd = 8, .n_layer = 1, .n_head = 2});
}
}  // namespace

V(1040, ("launch_info", "WORLD_SIZE", "[1, 16384]", "1e3"), place("WORLD_SIZE", "1e3"))
V(1041, ("launch_info", "WORLD_SIZE", "99999999999999999999"), place("WORLD_SIZE", "99999999999999999999"))
V(1042, ("launch_info", "WORLD_SIZE", "\" 2\""), place("WORLD_SIZE", " 2"))
V(1043, ("launch_info", "WORLD_SIZE", "+2"), place("WORLD_SIZE", "+2"))
V(1044, ("launch_info", "WORLD_SIZE", "\\x1b[31m2"), place("WORLD_SIZE", "\x1b[31m2"))
V(1045, ("launch_info", "WORLD_SIZE", "bytes)"), place("WORLD_SIZE", std::string(100000, '9')))
V(1046, ("launch_info", "RANK below WORLD_SIZE = 1", "5"), place("RANK", "5"))
V(1047, ("launch_info", "MASTER_PORT", "[1, 65535]", "4294967376"), place("MASTER_PORT", "4294967376"))
V(1048, ("launch_info", "MASTER_ADDR", "\"\""), place("MASTER_ADDR", ""))
V(1049, ("launch_info", "LOCAL_RANK", "\"x\""), place("LOCAL_RANK", "x"))
V(1050, ("launch_info", "LOCAL_WORLD_SIZE", "\"0\""), place("LOCAL_WORLD_SIZE", "0"))
R(1051, ("launch_info", "/nope"), place("TAPIR_STORE_SECRET_FILE", "/nope"))
R(1052, ("launch_info", "/dev/zero"), place("TAPIR_STORE_SECRET_FILE", "/dev/zero"))
V(1053, ("launch_info", "SLURM_NTASKS", "\"x\""), const Variable rank("SLURM_PROCID", "0"), count("SLURM_NTASKS", "x");
  launch_info())
V(1054, ("launch_info", "SLURM_JOB_NODELIST", "\",\""), distributed::first_host(","))
FINE(1055, expect(distributed::first_host(std::string(1 << 20, '[')).size() < 1 << 21))
V(1056, ("launch_info", "world_size", "9223372036854775807"), launch_info({.rank = 0, .world_size = kMost}))
V(1057, ("init_process_group", "timeouts above 0", "nan"),
  distributed::init_process_group({.launch = {.rank = 0, .world_size = 1}, .timeout = kNan}))
V(1058, ("init_process_group", "tcp, gloo or nccl", "carrier pigeon"),
  distributed::init_process_group({.launch = {.rank = 0, .world_size = 1}, .backend = "carrier pigeon"}))
R(1059, ("2 ranks within 0.2 s", "missing: 1"),
  distributed::init_process_group(
      {.launch = {.rank = 0, .world_size = 2, .address = "127.0.0.1", .port = 40001 + int(getpid() % 20000)},
       .init_timeout = 0.2}))
V(1060, ("ProcessGroup", "empty one"), ProcessGroup g = group(); ProcessGroup taken = std::move(g); g.barrier())
V(1061, ("broadcast", "src in [0, 1)", "-1"), group().broadcast(ones({2}), -1))
V(1062, ("all_to_all", "9223372036854775807"), group().all_to_all(ones({2}), ones({2}), {kMost}, {kMost}))
V(1063, ("new_group", "ranks that differ", "(0, 0)"), group().new_group({0, 0}))
V(1064, ("find_group", "-9223372036854775808"), distributed::find_group(kLeast))
V(1065, ("DistributedDataParallel", "bucket sizes", "nan"), Net net; const ProcessGroup g = group();
  DistributedDataParallel ddp(net, {.bucket_cap_mb = kNan}, g))
FINE(
    1066, const ProcessGroup g = group(); for (const bool at_begin
                                               : {true, false}) {
      Net net;
      DistributedDataParallel ddp(net, {}, g);
      ddp.register_comm_hook(Throws(at_begin));
      int caught = 0;
      for (int i = 0; i < 2; ++i) try {
          sum(ddp(ones({2}))).backward();
        } catch (int k) {
          caught += k;
        }
      expect(caught == 10, "the hook's own exception, twice");
    })
V(1067, ("FullyShardedDataParallel", "null pointer"), Net net; const ProcessGroup g = group();
  FullyShardedDataParallel fsdp(net, {.blocks = {nullptr}}, g))
V(1068, ("FullyShardedDataParallel", "modules of the model"), Net net, other; const ProcessGroup g = group();
  FullyShardedDataParallel fsdp(net, {.blocks = {&other.fc}}, g))
V(1069, ("FullyShardedDataParallel", "floating point", "int64"), Net net; const ProcessGroup g = group();
  FullyShardedDataParallel fsdp(net, {.param_dtype = kInt64}, g))
V(1070, ("FullyShardedDataParallel", "max_norm", "nan"), Net net; const ProcessGroup g = group();
  FullyShardedDataParallel fsdp(net, {}, g); fsdp.clip_grad_norm_(kNan))

V(1080, ("ConfusionMatrix", "[0, 3)", "target 2 and prediction 5 at position 2"), ConfusionMatrix m(3);
  m.update(tensor({0, 1, 5}), tensor({0, 1, 2})))
V(1081, ("ConfusionMatrix", "[0, 3)", "target -2"), ConfusionMatrix m(3);
  m.update(tensor({0, 1, 2}), tensor({0, 1, -2})))
FINE(
    1082, ConfusionMatrix m(2); m.update(tensor({0, 1}), tensor({0, 1})); try {
      m.update(tensor({0, 1}), tensor({0, 9}));
    } catch (const ValueError&) {} expect(values(m.compute()) == Values{1, 0, 0, 1}, "the counts from before"))
V(1083, ("Accuracy", "at most the 4 classes", "9"), Accuracy a({.top_k = 9}); a.update(ones({3, 4}), tensor({0, 1, 2})))
V(1084, ("EarlyStopping", "best", "nan"), EarlyStopping e; StateDict s = e.state_dict(); s.set("best", full({}, kNan));
  e.load_state_dict(s))
V(1085, ("EarlyStopping", "epochs", "1.5"), EarlyStopping e; StateDict s = e.state_dict();
  s.set("epochs", full({}, 1.5)); e.load_state_dict(s))
V(1086, ("EarlyStopping", "waited", "undefined"), EarlyStopping e; StateDict s = e.state_dict();
  s.set("waited", Tensor()); e.load_state_dict(s))
V(1087, ("AveragedModel", "n_averaged", "-3"), Net net; AveragedModel<Net> a(net); StateDict s = a.state_dict();
  s.set("n_averaged", full({}, -3)); a.load_state_dict(s))
V(1088, ("Table", "least width", "2147483647"), Table({"a"}, 2, std::numeric_limits<int>::max()))
FINE(1089, expect(!has(plot_svg({{"<script>\x1b", std::string("a\0b", 3), "&", {{"\"'", {1}, {1}}}}}), "<script>"),
                  "a label that is escaped"))
FINE(1090, expect(!has(plot_svg({{"t", "x", "y", {{"c", {-1e308, 1e308}, {-1e308, 1e308}}}}}), "nan"), "numbers"))
V(1091, ("generate", "max_new_tokens", "9223372036854775807"), auto m = gpt();
  models::generate(m, {0}, {.max_new_tokens = kMost}))
V(1092, ("embedding", "-1", "5 rows"), auto m = gpt(); models::generate(m, {-1}, {.max_new_tokens = 2}))
FINE(
    1093, auto m = gpt(); int caught = 0; try {
      models::generate(m, {0}, {.max_new_tokens = 4}, [](int64_t) -> bool { throw 5; });
    } catch (int i) { caught = i; } expect(caught == 5, "the callback's own exception"))
V(1094, ("causal_mask", "-1"), models::causal_mask(-1, 3, kCPU))
V(1095, ("causal_mask", "9223372036854775807"), models::causal_mask(kMost, 3, kCPU))
V(1096, ("KVCache", "layer below 1", "7"), models::KVCache c(1, 1, 1, 4, 1); c.begin(1);
  c.attend(7, ones({1, 1, 1, 1}), ones({1, 1, 1, 1}), ones({1, 1, 1, 1})))
V(1097, ("KVCache", "9223372036854775807 more at position 0"), models::KVCache c(1, 1, 1, 4, 1); c.reserve(kMost))
V(1100, ("Bernoulli", "logits that are numbers"), distributions::Bernoulli::from_logits(tensor({kNan})))
V(1101, ("Categorical", "logits that are numbers"), distributions::Categorical::from_logits(tensor({0., kNan})))
V(1102, ("Normal", "scale"), distributions::Normal(tensor({0.}), tensor({kNan})))
FINE(1103, Tensor x = ones({2}); Tensor& same = x; x = same; x = std::move(same);
     expect(values(x) == Values{1, 1}, "a tensor that is assigned to itself"))
FINE(1104, expect(has(ones({1}).expand({kMost}).str(), "..."), "a text that ends"))
O(1105, ("to_vector", "1099511627776"), ones({1}).expand({int64_t(1) << 40}).to_vector<float>())
V(1106, ("slice", "step must be positive", "-9223372036854775808"), ones({3}).slice(0, 0, 3, kLeast))
V(1107, ("Device", "bytes) ..."), Device(std::string(1 << 20, 'c')))
FINE(
    1108, int caught = 0; try { parallel_for(1000, 1, [](int64_t, int64_t) { throw 5; }); } catch (int i) {
      caught = i;
    } expect(caught == 5, "the loop's own exception"))
FINE(1109, StateDict s; for (int i = 0; i < 100; ++i) s.append("a" + std::to_string(i), ones({1})); s.merge("p.", s);
     expect(s.size() == 200, "a state that is merged with itself"))
FINE(1110, expect(ones({1}).expand(Shape{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6}).str() ==
                  "tensor(..., size=(6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6))"))
V(1150, ("KVCache", "(2)", "int64 (1,)"), models::KVCache c(1, 2, 1, 4, 1); c.reorder(tensor({0})))
V(1151, ("KVCache", "7", "2"), models::KVCache c(1, 2, 1, 4, 1); c.reorder(tensor({0, 7})))
V(1152, ("KVCache", "float32 (2,)"), models::KVCache c(1, 2, 1, 4, 1); c.reorder(ones({2})))
V(1161, ("KVCache", "moved from"), models::KVCache c(1, 2, 1, 4, 1); models::KVCache taken = std::move(c);
  c.reorder(tensor({0, 1})))
V(1153, ("AUC", "2^53", "9007199254740993"), AUC a; a.update(tensor({(int64_t(1) << 53) + 1}), tensor({0})))
V(1154, ("AUC", "labels 0 and 1", "2"), AUC a; a.update(ones({1}), tensor({2})))
V(1155, ("Accuracy", "target 3", "3 classes"), Accuracy a; a.update(ones({1, 3}), tensor({3})))
V(1156, ("Accuracy", "target"), Accuracy a; a.update(ones({1, 3}), Tensor()))
V(1157, ("Perplexity", "logits"), Perplexity p; p.update(Tensor(), tensor({3})))
V(1158, ("AveragedModel", "n_averaged", "9223372036854775807"), Net net; AveragedModel<Net> a(net);
  a.n_averaged = kMost; a.update_parameters(net))
V(1159, ("ProgressBar", "interval", "nan"), ProgressBar("x", 10, {.interval = kNan}))
V(1160, ("SummaryWriter", "UTF-8", "\\xff"), SummaryWriter w(temporary("summary")); w.add_text("\xff", "text", 0))
