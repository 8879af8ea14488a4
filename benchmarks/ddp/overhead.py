"""Data-parallel training beside PyTorch's DDP, two processes of one thread each on this machine, in the same run:

    python3 benchmarks/ddp/overhead.py [--build build/release] [--steps 20] [--repeats 3] [--json FILE]

Each repeat runs Tapir's ranks (sockets of its own, then gloo) and PyTorch's (gloo) in turn; the minimum counts. `alone` is the same step
without the other rank's gradients, so ddp - alone is what data-parallel training costs. The ratio is Tapir / PyTorch of the ddp steps.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def peer(model, steps):
    """One rank of PyTorch's side; torch.distributed reads its place from the environment."""
    import time

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    sys.path.insert(0, str(HERE.parent))
    import peer_models

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if model == "mlp":
        widths = [784, 1024, 1024, 1024, 10]
        layers = [layer for i, o in zip(widths, widths[1:]) for layer in (nn.Linear(i, o), nn.ReLU())]
        net, x, y = nn.Sequential(*layers[:-1]), torch.randn(64, 784), torch.randint(0, 10, (64,))
    else:
        net = peer_models.ResNet((2, 2, 2, 2), False, 10, True).to(memory_format=torch.channels_last)
        x, y = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(0, 10, (8,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)

    def least(run):
        best = float("inf")
        for i in range(steps + 2):
            begin = time.perf_counter()
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
            if i >= 2:
                best = min(best, 1e3 * (time.perf_counter() - begin))
        return best

    alone = least(net)
    ddp = DistributedDataParallel(net)
    dist.barrier()
    times = torch.tensor([alone, least(ddp)])
    dist.all_reduce(times, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print("alone %.3f ddp %.3f" % tuple(times.tolist()))
    dist.destroy_process_group()


def run_tapir(options, model, backend):
    command = [options.build / "tapir-run", "--nproc", "2", options.build / "benchmarks/ddp_overhead", model, str(options.steps), backend]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return times_in(done)


def run_torch(options, model):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [options.python, __file__, "--peer", model, "--steps", str(options.steps)]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **place, "RANK": str(r)})
             for r in range(2)]
    ended = [rank.communicate() for rank in ranks]
    return times_in(subprocess.CompletedProcess(command, ranks[0].returncode, *ended[0]))


def times_in(done):
    words = done.stdout.replace("[0] ", "").split()
    if done.returncode or len(words) != 4:
        sys.exit(f"{done.args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return float(words[1]), float(words[3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build/release")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer, options.steps)
    rows = []
    print(f"{'model':<8}{'program':<16}{'alone ms':>10}{'ddp ms':>10}{'cost ms':>10}{'ratio':>8}")
    for model in ("mlp", "resnet"):
        programs = {"tapir tcp": lambda: run_tapir(options, model, "tcp"), "tapir gloo": lambda: run_tapir(options, model, "gloo"),
                    "pytorch gloo": lambda: run_torch(options, model)}
        times = {name: [] for name in programs}
        for _ in range(options.repeats):
            for name, run in programs.items():
                times[name].append(run())
        least = {name: (min(t[0] for t in list_), min(t[1] for t in list_)) for name, list_ in times.items()}
        for name, (alone, ddp) in least.items():
            ratio = ddp / least["pytorch gloo"][1]
            rows.append({"model": model, "program": name, "alone_ms": alone, "ddp_ms": ddp, "ratio": ratio})
            print(f"{model:<8}{name:<16}{alone:>10.2f}{ddp:>10.2f}{ddp - alone:>10.2f}{ratio:>8.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


main()
