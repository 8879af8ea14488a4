#!/usr/bin/env python3
"""tools/gpu_model on counts that are known: what each rule makes of them. usage: model_test.py ROOT"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = Path(sys.argv[1]) / "tools/gpu_model"
WAIT = {"kind": "wait", "name": "device"}
done = {True: 0, False: 0}


def kernel(blocks=1000, read=0, written=0, sectors=8, shared=0, **more):
    return {"kind": "kernel", "name": "tapir::v0::cuda_kernels::k<float>", "blocks": blocks, "threads": 256, "sampled": 8, "read": read, "written": written,
            "sectors": sectors, "memory_read": read, "memory_written": written, "shared": shared, "stream": 0, **more}


def product(operations, rate="matmul bfloat16"):
    return {"kind": "library", "name": "blas::product", "read": 1, "written": 1, "operations": operations, "rate": rate, "text": "t", "stream": 0}


def predict(events, calls=0, options=(), before=kernel(read=9e12), measured=None):
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder) / "gpt2_decode_eager_1_128"
        stem.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, [before, WAIT, *events, WAIT])))
        stem.with_suffix(".json").write_text(json.dumps({"calls": calls, "peak": 1 << 30, "unit": "tokens", "units": 1}))
        command = [TOOL, "gpt2_decode", "--variant", "eager", "--programs", folder, "--counts", folder, *options]
        if measured:
            (Path(folder) / "measured").write_text(json.dumps(measured))
            return subprocess.run([*command, "--measured", Path(folder) / "measured"], stdout=subprocess.PIPE, text=True).stdout
        run = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return json.loads(run.stdout)["predicted"]["gpt2_decode"]["eager"] if run.returncode == 0 else run.stderr


def check(what, got, expected):
    good = got == expected if isinstance(expected, (str, int)) else abs(got - expected) < 1e-9 * abs(expected) + 1e-12
    done[good] += 1
    if not good:
        print(f"{what}: expected {expected}, got {got}")


quick = ("--rate", "launch=0", "--rate", "host_call=0")
for title, event, ms, limit in [
        ("bytes read and written", kernel(read=2e9, written=1e9), 1, "memory"),
        ("one block", kernel(blocks=1, read=1e8), 1, "few blocks"),
        ("turns of shared memory", kernel(blocks=132, sectors=0, shared=1.755e6 * 132), 1, "on chip"),
        ("sectors in the first cache", kernel(blocks=264, sectors=4 * 1.755e6 * 132), 1, "on chip"),
        ("a product", product(7.5e11), 1, "arithmetic"),
        ("a product of float32", product(6e10, "matmul float32"), 1, "arithmetic"),
        ("a convolution of float32", product(4e11, "conv float32"), 1, "arithmetic"),
        ("a copy to the host", {"kind": "down", "name": "cudaMemcpyAsync", "read": 5e7, "written": 5e7}, 1, "PCIe")]:
    r = predict([event], options=quick)
    check(title, r["ms"], ms)
    check(title + ": limit", r["parts"][0]["limit"], limit)
check("a launch", predict([kernel(read=3e9)], options=("--rate", "host_call=0"))["ms"], 1.002)
check("the host is slower", predict([kernel()] * 100, calls=1000)["ms"], 4 + 0.002 + 8 / 4 / 132 / 1.755e6)
graph = [{"kind": "graph", "name": "launch", "read": 0, "written": 0}] + [kernel(read=3e9, graph=True)] * 3
r = predict(graph)
check("a graph", r["ms"], 3 + 0.002 + 3 * 0.001 + 0.004)
check("nodes", r["nodes"], 3)
check("only what is between the last two waits", r["parts"][0]["calls"], 3)
text = predict([kernel(read=3e9)], options=quick, measured={"gpt2_decode/eager": 2, "resnet50/eager": 1})
check("beside a measurement", "eager: measured 2 ms, predicted 1: 0.50 of it." in text, True)
check("its table", "| k | 1 | 1 | 100.0 % | 3 | 0 | memory |" in text, True)
check("an unknown rate", "there is no rate 'speed'" in predict(graph, options=("--rate", "speed=1")), True)
check("not a number", "expected a number for launch" in predict(graph, options=("--rate", "launch=fast")), True)
check("a plugin without hooks", "not the checked one" in predict([kernel(sectors=0)], before=kernel(sectors=0)), True)
print(f"\n{done[True]} passed, {done[False]} failed, 0 skipped")
sys.exit(done[False] > 0)
