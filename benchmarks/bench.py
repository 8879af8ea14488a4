"""Tapir beside PyTorch: ./run bench [name ...] [--json FILE], ./run bench ops [--only REGEX] [--markdown FILE]; ./run bench --limits

Both programs run as servers and take turns, one repeat each, so that what disturbs the machine disturbs both alike. The result is the
ratio Tapir / PyTorch of the minimum times (below 1: Tapir is faster); the medians stand beside it. The times of op_overhead are ms per
1,000 calls, which is us per call; PyTorch is called from Python. bf16 is mixed precision
by autocast (gpt2_decode: a bfloat16 model, ms per token). adamw tiny: with gradients of 1e-20, whose
squares are denormal numbers. linear_int8: 100 products of 8-bit rows with weights of 768 by 3072. compiled: compile() beside torch.compile() of the model, and a line that
compares it with both eager steps. chain: ten pointwise operations on so many elements, `_c` by compile() beside torch.compile(), and a copy
of the same bytes. limit: what the machine could do of a training step at best, in percent of the time that ours took: its products,
convolutions, attention and recurrent layers (core/work.h counts) at the speed of a large product of its dtype, or the bytes of its kernels at
that of a large copy, whichever takes longer; above 100 where kernels do with less (Winograd's convolutions) or memory gives more than to a
copy: tensors that stay in a cache, updates in place, which run at up to twice its speed (adamw).
--limits measures these speeds alone. --scaling: how much faster a step would be with more threads than here are CPUs, by a model: one
thread runs the pieces of each loop one after the other, and the loop takes as long as the longest of them and 1 us * log2(threads); libraries
divide evenly, what is in no loop stays. Memory and power, which cores share, are not in it. The speed-up that two threads have stands beside.
loader: ms per batch of 128 JPEGs of CIFAR-10, by number of workers. `ops` measures single operations,
at 10^2, 10^4 and 10^7 elements, contiguous, transposed and broadcast, forward and with backward, all with the last of --threads. TAPIR_BENCH_SIZE (target, small or tiny) says
how large resnet50, gpt2_124m, gpt2_decode and ceiling are: without it target on a GPU and small on a CPU. --json is written row by row.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import ops

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = {
    "op_overhead": ["no_grad", "recording", "inference", "backward"],
    "mlp": ["step", "compiled"],
    "cnn": ["step", "compiled"],
    "lstm": ["step", "compiled"],
    "resnet18_cifar": ["step", "compiled", "bf16"],
    "resnet50": ["step", "bf16"],
    "gpt_mini": ["step", "compiled", "bf16"],
    "gpt2_124m": ["step", "bf16"],
    "gpt2_decode": ["step", "bf16"],
    "ceiling": ["copy", "matmul_f32", "matmul_bf16"],
    "loader": ["0", "1", "2"],
    "adamw": ["step", "tiny"],
    "linear_int8": ["rows1", "rows16", "rows256"],
    "chain": [kind + size + mode for size in ("1e4", "1e5", "1e7")
              for kind, modes in (("copy_", [""]), ("cheap_", ["", "_c"]), ("mixed_", ["", "_c"]), ("heavy_", ["", "_c"])) for mode in modes],
    "busy_neighbour": ["step"],
}
# Rows with a limit, and what is measured for it: the best of a few sizes.
LIMITED = ["mlp", "cnn", "lstm", "resnet18_cifar", "resnet50", "gpt_mini", "gpt2_124m", "gpt2_decode", "adamw"]
LIMITS = {"float32": [f"matmul_f32{size}" for size in ("_half", "", "_double")],
          "bfloat16": [f"matmul_bf16{size}" for size in ("_half", "", "_double")], "copy": ["copy", "copy_double"]}


# Seconds before each repeat. OpenMP's idle threads spin for some milliseconds (libgomp 300,000 rounds), and those of the one program would
# hold a CPU that the other needs.
REST = 0.02


class Ended(Exception):
    """One of the two programs is no more."""


class Rows(list):
    """A list that a file follows, row by row: valid JSON at any time."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "w") if path else None
        if self.file:
            self.file.write("[]\n")
            self.file.flush()

    def append(self, row):
        super().append(row)
        if self.file:
            self.file.seek(self.file.tell() - 2)
            self.file.write((",\n" if len(self) > 1 else "") + json.dumps(row) + "]\n")
            self.file.flush()


