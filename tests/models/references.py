#!/usr/bin/env python3
"""Writes references/: what Hugging Face's transformers 5.23 computes, for tests/models/rope_test.cpp and bert_test.cpp.

    python tests/models/references.py

Weights are those of filled.h, so that none are stored."""
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "references"
SHORT, LONG = 12, 24  # lengths below and above the original one, 16
TINY = dict(model_type="llama", vocab_size=11, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-6, hidden_act="silu", tie_word_embeddings=False)
# Texts of config.json, in old and new spellings.
TINY_CONFIGS = {
    "default": dict(max_position_embeddings=32, rope_theta=100.0),
    "linear": dict(max_position_embeddings=16, rope_scaling=dict(type="linear", factor=4.0)),
    "dynamic": dict(max_position_embeddings=16, rope_scaling=dict(rope_type="dynamic", factor=2.0)),
    "yarn": dict(max_position_embeddings=64, rope_theta=10, rope_scaling=dict(type="yarn", factor=4, original_max_position_embeddings=16, beta_fast=2, beta_slow=0.5, finetuned=True)),
    "yarn_mscale": dict(max_position_embeddings=64, rope_parameters=dict(rope_type="yarn", rope_theta=10.0, factor=None, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5,
                                                                         mscale=1.5, mscale_all_dim=0.5, truncate=False)),
    "llama3": dict(max_position_embeddings=64, rope_theta=10.0,
                   rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=2.0, original_max_position_embeddings=16, rope_type="llama3")),
    "longrope": dict(max_position_embeddings=64, original_max_position_embeddings=16, rope_scaling=dict(type="longrope", short_factor=[1, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 4.0, 8.0])),
    "longrope_attention": dict(max_position_embeddings=64, rope_parameters=dict(rope_type="longrope", rope_theta=50.0, factor=4.0, attention_factor=1.25, original_max_position_embeddings=16,
                                                                                short_factor=[1, 1, 1, 1], long_factor=[1.5, 2.5, 3.5, 4.5])),
}
# Frequencies alone, of published models.
PUBLISHED = {
    "llama_3.1_8b": dict(hidden_size=4096, num_attention_heads=32, max_position_embeddings=131072, rope_theta=500000.0,
                         rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192, rope_type="llama3")),
    "llama_3.2_1b": dict(hidden_size=2048, num_attention_heads=32, head_dim=64, max_position_embeddings=131072, rope_theta=500000.0,
                         rope_scaling=dict(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192, rope_type="llama3")),
    "yarn_llama_2_7b_64k": dict(hidden_size=4096, num_attention_heads=32, max_position_embeddings=4096, rope_scaling=dict(factor=16.0, original_max_position_embeddings=4096, type="yarn")),
}


def fill(model):
    """As fill_weights in filled.h."""
    with torch.no_grad():
        for n, (name, p) in enumerate(model.double().named_parameters(), 1):
            norm = name.endswith("orm.weight") or ("ln_" in name and name.endswith("weight"))
            i = torch.arange(p.numel(), dtype=torch.float64)
            p.copy_((torch.sin(i * 0.37 + n) * 0.3 + norm).view(p.shape))
    return model.eval()


def tokens(count):
    return (torch.arange(count) * 5 % 11).unsqueeze(0)


def frequencies(config, length):
    """What LlamaRotaryEmbedding rotates a text of this length by, read from its angles at position 1 where they are kept."""
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    rotary(torch.zeros(1, dtype=torch.float64), torch.arange(length).unsqueeze(0))
    return rotary.inv_freq.clone(), torch.tensor(float(rotary.attention_scaling), dtype=torch.float64)


def rope():
    out = {}
    for name, given in TINY_CONFIGS.items():
        text = TINY | given
        (FOLDER / f"{name}.json").write_text(json.dumps(text) + "\n")
        make = lambda: transformers.LlamaConfig(**json.loads(json.dumps(text)), attn_implementation="eager")
        for length in (SHORT, LONG):
            out[f"{name}.inv_freq.{length}"], out[f"{name}.attention_factor"] = frequencies(make(), length)
            with torch.no_grad():
                out[f"{name}.logits.{length}"] = fill(transformers.LlamaForCausalLM(make()))(tokens(length)).logits[0].float()
        with torch.no_grad():  # a prompt, then token by token beyond the original length
            model, all_tokens, steps = fill(transformers.LlamaForCausalLM(make())), tokens(LONG), []
            cache = transformers.DynamicCache(config=model.config)
            for begin, end in [(0, SHORT)] + [(i, i + 1) for i in range(SHORT, LONG)]:
                steps.append(model(all_tokens[:, begin:end], past_key_values=cache, use_cache=True).logits[0, -1].float())
            out[f"{name}.decoded"] = torch.stack(steps)
    for name, given in PUBLISHED.items():
        text = dict(model_type="llama") | given
        (FOLDER / f"{name}.json").write_text(json.dumps(text) + "\n")
        out[f"{name}.inv_freq.{SHORT}"], out[f"{name}.attention_factor"] = frequencies(transformers.LlamaConfig(**text), SHORT)
    save_file(out, FOLDER / "rope.safetensors")


def bert():
    config = dict(vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, max_position_embeddings=16)
    inputs = dict(input_ids=torch.tensor([[1, 4, 2, 9, 0], [3, 3, 8, 0, 0]]), attention_mask=torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
                  token_type_ids=torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]))
    numbers = torch.tensor([[0.5, -1, 2], [1, 0.25, -0.5]], dtype=torch.float64)
    cases = {
        "regression_one": (1, None, numbers[:, 0]),
        "regression_three": (3, "regression", numbers),
        "single": (3, None, torch.tensor([2, 0])),
        "single_in_a_column": (3, "single_label_classification", torch.tensor([[1], [2]])),
        "multi": (3, None, (numbers > 0).double()),
        "multi_of_one": (1, "multi_label_classification", torch.tensor([[1.0], [0.0]], dtype=torch.float64)),
    }
    out = {}
    for name, (num_labels, problem, labels) in cases.items():
        model = fill(transformers.BertForSequenceClassification(transformers.BertConfig(**config, num_labels=num_labels, problem_type=problem, attn_implementation="eager")))
        result = model(**inputs, labels=labels)
        result.loss.backward()
        grads = {n: p.grad for n, p in model.named_parameters()}
        out |= {f"{name}.labels": labels, f"{name}.logits": result.logits.detach(), f"{name}.loss": result.loss.detach(),
                f"{name}.classifier.weight": grads["classifier.weight"], f"{name}.bert.pooler.dense.bias": grads["bert.pooler.dense.bias"]}
        if name == "single":
            out |= {f"state.{n}": p.float() for n, p in model.state_dict().items()}
    save_file({name: t.contiguous() for name, t in out.items()}, FOLDER / "bert_classifier.safetensors")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    rope()
    bert()
