"""PyTorch's side of models.cpp: NAME(variant, device) returns a step. The same models, written as a user of PyTorch would."""
import contextlib
import os

import torch
import torch.nn.functional as F
from torch import nn

WARM_STEPS = {"resnet18_cifar": 1, "resnet50": 1, "gpt_mini": 1, "gpt2_124m": 1, "gpt2_decode": 16, "ceiling": 3, "loader": 10}

RATE = 1e-12  # kRate of workloads.h

# BenchSize of workloads.h: images, pixels, width; rows, tokens, layers, channels, vocabulary; copied, side.
SIZES = {"target": (256, 224, 64, 16, 1024, 12, 768, 50257, 1 << 28, 8192), "small": (16, 224, 64, 1, 512, 12, 768, 50257, 1 << 24, 1024),
         "tiny": (2, 32, 8, 1, 16, 2, 64, 211, 1 << 16, 64)}


def bench_size(device):
    return SIZES[os.environ.get("TAPIR_BENCH_SIZE") or ("target" if device.startswith("cuda") else "small")]


def work(workload, variant, device):
    """What a step does, word for word as tapir_bench says it."""
    images, pixels, width, rows, tokens, layers, channels, vocabulary, copied, side = bench_size(device)
    gpt2 = f"{layers} layers of {channels}, {vocabulary} words"
    return {"resnet50": f"{images} images of {pixels}x{pixels}, first stage of {width} channels",
            "gpt2_124m": f"{rows * tokens} tokens in {rows} rows, {gpt2}", "gpt2_decode": f"1 tokens, {gpt2}",
            "adamw": f"1 steps, first stage of {width} channels",
            "ceiling": f"{8 * copied} bytes" if variant == "copy" else f"{2 * side ** 3} flops"}.get(workload, "1 steps")


def training(variant, device, net, optimizer, x, labels):
    kind = device.split(":")[0]
    if variant.startswith("compiled"):
        net = torch.compile(net)
    cast = (lambda: torch.autocast(kind, dtype=torch.bfloat16)) if variant.endswith("bf16") else contextlib.nullcontext

    def step():
        optimizer.zero_grad()
        with cast():
            loss = F.cross_entropy(net(x).flatten(0, -2), labels)
        loss.backward()
        optimizer.step()
    return step


