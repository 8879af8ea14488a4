"""The sections of ./run gpu-check: what runs in call A and in call B, with the largest share of time that each may take."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

from runner import Part

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"

# op_cases in parts of about equal length, by regular expressions on "family/op: call".
OP_CASES = {
    "pointwise_a": "^pointwise/[a-fA-F]", "pointwise_g": "^pointwise/[g-lG-L]", "pointwise_m": "^pointwise/[m-zM-Z_]", "function": "^function/",
    "reduction": "^reduction/", "scan": "^(scan|order|random|create)/", "shape": "^(shape|diagonal)/", "rearrange": "^(rearrange|places)/",
    "index": "^(index|quantize)/", "matmul": "^matmul/", "linalg": "^linalg/", "nn": "^nn/", "loss": "^loss/",
}
# A few of each for the emulated device, which takes a millisecond where a GPU takes a microsecond.
FEW_CASES = {
    "pointwise_a": "^pointwise/(abs|add|exp): ", "pointwise_g": "^pointwise/(gelu|lerp): ", "pointwise_m": "^pointwise/(relu|mul): ",
    "function": "^function/(digamma|hypot): ", "reduction": "^reduction/(sum|amax|softmax|cumsum): ", "scan": "^(scan/cumprod|order/sort|create/arange): ",
    "shape": "^(shape/(cat|transpose)|diagonal/tril): ", "rearrange": "^rearrange/(flip|roll): ", "index": "^index/(gather|scatter_add): ",
    "matmul": "^matmul/(bmm|mv): ", "linalg": "^linalg/(cholesky|det): ", "nn": "^nn/(conv2d|layer_norm|max_pool2d): ", "loss": "^loss/(mse_loss|cross_entropy): ",
}
CONFORMANCE = {"pointwise": "^ops_pointwise/", "reduction": "^ops_(reduction|shape|index)/", "linalg": "^ops_(linalg|matmul)/", "nn": "^ops_(nn|loss)/",
               "modules": "^modules/", "models": "^(models|autocast|grad_scaler)/", "training": "^(optimizers|schedulers|files)/"}
FEW_CONFORMANCE = {"pointwise": "^ops_pointwise/(add|exp)/00", "reduction": "^ops_(reduction/sum|shape/cat|index/gather)/00", "linalg": "^ops_(linalg/linalg.det|matmul/matmul)/00",
                   "nn": "^ops_(nn/(layer_norm|conv2d)|loss/cross_entropy)/00", "modules": "^modules/(Linear|LayerNorm|LSTM)/00", "training": "^(optimizers/(SGD|AdamW)|files/.*)/00"}
# For compute-sanitizer, which is slow: one part each.
SANITIZED = ["^pointwise/(add|exp): ", "^reduction/(sum|softmax|cumsum): ", "^nn/layer_norm: ", "^index/(index_select|scatter_add): ", "^order/sort: ",
             "^nn/(max_pool2d|embedding): ", "^loss/cross_entropy: ", "^matmul/(bmm|mm): ", "^nn/scaled_dot_product_attention: "]
# For ncu: (name, row of ops.py or a workload, kernel). Every kernel stands as __global__ in cuda_kernels/: tests/gpu_check.sh looks.
KERNELS = [
    ("add", "add 1e7 contiguous forward", "packed_kernel"), ("add, transposed", "add 1e7 transposed forward", "general_kernel"),
    ("exp", "exp 1e7 contiguous forward", "packed_kernel"), ("to bfloat16", "to_bfloat16 1e7 contiguous forward", "convert_packs_kernel"),
    ("transpose", "contiguous 1e7 contiguous forward", "transpose_kernel"), ("sum of rows", "sum_rows 1e7 contiguous forward", "reduce_rows"),
    ("sum of columns", "sum_columns 1e7 contiguous forward", "reduce_columns"), ("softmax", "softmax 1e7 contiguous forward", "softmax_cached"),
    ("layer norm", "layer_norm 1e7 contiguous forward", "norm_rows_cached"), ("layer norm, backward", "layer_norm 1e7 contiguous both", "norm_rows_grad_cached"),
    ("batch norm", "batch_norm 1e7 contiguous forward", "norm_apply"), ("cross entropy", "cross_entropy 1e7 contiguous forward", "loss_rows"),
    ("cumsum", "cumsum_rows 1e7 contiguous forward", "scan_lines"), ("scatter_add", "scatter_add 1e7 contiguous forward", "combine_tiles"),
    ("index_select", "index_select 1e7 contiguous forward", "index_kernel"), ("attention, float32", "causal_attention 1e7 contiguous forward", "attention_forward"),
    ("AdamW", "adamw step", "update_flat"),
]
METRICS = "gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed," \
          "sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread,launch__occupancy_limit_registers"


@dataclasses.dataclass
class Section:
    call: str
    name: str
    title: str
    share: int  # seconds, where the whole budget is 540
    parts: list
    at_once: int = 1
    not_here: str = ""  # why it cannot run on this machine
    lines: int = 30     # of each part, in the report
    after: object = None  # (context, section, what came of the parts) -> text for the report, more results

    @property
    def not_built(self):
        return self.not_here.endswith("not built")


class Context:
    """What the sections are made from: programs, device, sizes, environment."""

    def __init__(self, options, folder):
        self.options, self.folder, self.out = options, folder, pathlib.Path(options.out)
        self.emulated = options.device == "emulated"
        self.device = "cuda" if self.emulated else options.device
        self.programs = pathlib.Path(options.programs or ".").resolve()
        self.cores = len(os.sched_getaffinity(0))
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        plugin = "libtapir_cuda_emulated.so" if self.emulated else "libtapir_cuda.so"
        self.env.setdefault("TAPIR_CUDA_PLUGIN", str(self.program(plugin)))
        if self.emulated:
            self.env.setdefault("TAPIR_CACHE", str(self.programs / "gpu_check_cache"))
            self.env.setdefault("TAPIR_BENCH_SIZE", "tiny")
        if options.conformance:
            self.env["TAPIR_CONFORMANCE"] = str(pathlib.Path(options.conformance).resolve())

    def program(self, name):
        """Where it lies: in a build folder or in an unpacked bundle; else where it would."""
        for place in ("", "tests", "benchmarks", "samples"):
            if (self.programs / place / name).is_file():
                return self.programs / place / name
        return self.programs / name

    def missing(self, *names):
        absent = [name for name in names if not self.program(name).exists()]
        return f"{', '.join(absent)} not built" if absent else ""

    def python(self):
        """A Python with PyTorch, or None."""
        name = os.environ.get("TAPIR_BENCH_PYTHON") or "python3"
        look = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"  # an import takes seconds
        return name if shutil.which(name) and subprocess.run([name, "-c", look], stderr=subprocess.DEVNULL).returncode == 0 else None


def bench(c, name, words, alone=True, **more):
    """bench.py, whose rows go into a JSON file that results() reads."""
    path = more.pop("json", None) or c.folder / f"{name}.json"
    command = [sys.executable, BENCHMARKS / "bench.py", *words, "--device", c.device, "--program", c.program("tapir_bench"), "--threads", "1", "--json", path]
    env = {"TAPIR_LIBRARY_REPORT": "1", "TAPIR_BENCH_PYTHON": c.options.torch or sys.executable}
    beside = ["--alone"] if alone else ["--peer-device", "cpu"] if c.emulated else []
    return Part(name, command + beside, env=env)


def targets(c, call):
    """The steps that are our goals, in call A alone and in call B beside PyTorch."""
    from results import measured
    alone = call == "A" or (c.emulated and not c.options.torch)
    repeats = ["--repeats", "3" if c.emulated else "5", "--seconds", "0.05" if c.emulated else "0.5"]
    absent = c.missing("tapir_bench") or ("" if alone or c.options.torch else "no Python with PyTorch (TAPIR_BENCH_PYTHON)")
    beside = "" if call == "A" else " beside PyTorch" + (" (stand-in: alone)" if alone else "")
    found = []
    both = ["bf16"] if c.emulated and not alone else ["bf16", "compiled_bf16"]  # torch.compile() for a CPU takes a minute
    for name, share, peer_share, variants in (("ceiling", 20, 30, ["copy", "matmul_bf16"]), ("gpt2_124m", 65, 80, both), ("resnet50", 65, 100, both),
                                              ("gpt2_decode", 35, 50, both)):
        part = bench(c, f"target_{name}", [name, "--variants", *variants, *repeats], alone)
        found.append(Section(call, f"target_{name}", f"{name}{beside}", share if call == "A" else peer_share, [part], not_here=absent, lines=60, after=measured))
    return found


def case_parts(c, program, prefix, table, words, env=None):
    return [Part(f"{prefix}.{name}", [c.program(program), "--device", c.device, *words, "--only", only], env=env or {}, cases=True) for name, only in table.items()]


def call_a(c):
    from results import accuracy, cases
    direct = {"TAPIR_CUDA_ALLOCATOR": "direct"}
    op_env = direct if c.emulated else {}
    table = FEW_CASES if c.emulated else OP_CASES
    recorded = FEW_CONFORMANCE if c.emulated else CONFORMANCE
    tests = ["cuda memory: blocks*,cuda matmul: what is added,cuda: streams and events,CUDA copy: planes*"] if c.emulated else ["--folder", "cuda_kernels"]
    shards = 1 if c.emulated else 4
    allocators = [Part(f"tests.{kind}" + (f"_{k}" if shards > 1 else ""), [c.program("tapir_tests"), *tests, *(["--shard", f"{k}/{shards}"] if shards > 1 else [])],
                       env={"TAPIR_CUDA_ALLOCATOR": kind}) for kind in ("direct", "caching", "expandable") for k in range(shards)]
    digits = [c.program("mnist"), "--device", c.device, *(["--data", c.options.mnist] if c.options.mnist and not c.emulated else [])]
    if c.emulated:
        digits += ["--model", "mlp", "--limit", "256", "--epochs", "2", "--data", "generated"]
    no_recorded = "" if c.options.conformance else "no recorded results (--conformance DIR)"
    autocast = {"all": "^(matmul|nn)/(bmm|mm|softmax): "} if c.emulated else {"nn": "^(nn|loss)/", "rest": "^(?!(nn|loss)/)"}
    return targets(c, "A") + [
        Section("A", "mnist", "MNIST, to its accuracy", 45, [Part("mnist", digits)], not_here=c.missing("mnist"), lines=12, after=accuracy),
        Section("A", "tests", "Tests of the device, with each allocator", 90, allocators, min(3 * shards, c.cores), c.missing("tapir_tests"), 8, cases),
        Section("A", "op_cases", "Operations on the device", 120, case_parts(c, "op_cases", "op_cases", table, ["--mode", "value"], op_env),
                min(12, c.cores), c.missing("op_cases"), 20, cases),
        Section("A", "conformance", "Recorded results on the device", 50, case_parts(c, "conformance", "conformance", recorded, ["--cases", c.options.conformance], op_env),
                min(8, c.cores), no_recorded or c.missing("conformance"), 20, cases),
        Section("A", "autocast", "Operations under autocast", 20, case_parts(c, "op_cases", "autocast", autocast, ["--mode", "autocast"], op_env),
                min(2, c.cores), c.missing("op_cases"), 20, cases),
    ]


def kernel_parts(c):
    sys.path.insert(0, str(BENCHMARKS))
    import ops
    inputs = {f"{name} {size} {layout} {which}": f"{name}|{words}|{which}" for name, size, layout, which, words in ops.variants()}
    ncu = [] if c.emulated else ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics", METRICS]
    parts = []
    for name, row, kernel in KERNELS:
        row = row.replace("1e7", "1e2") if c.emulated else row
        line = f"run ops {inputs[row]} 1" if row in inputs else f"run {row} 1"
        few = ["-k", f"regex:^{kernel}$", "--launch-skip", "1", "-c", "1"] if ncu else []
        parts.append(Part(f"ncu.{name.replace(', ', '_').replace(' ', '_')}", [*ncu, *few, c.program("tapir_bench"), "--device", c.device], line))
    return parts


def sanitizer_sections(c):
    from results import cases
    sections = []
    for tool in ("memcheck", "racecheck"):
        words = [] if c.emulated else ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        chosen = SANITIZED[:2] if c.emulated else SANITIZED
        parts = [Part(f"{tool}.{re.sub(r'[^a-z_0-9]+', '_', only).strip('_')}", [*words, c.program("op_cases"), "--device", c.device, "--mode", "value", "--only", only],
                      env={"TAPIR_CUDA_ALLOCATOR": "direct"}, cases=True) for only in chosen]
        absent = c.missing("op_cases") or ("" if c.emulated or shutil.which("compute-sanitizer") else "no compute-sanitizer")
        title = f"compute-sanitizer {tool}" + (" (stand-in: the emulation's own checks)" if c.emulated else "")
        sections.append(Section("B", tool, title, 30, parts, min(10, c.cores), absent, 12, cases))
    return sections


def call_b(c):
    from results import cases, differences, kernels, measured, operations
    torch = "" if c.options.torch else "no Python with PyTorch (TAPIR_BENCH_PYTHON)"
    absent = c.missing("tapir_bench") or torch
    long = ["--repeats", "5", "--seconds", "0.2"]
    steps = [bench(c, "steps", ["op_overhead", "adamw", *long], alone=False), bench(c, "nets", ["mlp", "cnn", "lstm", "gpt_mini", "--variants", "step", *long], alone=False)]
    few = ["--only", "^(add|softmax|sum)$", "--sizes", "1e2"] if c.emulated else ["--limit", "60"]
    table = bench(c, "ops", ["ops", "--repeats", "3", "--seconds", "0.01", "--verbose", "--markdown", c.out / "ops.md", *few], alone=bool(torch),
                  json=c.out / "ops.json")
    if c.emulated:
        short = ["--repeats", "2", "--seconds", "0.02"]
        steps = [bench(c, "steps", ["op_overhead", "--variants", "no_grad", *short], alone=bool(torch)),
                 bench(c, "nets", ["adamw", "mlp", "--variants", "step", *short], alone=bool(torch))]
    nccl = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    if c.emulated:
        nccl["TAPIR_NCCL_LIBRARY"] = str(c.program("libnccl_stand_in.so"))
    compared = FEW_CASES if c.emulated else OP_CASES
    if c.emulated:
        compared = {name: compared[name] for name in ("reduction", "matmul", "nn")}
    return targets(c, "B") + [
        Section("B", "steps", "Training steps beside PyTorch", 60, steps, not_here=c.missing("tapir_bench") or ("" if c.emulated else torch), lines=40, after=measured),
        Section("B", "ops", "Operations beside PyTorch", 80, [table], not_here=c.missing("tapir_bench") or ("" if c.emulated else torch), after=operations),
        Section("B", "ncu", "Kernels under ncu" + (" (stand-in: run alone)" if c.emulated else ""), 80, kernel_parts(c),
                not_here=c.missing("tapir_bench") or ("" if c.emulated or shutil.which("ncu") else "no ncu"), lines=4, after=kernels),
        *sanitizer_sections(c),
        Section("B", "nccl", "NCCL with one rank", 15, [Part("nccl", [c.program("distributed_worker"), "nccl_alone", "nccl"], env=nccl)],
                not_here=c.missing("distributed_worker"), lines=12),
        Section("B", "dnn_json", "The device in cuDNN's words, for plans without one", 5, [Part("dnn_json", [c.program("cudnn_plans"), "--write", c.out / "cudnn_device.json"])],
                not_here="" if c.program("cudnn_plans").exists() and not c.emulated else "no cudnn_plans, or no GPU"),
        Section("B", "difference", "Largest difference between CPU and device, in ulp", 40, case_parts(c, "op_cases", "difference", compared, ["--mode", "difference"]),
                min(12, c.cores), c.missing("op_cases"), 0, differences),
    ]