class Server:
    """One of the two programs; run() returns the milliseconds per step of one repeat. After Ended it starts again when asked."""

    def __init__(self, command, cpus=None):
        self.command, self.cpus, self.process = command, cpus, None

    def start(self):
        cpus = self.cpus
        self.process = subprocess.Popen([str(word) for word in self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if cpus:
            os.sched_setaffinity(self.process.pid, cpus)

    def ask(self, line):
        if not self.process:
            self.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.process.wait()
            self.process = None
            raise Ended(f"{pathlib.Path(self.command[0]).name} ended at '{line}'")
        return answer

    def run(self, workload, variant, steps):
        return float(self.ask(f"run {workload} {variant} {steps}"))

    def compile_seconds(self):
        return float(self.ask("compile")) / 1000

    def work(self, workload, variant):
        return self.ask(f"work {workload} {variant}")

    def count(self, workload, variant):
        """{flops, bytes} of a step's kernels."""
        return dict(zip(("flops", "bytes"), map(int, self.ask(f"count {workload} {variant}").split())))

    def scaling(self, workload, variant):
        return json.loads(self.ask(f"scaling {workload} {variant}"))

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def has_torch(python):
    return subprocess.run([str(python), "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def torch_version(python):
    """From its file: an import takes seconds."""
    code = "import importlib.util as u; exec(open(u.find_spec('torch').submodule_search_locations[0] + '/version.py').read()); print(__version__)"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip()


def find_torch():
    """A Python that has PyTorch: $TAPIR_BENCH_PYTHON, else a virtual environment of ours in the user's cache folder; None without."""
    chosen = os.environ.get("TAPIR_BENCH_PYTHON")
    if chosen:
        return chosen if torch_version(chosen) else None
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache) / "tapir" / "bench-venv"
    python = folder / "bin" / "python"
    if not python.exists() or not has_torch(python):
        print(f"installing PyTorch into {folder}", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "-q", "--retries", "1", "torch", "numpy", "pillow"]):
            try:
                done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except OSError:
                return None
            if done.returncode:
                return None
    return python if has_torch(python) else None


def compare(servers, workload, variant, options, seconds=None, least=3):
    """The times of every repeat, per server: A, B, A, B, ..."""
    steps = []
    for server in servers:
        server.run(workload, variant, 1)  # builds it and takes the warm-up steps
        ms = server.run(workload, variant, 1)
        least = min(least, max(1, int(1000 / ms)))  # a step of a second is long enough for a clock
        if ms < 1000:
            ms = min(server.run(workload, variant, least) for _ in range(2))
        steps.append(max(least, math.ceil((seconds or options.seconds) * 1000 / ms)))
    times = [[] for _ in servers]
    for _ in range(options.repeats):
        for server, count, list_ in zip(servers, steps, times):
            time.sleep(REST)
            list_.append(server.run(workload, variant, count))
    return times


def measure_limits(server, options):
    """What the machine gives at best, per second: flops of products by dtype, and bytes of a copy, read and written."""
    best = dict.fromkeys(LIMITS, 0)
    for name, variants in LIMITS.items():
        for variant in variants:
            amount = int(server.work("ceiling", variant).split()[0])
            ms = min(compare([server], "ceiling", variant, options, min(options.seconds, 0.1))[0])
            best[name] = max(best[name], amount / ms * 1000)
    return best


def limit_of(row, limits):
    """The percentage of a step's time that its flops or its bytes take at the machine's best."""
    seconds = max(row["flops"] / limits["bfloat16" if "bf16" in row["variant"] else "float32"], row["bytes"] / limits["copy"])
    return 100 * seconds / (row["tapir_ms"] / 1000)


def print_limits(options, rows):
    """A row for each limit and number of threads."""
    print(machine(None, options.program))
    print("{:<24}{:>7} {:>16}".format("limit", "threads", "at best"))
    for threads in options.threads:
        server = Server([options.program, "--threads", threads, "--device", options.device])
        for name, value in measure_limits(server, options).items():
            rows.append({"limit": name, "threads": threads, "per_second": value, "unit": "bytes" if name == "copy" else "flops"})
            text = f"{value / 1e9:.1f} {'GB/s' if name == 'copy' else 'GFLOP/s'}"
            print("{:<24}{:>7} {:>16}".format("copy, read and written" if name == "copy" else f"{name} products", threads, text), flush=True)
        server.close()


SCALING = [2, 8, 16, 64]  # threads


def simulate(server, workload, variant, threads, options):
    """Milliseconds of a step with so many threads, of each kernel and outside of them, and the number of loops."""
    server.run(workload, variant, 1)
    said = min((server.scaling(workload, variant) for _ in range(options.repeats)), key=lambda s: s["ms"])
    parts = {name: ms - saved + loops * math.log2(threads) / 1000 for name, (ms, saved, loops) in said["kernels"].items()}
    parts["outside kernels"] = said["ms"] - sum(ms for ms, *_ in said["kernels"].values())
    return parts, sum(loops for *_, loops in said["kernels"].values())


def print_scaling(options, rows):
    """A row for each workload: the speed-ups of the model, and what takes the time of a step with 16 threads."""
    print(machine(None, options.program))
    print(f"{'workload':<16}{'variant':<10}{'1 thread':>9}" + "".join(f"{f'x{n}':>7}" for n in SCALING)
          + f"{'x2 seen':>9}{'loops':>7}  of a step with 16 threads")
    real = [Server([options.program, "--threads", threads]) for threads in (1, 2)]
    servers = {threads: Server([options.program, "--threads", threads, "--simulated"]) for threads in [1, *SCALING]}
    for workload in options.names:
        for variant in filter(lambda v: has(workload, v), options.variants or WORKLOADS[workload][:1]):
            one, two = (min(compare([server], workload, variant, options)[0]) for server in real)
            model, loops = {}, 0
            for threads, server in servers.items():
                parts, loops = simulate(server, workload, variant, threads, options)
                model[threads] = sum(parts.values())
                if threads == 16:
                    share = sorted(((ms / model[16], name) for name, ms in parts.items()), reverse=True)
                server.close()  # memory for one workload at a time
                server.process = None
            row = {"workload": workload, "variant": variant, "tapir_ms": one, "model": {n: model[1] / model[n] for n in SCALING},
                   "measured_2": one / two, "loops": loops, "share_of_16": {name: part for part, name in share}}
            print(f"{workload:<16}{variant:<10}{number(one):>9}" + "".join(f"{up:7.1f}" for up in row["model"].values()) + f"{row['measured_2']:9.2f}{loops:7.0f}  "
                  + ", ".join(f"{name} {100 * part:.0f} %" for part, name in share[:5]), flush=True)
            rows.append(row)
    for server in real:
        server.close()


def machine(python, program):
    info = pathlib.Path("/proc/cpuinfo").read_text()

    def field(*names):
        return next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.split("\t")[0].strip() in names), "")
    said = subprocess.run([program, "device"], capture_output=True, text=True).stdout.split(", ")  # cpu, avx2, 2 threads
    isa = said[1] if len(said) == 3 else "unknown"
    version = torch_version(python) if python else "not asked"
    log = HERE.parent / "build" / "release" / "configure.log"
    lines = log.read_text().splitlines() if log.exists() else []
    onednn = next((line.split()[-1] for line in lines if line.startswith("--   oneDNN")), "unknown")
    load = os.getloadavg()[0]
    cpu = f"{field('model name') or os.uname().machine}, {isa}, {len(os.sched_getaffinity(0))} CPUs, load {load:.1f}"
    return f"{cpu}; oneDNN {onednn}; PyTorch {version}"


