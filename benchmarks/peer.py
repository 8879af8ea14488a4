"""PyTorch's side of the benchmarks: the workloads of workloads.cpp in its strongest eager modes (fused optimizers, channels_last).

peer.py THREADS DEVICE: a line `run WORKLOAD VARIANT STEPS` is answered with the milliseconds per step; `compile` with those that the first
step took longer than a later one; `work WORKLOAD VARIANT` with what a step does; `version` with the version.
"""
import os
import subprocess
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import ops
import peer_models

WARM_STEPS = 20
CUDA = sys.argv[2].startswith("cuda")


def wait():
    if CUDA:
        torch.cuda.synchronize()


def timed(step):
    def run(steps):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return (time.perf_counter() - start) * 1e3 / steps
    return run


def op_overhead(variant):
    calls = 1000
    x, y = torch.ones(1), torch.ones(1)

    def add():
        for _ in range(calls):
            x + y

    if variant == "no_grad":
        return timed(torch.no_grad()(add))
    if variant == "inference":
        return timed(torch.inference_mode()(add))
    x.requires_grad_()
    if variant == "recording":
        return timed(add)

    def backward(steps):
        seconds = 0
        for _ in range(steps):
            z = x
            for _ in range(calls):
                z = z + y
            start = time.perf_counter()
            z.backward()
            del z
            wait()
            seconds += time.perf_counter() - start
        return seconds * 1e3 / steps
    return backward


def training(net, optimizer, x, labels, variant):
    loss = nn.CrossEntropyLoss()
    if variant == "compiled":
        net = torch.compile(net)

    def step():
        optimizer.zero_grad()
        loss(net(x), labels).backward()
        optimizer.step()
    return timed(step)


def mlp(variant):
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    return training(net, torch.optim.Adam(net.parameters(), lr=peer_models.RATE, fused=True), torch.randn(64, 784), torch.randint(0, 10, (64,)), variant)


def cnn(variant):
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)).to(memory_format=torch.channels_last)
    images = torch.randn(128, 1, 28, 28).to(memory_format=torch.channels_last)
    return training(net, torch.optim.AdamW(net.parameters(), lr=peer_models.RATE, weight_decay=0.01, fused=True), images, torch.randint(0, 10, (128,)), variant)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(10000, 512), nn.LSTM(512, 512, num_layers=2), nn.Linear(512, 10000)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[0]).flatten(0, 1)


def lstm(variant):
    net = Lstm()
    optimizer = torch.optim.Adam(net.parameters(), lr=peer_models.RATE, fused=True)
    return training(net, optimizer, torch.randint(0, 10000, (64, 32)), torch.randint(0, 10000, (64 * 32,)), variant)


def resnet50_shapes(first):
    """The 160 parameter shapes of ResNet-50 without fc.bias."""
    shapes = []

    def conv(out, inputs, k):
        shapes.extend([(out, inputs, k, k), (out,), (out,)])
    conv(first, 3, 7)
    inputs = first
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = first << stage
        for block in range(blocks):
            conv(width, inputs, 1), conv(width, width, 3), conv(4 * width, width, 1)
            if block == 0:
                conv(4 * width, inputs, 1)
            inputs = 4 * width
    return shapes + [(1000, inputs)]


def adamw(variant):
    width = peer_models.bench_size(sys.argv[2])[2]
    parameters = [torch.randn(shape, requires_grad=True) for shape in resnet50_shapes(width)]
    assert len(parameters) == 160 and (width != 64 or sum(p.numel() for p in parameters) == 25556032)
    for p in parameters:
        p.grad = torch.randn_like(p) * (1e-20 if variant == "tiny" else 1)
    return timed(torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=True).step)


def linear_int8(variant):
    warnings.filterwarnings("ignore", module="torch|__main__")  # that there will be another way
    with torch.device("cpu"):  # it has no other
        net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(768, 3072)), {nn.Linear}, dtype=torch.qint8)[0]
        x = torch.randn(int(variant[4:]), 768)

    @torch.inference_mode()
    def calls():
        for _ in range(100):
            net(x)
    return timed(calls)


def chain(variant):
    def cheap(x):
        y = torch.relu(x * 1.5 + 0.5) - x
        return torch.maximum(torch.abs(y * y), x) * 0.25 - 1 + x

    def mixed(x):
        y = torch.sqrt(torch.sigmoid(x * 1.5 + 0.5)) * x
        return torch.tanh(x / (y + 1)) * 0.5 + x

    def heavy(x):
        for _ in range(3):
            x = torch.exp(F.gelu(torch.tanh(x)))
        return torch.tanh(x)

    kind, size = variant.split("_")[:2]
    x = torch.randn(int(float(size)))
    if kind == "copy":
        y = torch.empty_like(x)
        return timed(lambda: y.copy_(x))
    f = {"cheap": cheap, "mixed": mixed, "heavy": heavy}[kind]
    if variant.endswith("_c"):
        f = torch.compile(f)
    return timed(torch.no_grad()(lambda: f(x)))


def busy_neighbour(variant):
    alone = mlp(variant)
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"

    def run(steps):
        neighbour = subprocess.Popen([sys.executable, "-S", "-c", spin])
        time.sleep(0.2)
        try:
            return alone(steps)
        finally:
            neighbour.kill()
            neighbour.wait()
    return run


def op_input(word):
    layout = word[-1] if word[-1] in "tb" else ""
    high, sizes = word.rstrip("tb").split(":") if ":" in word else (0, word.rstrip("tb"))
    shape = [int(n) for n in sizes.split("x")]
    image, wanted = len(shape) == 4, list(shape)
    if layout == "b":
        shape[0] = 1
    if layout == "t" and not image:
        shape[-1], shape[-2] = shape[-2], shape[-1]
    x = torch.randint(0, int(high), shape) if high else torch.rand(shape)
    if high == "2":
        x = x.bool()
    if layout == "t":
        return x.to(memory_format=torch.channels_last) if image else x.transpose(-1, -2)
    return x.expand(wanted) if layout == "b" else x


def op(variant):
    name, inputs, which = variant.split("|")
    call = eval(f"lambda x, y=None, z=None: {ops.OPS[name][1]}", {"torch": torch, "F": F})
    inputs = [op_input(word) for word in inputs.split(",")]
    if which == "forward":
        return timed(torch.no_grad()(lambda: call(*inputs)))
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    weight = torch.ones_like(call(*inputs).detach())
    return timed(lambda: torch.autograd.grad(call(*inputs), leaves, weight))


def serve():
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(0)
    current, run, compiling = None, None, 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "version":
            print(torch.__version__, flush=True)
            continue
        if words[0] == "compile":
            print(compiling, flush=True)
            continue
        if words[0] == "work":
            print(peer_models.work(words[1], words[2], sys.argv[2]), flush=True)
            continue
        _, name, variant, steps = words
        if (name, variant) != current:
            run = None
            with torch.device(sys.argv[2]):  # not while steps run: a default device slows every call of PyTorch
                if name in peer_models.WARM_STEPS:
                    run = timed(getattr(peer_models, name)(variant, sys.argv[2]))
                else:
                    run = {f.__name__: f for f in (op_overhead, mlp, cnn, lstm, adamw, linear_int8, chain, busy_neighbour)}.get(name, op)(variant)
            compiling = run(1) if variant.startswith("compiled") else 0
            run(peer_models.WARM_STEPS.get(name, 2 if name in ("ops", "lstm") else WARM_STEPS))
            compiling -= run(1) if variant.startswith("compiled") else 0
            current = name, variant
        if int(steps) > 1:
            run(1)
        print(run(int(steps)), flush=True)


serve()
