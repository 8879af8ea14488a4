"""Tapir beside PyTorch: ./run bench [name ...] [--json FILE]

Both programs run as servers and take turns, one repeat each, so that what disturbs the machine disturbs both alike. The result is the
ratio Tapir / PyTorch of the minimum times (below 1: Tapir is faster); the medians stand beside it. The times of op_overhead are ms per
1,000 calls, which is us per call; PyTorch is called from Python.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = {
    "op_overhead": ["no_grad", "recording", "inference", "backward"],
    "mlp": ["step"],
    "cnn": ["step"],
    "adamw": ["step"],
    "busy_neighbour": ["step"],
}


class Server:
    """One of the two programs; run() returns the milliseconds per step of one repeat."""

    def __init__(self, command, cpus=None):
        self.command = command
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if cpus:
            os.sched_setaffinity(self.process.pid, cpus)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"bench: {self.command[0]} ended at '{line}'")
        return answer

    def run(self, workload, variant, steps):
        return float(self.ask(f"run {workload} {variant} {steps}"))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def has_torch(python):
    return subprocess.run([str(python), "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def find_torch():
    """A Python that has PyTorch: $TAPIR_BENCH_PYTHON, else a virtual environment of ours in the user's cache folder; None without."""
    chosen = os.environ.get("TAPIR_BENCH_PYTHON")
    if chosen:
        return chosen if has_torch(chosen) else None
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache) / "tapir" / "bench-venv"
    python = folder / "bin" / "python"
    if not python.exists() or not has_torch(python):
        print(f"installing PyTorch into {folder}", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "-q", "--retries", "1", "torch", "numpy"]):
            try:
                done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except OSError:
                return None
            if done.returncode:
                return None
    return python if has_torch(python) else None


def compare(servers, workload, variant, options):
    """The times of every repeat, per server: A, B, A, B, ..."""
    steps = []
    for server in servers:
        server.run(workload, variant, 1)  # builds it and takes the warm-up steps
        ms = min(server.run(workload, variant, 3) for _ in range(2))
        steps.append(max(3, math.ceil(options.seconds * 1000 / ms)))
    times = [[] for _ in servers]
    for _ in range(options.repeats):
        for server, count, list_ in zip(servers, steps, times):
            list_.append(server.run(workload, variant, count))
    return times


def machine(python):
    info = pathlib.Path("/proc/cpuinfo").read_text()

    def field(*names):
        return next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.split("\t")[0].strip() in names), "")
    flags = field("flags", "Features").split()
    isa = next((name for name in ("avx512_bf16", "avx512f", "avx2", "sve", "asimd", "sse4_2") if name in flags), "unknown")
    version = "not here"
    if python:
        version = subprocess.run([str(python), "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()
    log = HERE.parent / "build" / "release" / "configure.log"
    lines = log.read_text().splitlines() if log.exists() else []
    onednn = next((line.split()[-1] for line in lines if line.startswith("--   oneDNN")), "unknown")
    load = os.getloadavg()[0]
    cpu = f"{field('model name') or os.uname().machine}, {isa}, {len(os.sched_getaffinity(0))} CPUs, load {load:.1f}"
    return f"{cpu}; oneDNN {onednn}; PyTorch {version}"


def number(ms):
    return "-" if ms is None else f"{ms:.4g}" if ms < 1000 else f"{ms:.0f}"


def print_row(row):
    cells = [row["workload"], row["variant"], row["threads"], number(row["tapir_ms"]), number(row["tapir_median_ms"]),
             number(row["pytorch_ms"]), number(row["pytorch_median_ms"]), "-" if row["ratio"] is None else f"{row['ratio']:.3f}"]
    print("{:<16}{:<12}{:>7} {:>10} {:>10} {:>12} {:>12} {:>8}".format(*cells), flush=True)


def measure(names, threads, options, python):
    """One row per variant. The busy neighbour's two threads get two CPUs, so that it is in their way on larger machines too."""
    rows = []
    for group in ([n for n in names if n != "busy_neighbour"], ["busy_neighbour"] if "busy_neighbour" in names and threads == 2 else []):
        if not group:
            continue
        cpus = sorted(os.sched_getaffinity(0))[:2] if group == ["busy_neighbour"] else None
        servers = [Server([HERE.parent / "build/release/benchmarks/tapir_bench", "--threads", threads], cpus)]
        if python:
            servers.append(Server([python, HERE / "peer.py", threads], cpus))
        for workload in group:
            for variant in WORKLOADS[workload]:
                times = compare(servers, workload, variant, options)
                tapir, torch = times if python else (times[0], None)
                rows.append({"workload": workload, "variant": variant, "threads": threads, "tapir_ms": min(tapir),
                             "pytorch_ms": min(torch) if torch else None, "ratio": min(tapir) / min(torch) if torch else None,
                             "tapir_median_ms": statistics.median(tapir), "pytorch_median_ms": statistics.median(torch) if torch else None})
                print_row(rows[-1])
        for server in servers:
            server.close()
    return rows


def own_single_thread(rows, options):
    """Milliseconds of our mlp step on one thread, alone: what the busy neighbour is measured against."""
    known = [row["tapir_ms"] for row in rows if row["workload"] == "mlp" and row["threads"] == 1]
    if known:
        return known[0]
    server = Server([HERE.parent / "build/release/benchmarks/tapir_bench", "--threads", 1])
    best = min(compare([server], "mlp", "step", options)[0])
    server.close()
    return best


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"workloads: {', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 2; busy_neighbour always takes 2")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a repeat (default: 0.4)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    names = [name for name in WORKLOADS if not options.names or name in options.names]
    if names == ["busy_neighbour"]:
        options.threads = [2]

    python = find_torch()
    if not python:
        print("PyTorch cannot be had here: Tapir alone")
    print(machine(python))
    print("ms per step, minimum and median of {} interleaved repeats (op_overhead: us per call)".format(options.repeats))
    print("{:<16}{:<12}{:>7} {:>10} {:>10} {:>12} {:>12} {:>8}".format("workload", "variant", "threads", "tapir", "median", "pytorch", "median", "ratio"))
    rows = []
    for threads in options.threads:
        rows += measure(names, threads, options, python)
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    if ratios:
        print(f"geometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.3f} (below 1: Tapir is faster)")
    busy = [row for row in rows if row["workload"] == "busy_neighbour"]
    if busy:
        alone = own_single_thread(rows, options)
        print(f"busy_neighbour: {busy[0]['tapir_ms'] / alone:.2f} of our own time on one undisturbed thread ({number(alone)} ms)")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


main()