def number(ms):
    return "-" if ms is None else f"{ms:.4g}" if ms < 1000 else f"{ms:.0f}"


def images():
    """A folder of JPEGs, one folder per class: CIFAR-10 unpacked once into build/; None where its archive is not to be found."""
    folder = HERE.parent / "build" / "bench_images"
    if not folder.exists():
        places = [pathlib.Path(place) for place in (os.environ.get("TAPIR_DATA"), HERE.parent / "datasets", HERE.parent.parent / "shared/data") if place]
        archive = next((place / "cifar10-jpg.tar.gz" for place in places if (place / "cifar10-jpg.tar.gz").exists()), None)
        if not archive:
            return None
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh, tarfile.open(archive) as tar:
            tar.extractall(fresh)
            test = next(path for path in sorted(pathlib.Path(fresh).rglob("test")) if path.is_dir())
            test.rename(folder)
    return folder


COLUMNS = "{:<16}{:<14}{:>7} {:>10} {:>10} {:>12} {:>12} {:>8} {:>7}"


def print_row(row):
    cells = [row["workload"], row["variant"], row["threads"], number(row["tapir_ms"]), number(row["tapir_median_ms"]),
             number(row["pytorch_ms"]), number(row["pytorch_median_ms"]), "-" if row["ratio"] is None else f"{row['ratio']:.3f}",
             "-" if row["limit"] is None else f"{row['limit']:.0f} %"]
    print(COLUMNS.format(*cells), flush=True)