class Block(nn.Module):
    """A basic block (two convolutions) or a bottleneck (three)."""

    def __init__(self, inputs, planes, stride, bottleneck):
        super().__init__()
        out = planes * 4 if bottleneck else planes
        if bottleneck:
            shapes = [(inputs, planes, 1, 1), (planes, planes, 3, stride), (planes, out, 1, 1)]
        else:
            shapes = [(inputs, planes, 3, stride), (planes, planes, 3, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in shapes)
        self.downsample = None
        if stride != 1 or inputs != out:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        h = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h = norm(conv(h))
            if i + 1 < len(self.convs):
                h = F.relu(h, inplace=True)
        return F.relu(h + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, classes, small_images, width=64):
        super().__init__()
        stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False)] if small_images else [nn.Conv2d(3, width, 7, 2, 3, bias=False)]
        stem += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)] + ([] if small_images else [nn.MaxPool2d(3, 2, 1)])
        layers, inputs = [], width
        for stage, count in enumerate(blocks):
            for i in range(count):
                layers.append(Block(inputs, width << stage, 2 if stage and i == 0 else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
        self.features, self.fc = nn.Sequential(*stem, *layers), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def vision(variant, device, net, batch, size, classes, decay):
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=decay, fused=True)
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    return training(variant, device, net, optimizer, images, torch.randint(0, classes, (batch,)))


def resnet18_cifar(variant, device):
    return vision(variant, device, ResNet((2, 2, 2, 2), False, 10, True), 64, 32, 10, 5e-4)


def resnet50(variant, device):
    images, pixels, width = bench_size(device)[:3]
    return vision(variant, device, ResNet((3, 4, 6, 3), True, 1000, False, width), images, pixels, 1000, 1e-4)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache, past):
        batch, steps, width = x.shape
        q, k, v = (part.view(batch, steps, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        if cache is not None:
            cache[0][:, :, past:past + steps], cache[1][:, :, past:past + steps] = k, v
            k, v = cache[0][:, :, :past + steps], cache[1][:, :, :past + steps]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=steps > 1)
        return self.rest(x, y)

    def rest(self, x, y):
        batch, steps, width = x.shape
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, steps, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def decode(self, x, cache, past):
        """One token, by shapes that stay: the whole cache and a mask, with `past` a tensor."""
        q, k, v = (part.view(1, 1, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        cache[0].index_copy_(2, past, k), cache[1].index_copy_(2, past, v)
        mask = (torch.arange(cache[0].shape[2], device=x.device) <= past)[None, None, None]
        return self.rest(x, F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask))


class GPT2(nn.Module):
    def __init__(self, vocabulary, positions, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h, self.ln_f = nn.ModuleList(Layer(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, caches=None, past=0):
        x = self.wte(tokens) + self.wpe(torch.arange(past, past + tokens.shape[1], device=tokens.device))
        for i, layer in enumerate(self.h):
            x = layer(x, caches[i] if caches else None, past)
        return F.linear(self.ln_f(x), self.wte.weight)

    def decode(self, token, caches, past):
        x = self.wte(token) + self.wpe(past)
        for layer, cache in zip(self.h, caches):
            x = layer.decode(x, cache, past)
        return F.linear(self.ln_f(x), self.wte.weight)[:, -1]


def gpt(variant, device, net, vocabulary, shape, beta2):
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, beta2), weight_decay=0.1, fused=True)
    count = shape[0] * shape[1]
    return training(variant, device, net, optimizer, torch.randint(0, vocabulary, shape), torch.randint(0, vocabulary, (count,)))


def gpt_mini(variant, device):
    return gpt(variant, device, GPT2(65, 256, 384, 6, 6), 65, (16, 256), 0.99)


def gpt2_124m(variant, device):
    rows, tokens, layers, channels, vocabulary = bench_size(device)[3:8]
    return gpt(variant, device, GPT2(vocabulary, tokens, channels, layers, channels // 64), vocabulary, (rows, tokens), 0.95)


def gpt2_decode(variant, device):
    layers, channels, vocabulary = bench_size(device)[5:8]
    heads, capacity = channels // 64, 16 + 256
    net = GPT2(vocabulary, 1024, channels, layers, heads).eval()
    if variant.endswith("bf16"):
        net = net.bfloat16()
    kind = net.wte.weight.dtype
    caches = [[torch.zeros(1, heads, capacity, 64, dtype=kind) for _ in range(2)] for _ in net.h]
    past, token, at = 0, None, torch.zeros(1, dtype=torch.int64)
    for cache in (c for pair in caches for c in pair):
        torch._dynamo.mark_static_address(cache)
    compiled = torch.compile(net.decode, mode="reduce-overhead") if variant.startswith("compiled") else None

    @torch.inference_mode()
    def step():
        nonlocal past, token
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        if past in (0, capacity):
            past, token = 0, torch.zeros(1, 16, dtype=torch.int64, device=device)
            at.fill_(15)
        if compiled and past:
            scores = compiled(token, caches, at.add_(1))
        else:
            scores = net(token, caches, past)[:, -1]
        past += token.shape[1]
        token = scores.argmax(-1, keepdim=True)
    return step


def ceiling(variant, device):
    copied, side = bench_size(device)[8:]
    if variant == "copy":
        x = torch.randn(copied)
        y = torch.empty_like(x)
        return lambda: y.copy_(x)
    a = torch.randn(side, side, dtype=torch.bfloat16 if variant == "matmul_bf16" else None)
    b = a.clone()
    return torch.inference_mode()(lambda: a @ b)


class Images(torch.utils.data.Dataset):
    """Decoded by Pillow; crop, flip and normalisation in tensors, as torchvision does them."""

    def __init__(self, root):
        classes = sorted(os.listdir(root))
        self.files = [(os.path.join(root, name, file), i) for i, name in enumerate(classes) for file in sorted(os.listdir(os.path.join(root, name)))]
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        import numpy
        from PIL import Image
        path, label = self.files[i]
        with Image.open(path) as file:
            x = torch.from_numpy(numpy.array(file.convert("RGB"))).permute(2, 0, 1).contiguous()
        x = F.pad(x, (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2,)).tolist()
        x = x[:, top:top + 32, left:left + 32]
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1)
        return (x.float().div(255) - self.mean) / self.std, label


def loader(variant, _):
    images = Images(os.environ["TAPIR_BENCH_IMAGES"])
    batches = torch.utils.data.DataLoader(images, batch_size=128, shuffle=True, num_workers=int(variant), drop_last=True)
    at = iter(batches)

    def step():
        nonlocal at
        if next(at, None) is None:
            at = iter(batches)
            next(at)
    return step
