"""PyTorch's side of models.cpp: NAME(variant, device) returns a step. The same models, written as a user of PyTorch would."""
import contextlib
import os

import torch
import torch.nn.functional as F
from torch import nn

WARM_STEPS = {"resnet18_cifar": 1, "resnet50": 1, "gpt_mini": 1, "gpt2_124m": 1, "gpt2_decode": 16, "loader": 10}


def training(variant, device, net, optimizer, x, labels):
    kind = device.split(":")[0]
    if variant == "compiled":
        net = torch.compile(net)
    cast = (lambda: torch.autocast(kind, dtype=torch.bfloat16)) if variant == "bf16" else contextlib.nullcontext

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
    def __init__(self, blocks, bottleneck, classes, small_images):
        super().__init__()
        stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)] if small_images else [nn.Conv2d(3, 64, 7, 2, 3, bias=False)]
        stem += [nn.BatchNorm2d(64), nn.ReLU(inplace=True)] + ([] if small_images else [nn.MaxPool2d(3, 2, 1)])
        layers, inputs = [], 64
        for stage, count in enumerate(blocks):
            for i in range(count):
                layers.append(Block(inputs, 64 << stage, 2 if stage and i == 0 else 1, bottleneck))
                inputs = (64 << stage) * (4 if bottleneck else 1)
        self.features, self.fc = nn.Sequential(*stem, *layers), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def vision(variant, device, net, batch, size, classes, decay):
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=decay, fused=True)
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    return training(variant, device, net, optimizer, images, torch.randint(0, classes, (batch,)))


def resnet18_cifar(variant, device):
    return vision(variant, device, ResNet((2, 2, 2, 2), False, 10, True), 64, 32, 10, 5e-4)


def resnet50(variant, device):
    return vision(variant, device, ResNet((3, 4, 6, 3), True, 1000, False), 16, 224, 1000, 1e-4)


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
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, steps, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocabulary, positions, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h, self.ln_f = nn.ModuleList(Layer(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, caches=None, past=0):
        x = self.wte(tokens) + self.wpe(torch.arange(past, past + tokens.shape[1]))
        for i, layer in enumerate(self.h):
            x = layer(x, caches[i] if caches else None, past)
        return F.linear(self.ln_f(x), self.wte.weight)


def gpt(variant, device, net, vocabulary, shape, lr, beta2):
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, betas=(0.9, beta2), weight_decay=0.1, fused=True)
    count = shape[0] * shape[1]
    return training(variant, device, net, optimizer, torch.randint(0, vocabulary, shape), torch.randint(0, vocabulary, (count,)))


def gpt_mini(variant, device):
    return gpt(variant, device, GPT2(65, 256, 384, 6, 6), 65, (16, 256), 1e-3, 0.99)


def gpt2_124m(variant, device):
    return gpt(variant, device, GPT2(50257, 512, 768, 12, 12), 50257, (1, 512), 6e-4, 0.95)


def gpt2_decode(variant, device):
    net = GPT2(50257, 1024, 768, 12, 12).eval()
    if variant == "bf16":
        net = net.bfloat16()
    kind = net.wte.weight.dtype
    caches = [[torch.zeros(1, 12, 16 + 256, 64, dtype=kind) for _ in range(2)] for _ in net.h]
    past, token = 0, None

    @torch.inference_mode()
    def step():
        nonlocal past, token
        if past in (0, 16 + 256):
            past, token = 0, torch.zeros(1, 16, dtype=torch.int64)
        scores = net(token, caches, past)[:, -1]
        past += token.shape[1]
        token = scores.argmax(-1, keepdim=True)
    return step


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