def print_compiled(row, rows, servers):
    """A compiled row by the eager one before it: ours, and the best that PyTorch has."""
    eager_variant = row["variant"][len("compiled_"):] or "step"
    eager = next((r for r in rows if (r["workload"], r["variant"], r["threads"]) == (row["workload"], eager_variant, row["threads"])), None)
    row["compile_seconds"] = [server.compile_seconds() for server in servers]
    text = "compiling took " + " s, PyTorch's ".join(f"{s:.2g}" for s in row["compile_seconds"]) + " s"
    if eager and eager["tapir_ms"]:
        row["by_own_eager"] = row["tapir_ms"] / eager["tapir_ms"]
        if row["pytorch_ms"]:
            row["by_best_peer"] = row["tapir_ms"] / min(row["pytorch_ms"], eager["pytorch_ms"])
            text = f"by PyTorch's best {row['by_best_peer']:.3f}; " + text
        text = f"by our eager step {row['by_own_eager']:.3f}, " + text
    print(" " * 16 + text, flush=True)


def measure_one(servers, workload, variant, threads, options, limits):
    """The row of a variant. Both sides must say that a step does the same."""
    row = {"workload": workload, "variant": variant, "threads": threads, "tapir_ms": None, "pytorch_ms": None, "ratio": None,
           "tapir_median_ms": None, "pytorch_median_ms": None, "limit": None}
    try:
        works = [server.work(workload, variant) for server in servers]
        if len(set(works)) > 1:
            sys.exit(f"bench: {workload} {variant} is not the same for both: {works[0]}; {works[1]}")
        count, unit = works[0].split()[:2]
        row |= {"work": works[0], "count": int(count), "unit": unit.rstrip(",")}
        if workload in LIMITED:
            row |= servers[0].count(workload, variant)
        times = compare(servers, workload, variant, options)
    except Ended as error:
        print(f"{workload} {variant}: {error}", flush=True)
        return row | {"error": str(error)}
    tapir, torch = times if len(times) > 1 else (times[0], None)
    row |= {"tapir_ms": min(tapir), "pytorch_ms": min(torch) if torch else None, "ratio": min(tapir) / min(torch) if torch else None,
            "tapir_median_ms": statistics.median(tapir), "pytorch_median_ms": statistics.median(torch) if torch else None}
    return row | {"limit": limit_of(row, limits) if limits and "flops" in row else None}


def has(workload, variant):
    """False for what is another workload's variant alone: a step without it would stand under its name."""
    base = "step" if variant == "compiled" else variant.removeprefix("compiled_")
    return base in WORKLOADS[workload] or all(base not in listed for listed in WORKLOADS.values())


