#!/usr/bin/env python3
"""Checkpoints between Tapir and Hugging Face's transformers, for tests/models/huggingface_test.cpp.

    python huggingface.py write FOLDER    the small files that stand beside this script, as transformers publishes models
    python huggingface.py check FOLDER    loads gpt2.safetensors, gpt2.pt, bert.safetensors and bert.pt, which Tapir wrote, by name into
                                          transformers' models, strictly, and compares their results with those in results.safetensors"""
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

TOKENS = torch.tensor([[1, 4, 2, 9, 0]])


def gpt2():
    torch.manual_seed(2)
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, attn_implementation="eager")
    return randomise(transformers.GPT2LMHeadModel(config))


def bert():
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, max_position_embeddings=8)
    return randomise(transformers.BertForPreTraining(config))


def randomise(model):
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5)
    return model.eval()


def results(gpt2, bert):
    with torch.no_grad():
        return {"gpt2": gpt2(TOKENS).logits, "bert": bert(TOKENS).pooler_output}


def write(folder):
    model, pretraining = gpt2(), bert()
    for name, m in (("gpt2", model), ("bert", pretraining)):
        m.save_pretrained(folder / name)
        tensors = load_file(folder / name / "model.safetensors")
        if name == "gpt2":  # as "gpt2" itself is published: the masks of old versions are among the weights
            assert "lm_head.weight" not in tensors
            for layer in range(2):
                tensors[f"transformer.h.{layer}.attn.bias"] = torch.tril(torch.ones(8, 8, dtype=torch.uint8)).view(1, 1, 8, 8)
                tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, folder / f"{name}.safetensors", {"format": "pt"})
    for name, x in results(model, pretraining.bert).items():
        print(name, [float(f"{v:.7g}") for v in x[0, -1].tolist()] if x.dim() == 3 else [float(f"{v:.7g}") for v in x[0].tolist()])


def check(folder):
    want = load_file(folder / "results.safetensors")
    for load, ending in ((load_file, "safetensors"), (lambda path: torch.load(path, weights_only=True), "pt")):
        model, encoder = gpt2(), bert().bert
        model.load_state_dict(load(folder / f"gpt2.{ending}"), strict=True)
        encoder.load_state_dict(load(folder / f"bert.{ending}"), strict=True)
        for name, x in results(model, encoder).items():
            torch.testing.assert_close(x, want[name], atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
