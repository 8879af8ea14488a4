"""usage: run.py FOLDER. Checks every NAME.onnx of the folder with the onnx package, runs it with onnxruntime on NAME.in<i>.npy, and compares
its outputs with NAME.out<i>.npy. Prints a line for each failure; exit status 77 where a package is missing."""
import sys
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError as e:
    print(e)
    sys.exit(77)


def failure_of(file):
    load = lambda kind, i: np.load(file.with_suffix(f".{kind}{i}.npy"))
    onnx.checker.check_model(str(file), full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    outs = session.run(None, {port.name: load("in", i) for i, port in enumerate(session.get_inputs())})
    for i, out in enumerate(outs):
        want = load("out", i)
        if want.shape != out.shape or want.dtype != out.dtype:
            return f"output {i} is {out.dtype} {out.shape}, not {want.dtype} {want.shape}"
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0))) if want.dtype.kind == "f" else 1
        if not np.allclose(out, want, rtol=1e-4 if want.dtype.kind == "f" else 0, atol=1e-5 * scale if want.dtype.kind == "f" else 0, equal_nan=True):
            return f"output {i} differs by {np.abs(out.astype(float) - want.astype(float)).max()}"
    return None


failed = 0
files = sorted(Path(sys.argv[1]).glob("*.onnx"))
for file in files:
    try:
        why = failure_of(file)
    except Exception as e:
        why = str(e)
    if why:
        failed += 1
        print(f"{file.stem}: {why}")
print(f"{len(files)} models, {failed} failed")
sys.exit(1 if failed or not files else 0)