def measure(names, threads, options, python, rows):
    """One row per variant. The busy neighbour's two threads get two CPUs, so that it is in their way on larger machines too."""
    for group in ([n for n in names if n != "busy_neighbour"], ["busy_neighbour"] if "busy_neighbour" in names and threads == 2 else []):
        if not group:
            continue
        cpus = sorted(os.sched_getaffinity(0))[:2] if group == ["busy_neighbour"] else None
        servers = [Server([options.program, "--threads", threads, "--device", options.device], cpus)]
        if python:
            servers.append(Server([python, HERE / "peer.py", threads, options.peer_device or options.device], cpus))
        limits = None
        try:
            if any(name in LIMITED for name in group):
                limits = measure_limits(servers[0], options)
        except Ended as error:
            print(f"no limits: {error}", flush=True)
        for workload in group:
            for variant in filter(lambda v: has(workload, v), options.variants or WORKLOADS[workload]):
                row = measure_one(servers, workload, variant, threads, options, limits)
                print_row(row)
                if variant.startswith("compiled") and row["tapir_ms"]:
                    print_compiled(row, rows, servers)
                rows.append(row)
        for server in servers:
            server.close()


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def measure_ops(options, python, rows):
    """A row per operation, size, layout and pass. With a limit of time the largest sizes come first."""
    threads = options.threads[-1]
    servers = [Server([options.program, "--threads", threads, "--device", options.device])]
    if python:
        servers.append(Server([python, HERE / "peer.py", threads, options.peer_device or options.device]))
    chosen = [v for v in ops.variants() if re.search(options.only, v[0]) and v[1] in options.sizes]
    if options.limit:
        chosen.sort(key=lambda v: (-ops.SIZES[v[1]], v[3] != "forward", v[2] != "contiguous"))
    begun = time.monotonic()
    for at, (name, size, layout, which, inputs) in enumerate(chosen):
        if options.limit and time.monotonic() - begun > options.limit:
            print(f"the time was up: {at} of {len(chosen)} measured", flush=True)
            break
        row = {"op": name, "size": size, "layout": layout, "pass": which, "tapir_ms": None, "pytorch_ms": None, "ratio": None}
        try:
            best = [min(list_) for list_ in compare(servers, "ops", f"{name}|{inputs}|{which}", options, 0.005, 1)]
            row |= {"tapir_ms": best[0], "pytorch_ms": best[1] if python else None, "ratio": best[0] / best[1] if python else None}
        except Ended as error:
            row["error"] = str(error)
        rows.append(row)
        if options.verbose:
            print(f"{name:<26}{size:>4} {layout:<11}{which:<8}{number(row['tapir_ms']):>10}{number(row['pytorch_ms']):>10} {row['ratio'] or 0:8.3f}"
                  + (f"  {row['error']}" if "error" in row else ""), flush=True)
        elif which == "forward" and layout == "contiguous" and size == "1e2":
            print(f"  {name}", file=sys.stderr, flush=True)
    for server in servers:
        server.close()


