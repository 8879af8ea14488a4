#!/usr/bin/env python3
"""Writes muon_golden.h: what PyTorch's Muon makes of the same ten gradients. python3 tests/optim/muon_golden.py"""
from pathlib import Path

import torch

SHAPES = [(3, 4), (4, 3), (5, 5), (8, 16), (16, 8), (1, 7)]
OPTIONS = [
    ("{.lr = 0.02}", dict(lr=0.02)),
    ('{.lr = 0.02, .adjust_lr_fn = "match_rms_adamw"}', dict(lr=0.02, adjust_lr_fn="match_rms_adamw")),
    ("{.lr = 0.5, .weight_decay = 0.01, .momentum = 0.3, .nesterov = false}", dict(lr=0.5, weight_decay=0.01, momentum=0.3, nesterov=False)),
]


class Numbers:
    """The numbers of the test: 22 bits of a linear congruence, in [-1, 1)."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, shape, dtype):
        values = []
        for _ in range(shape[0] * shape[1]):
            self.state = (self.state * 1103515245 + 12345) % 2**31
            values.append((self.state // 2**8) / 2**22 - 1)
        return torch.tensor(values, dtype=torch.float64).reshape(shape).to(dtype)


lines = [f"// Written by muon_golden.py with PyTorch {torch.__version__.split('+')[0]}: parameters after ten steps of Muon.", "#pragma once",
         "#include <tapir/tapir.h>", "", "#include <vector>", "", "struct MuonGolden {", "  tapir::Shape shape;", "  tapir::DType dtype;",
         "  tapir::optim::MuonOptions options;", "  std::vector<double> after;", "};", "inline const std::vector<MuonGolden> muon_golden = {"]
seed = 0
for dtype in (torch.float32, torch.bfloat16):
    for shape in SHAPES if dtype == torch.float32 else [(8, 16), (16, 8)]:
        for text, options in OPTIONS:
            seed += 1
            numbers = Numbers(seed)
            p = torch.nn.Parameter(numbers(shape, dtype))
            optimizer = torch.optim.Muon([p], **options)
            for _ in range(10):
                p.grad = numbers(shape, dtype)
                optimizer.step()
            name = "tapir::kFloat32" if dtype == torch.float32 else "tapir::kBFloat16"
            values = ", ".join(f"{value:.9g}" for value in p.detach().flatten().tolist())
            lines.append(f"    {{{{{shape[0]}, {shape[1]}}}, {name}, {text}, {{{values}}}}},")
lines.append("};")
Path(__file__).with_name("muon_golden.h").write_text("\n".join(lines) + "\n")
