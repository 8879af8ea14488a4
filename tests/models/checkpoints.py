#!/usr/bin/env python3
"""Writes checkpoints of torchvision's models with random weights, an input and its logits, for tests/models/torchvision_test.cpp.

    python tests/models/checkpoints.py FOLDER && TAPIR_TORCHVISION=FOLDER build/release/tests/tapir_tests "torchvision*"

With --facts it prints instead what that test knows of the names and shapes of their states."""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torchvision import models

NAMES = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg16_bn", "vgg19", "mobilenet_v2", "efficientnet_b0", "vit_b_16"]
PTH = ["resnet18", "resnet50"]  # written by torch.save too


def hash_of(state, prefix=""):
    """FNV-1a over "name(sizes)" of every tensor."""
    h = 0xCBF29CE484222325
    for name, t in state.items():
        if name.startswith(prefix):
            for byte in f"{name}({', '.join(str(n) for n in t.shape)})".encode():
                h = (h ^ byte) * 0x100000001B3 % 2**64
    return hex(h)


def write(name, folder):
    torch.manual_seed(len(name))
    model = getattr(models, name)()
    with torch.no_grad():
        for key, t in model.state_dict().items():
            if key.endswith(("running_mean", "bias", "heads.head.weight")):
                t.normal_(0, 0.1)
            elif key.endswith("running_var"):
                t.uniform_(0.5, 1.5)
        x = torch.randn(2, 3, 224, 224)
        model.eval()
        logits = model(x)
    if name in PTH:
        torch.save(model.state_dict(), folder / f"{name}.pth")
    tensors = {f"state.{key}": t.contiguous() for key, t in model.state_dict().items()}
    save_file(tensors | {"input": x, "logits": logits}, folder / f"{name}.safetensors")


def facts():
    small = models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5)
    for name in ["resnet18", "resnet34", "resnet50", "mobilenet_v2", "efficientnet_b0"]:
        print(name, hash_of(getattr(models, name)().state_dict()))
    for name in ["vgg11", "vgg13_bn", "vgg16", "vgg19_bn"]:
        print(name, "features", hash_of(getattr(models, name)().state_dict(), "features."))
    settings = [[1, 16, 1, 1], [4, 20, 2, 2], [6, 40, 3, 1]]
    print("mobilenet_v2 of three lines", hash_of(models.MobileNetV2(num_classes=5, width_mult=0.5, inverted_residual_setting=settings).state_dict()))
    print("small vit", hash_of(small.state_dict()))


if __name__ == "__main__":
    if sys.argv[1] == "--facts":
        facts()
    else:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            write(name, Path(sys.argv[1]))