def ops_report(rows, head):
    """Markdown: the summary, the ten slowest beside PyTorch, what is near the memory's speed, and all ratios."""
    key = lambda row: (row["size"], row["layout"], row["pass"])
    broken, rows = [row for row in rows if not row["tapir_ms"]], [row for row in rows if row["tapir_ms"]]
    if not rows:
        return head + "\n\nnothing was measured\n"
    value = {(row["op"], *key(row)): row["ratio"] or row["tapir_ms"] for row in rows}
    names = list(dict.fromkeys(row["op"] for row in rows))
    lines = [head, ""]
    if rows[0]["ratio"]:
        lines += [f"{len(names)} operations, {len(rows)} measurements, geometric mean of Tapir / PyTorch (below 1: Tapir is faster): "
                  f"**{mean([row['ratio'] for row in rows]):.3f}**", "", "| | " + " | ".join(ops.LAYOUTS) + " |", "|---" * (len(ops.LAYOUTS) + 1) + "|"]
        for size in ops.SIZES:
            for which in ops.PASSES:
                cells = [[row["ratio"] for row in rows if key(row) == (size, layout, which)] for layout in ops.LAYOUTS]
                lines.append(f"| {size} {'forward' if which == 'forward' else 'with backward'} | " + " | ".join(f"{mean(c):.2f}" if c else "-" for c in cells) + " |")
        above = [row for row in rows if row["ratio"] > 1.5]
        lines += ["", f"Above 1.5: {len(above)}. The ten worst:", "", "| op | size | layout | pass | Tapir ms | PyTorch ms | ratio |", "|---|---|---|---|---|---|---|"]
        for row in sorted(rows, key=lambda row: -row["ratio"])[:10]:
            lines.append(f"| {row['op']} | {' | '.join(key(row))} | {row['tapir_ms']:.4g} | {row['pytorch_ms']:.4g} | {row['ratio']:.2f} |")
    lines += [""] + [f"No time of {row['op']}, {', '.join(key(row))}: {row['error']}" for row in broken]
    large = {row["op"]: 1e7 * ops.BYTES[row["op"]] / row["tapir_ms"] / 1e6 for row in rows if key(row) == ("1e7", "contiguous", "forward") and row["op"] in ops.BYTES}
    if "copy_" in large:
        lines += ["", f"Memory traffic at 1e7 elements, as a part of copy_'s {large['copy_']:.1f} GB/s: "
                  + ", ".join(f"{name} {100 * speed / large['copy_']:.0f} %" for name, speed in large.items() if name != "copy_")]
    columns = [(size, layout, which) for size in ops.SIZES for which in ops.PASSES for layout in ops.LAYOUTS]
    lines += ["", f"All {'ratios' if rows[0]['ratio'] else 'times in ms'}; c, t, b: contiguous, transposed, broadcast; +: with backward", "",
              "| op | " + " | ".join(f"{size} {layout[0]}{'+' * (which == 'both')}" for size, layout, which in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(f"{value[(name, *c)]:.2f}" if (name, *c) in value else "" for c in columns) + " |")
    return "\n".join(lines) + "\n"


def own_single_thread(rows, options):
    """Milliseconds of our mlp step on one thread, alone: what the busy neighbour is measured against."""
    known = [row["tapir_ms"] for row in rows if row["workload"] == "mlp" and row["threads"] == 1]
    if known:
        return known[0]
    server = Server([options.program, "--threads", 1])
    best = min(compare([server], "mlp", "step", options)[0])
    server.close()
    return best


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"workloads: {', '.join(WORKLOADS)} (default: all), or ops")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 2; busy_neighbour always takes 2")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a repeat (default: 0.4)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    parser.add_argument("--only", metavar="REGEX", default="", help="of ops: those with such a name")
    parser.add_argument("--markdown", metavar="FILE", help="of ops: write the report there instead")
    parser.add_argument("--sizes", nargs="+", default=list(ops.SIZES), help=f"of ops: of {' '.join(ops.SIZES)}")
    parser.add_argument("--limit", type=float, default=0, metavar="SECONDS", help="of ops: what is not measured then is left out")
    parser.add_argument("--verbose", action="store_true", help="of ops: print each row")
    parser.add_argument("--variants", nargs="+", help="these alone, of every workload named that has them")
    parser.add_argument("--limits", action="store_true", help="only what this machine gives at best: products and a copy, by number of threads")
    parser.add_argument("--scaling", action="store_true", help="only how steps would gain by more threads, by a model")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, for both")
    parser.add_argument("--peer-device", help="another one for PyTorch (default: the same)")
    parser.add_argument("--program", metavar="FILE", default=HERE.parent / "build/release/benchmarks/tapir_bench", help="our side's program")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKLOADS and options.names != ["ops"]]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    names = [name for name in WORKLOADS if not options.names or name in options.names]
    if "loader" in names:
        os.environ["TAPIR_BENCH_IMAGES"] = str(images() or "")
        if not os.environ["TAPIR_BENCH_IMAGES"]:
            print("loader: cifar10-jpg.tar.gz is in none of $TAPIR_DATA, datasets, ../shared/data")
            names.remove("loader")
    if names == ["busy_neighbour"]:
        options.threads = [2]

    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # so that compiling is timed each time
    alone = options.alone or options.limits or options.scaling
    python = None if alone else find_torch()
    if not python and not alone:
        print("PyTorch cannot be had here: Tapir alone")
    rows = Rows(options.json)
    if options.limits or options.scaling:
        options.names = options.names or LIMITED
        try:
            return (print_limits if options.limits else print_scaling)(options, rows)
        except Ended as error:
            sys.exit(f"bench: {error}")
    if options.names == ["ops"]:
        measure_ops(options, python, rows)
        text = ops_report(rows, f"{machine(python, options.program)}, {options.threads[-1]} threads; minimum of {options.repeats} interleaved repeats")
        if options.markdown:
            pathlib.Path(options.markdown).write_text(text)
        else:
            print(text)
        return
    print(machine(python, options.program))
    print("ms per step, minimum and median of {} interleaved repeats (op_overhead: us per call)".format(options.repeats))
    print(COLUMNS.format("workload", "variant", "threads", "tapir", "median", "pytorch", "median", "ratio", "limit"))
    for threads in options.threads:
        measure(names, threads, options, python, rows)
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    if ratios:
        print(f"geometric mean of the ratios: {mean(ratios):.3f} (below 1: Tapir is faster)")
    busy = [row for row in rows if row["workload"] == "busy_neighbour"]
    if busy and busy[0]["tapir_ms"]:
        alone = own_single_thread(rows, options)
        print(f"busy_neighbour: {busy[0]['tapir_ms'] / alone:.2f} of our own time on one undisturbed thread ({number(alone)} ms)")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
