"""The operations of `./run bench ops`: what PyTorch calls, and on which inputs. ops.cpp holds our calls under the same names.

An input is written as its sizes, 2500x4000: float32 in (0, 1). A number before them, 100:64x3, makes int64 in [0, 100), and 2: bool. A
letter behind them: t for transposed (channels_last where there are four sizes), b for expanded from its first row.
"""
SIZES = {"1e2": 0, "1e4": 1, "1e7": 2}
LAYOUTS = {"contiguous": "", "transposed": "t", "broadcast": "b"}
PASSES = ("forward", "both")

# What the letters of an input mean at 1e2, 1e4 and 1e7 elements: rows and columns, images, heads of attention, batches of matrices.
LETTERS = {"R": (10, 100, 2500), "C": (10, 100, 4000), "N": (1, 4, 64), "P": (4, 16, 64), "H": (5, 12, 49), "W": (5, 13, 50),
           "B": (1, 1, 8), "A": (1, 4, 16), "T": (5, 40, 1220), "D": (20, 64, 64), "L": (4, 16, 160), "M": (5, 25, 250)}
X, IMAGE, HEADS, BATCH = "RxC", "NxPxHxW", "BxAxTxD", "LxMxM"

# name: inputs (the first one takes the layout; the second of those in BINARY is broadcast), the call as Python
POINTWISE = {
    "add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / y", "add_": "x.add_(y)", "copy_": "x.copy_(y)",
    "maximum": "torch.maximum(x, y)", "lt": "x < y", "lerp": "torch.lerp(x, y, 0.3)", "mse_loss": "F.mse_loss(x, y)",
    "bce_with_logits": "F.binary_cross_entropy_with_logits(x, y)",
}
UNARY = {
    "add_scalar": "x + 2", "pow": "x.pow(2.5)", "clamp": "x.clamp(0.2, 0.8)", "abs": "x.abs()", "neg": "-x", "sqrt": "x.sqrt()",
    "rsqrt": "x.rsqrt()", "exp": "x.exp()", "log": "x.log()", "sin": "x.sin()", "erf": "x.erf()", "tanh": "x.tanh()",
    "sigmoid": "x.sigmoid()", "relu": "x.relu()", "gelu": "F.gelu(x)", "silu": "F.silu(x)", "to_bfloat16": "x.to(torch.bfloat16)",
    "sum": "x.sum()", "sum_rows": "x.sum(1)", "sum_columns": "x.sum(0)", "mean_rows": "x.mean(1)", "amax_rows": "x.amax(1)",
    "max_rows": "x.max(1).values", "argmax_rows": "x.argmax(1)", "var_rows": "x.var(1)", "norm": "x.norm()",
    "logsumexp_rows": "x.logsumexp(1)", "cumsum_rows": "x.cumsum(1)", "sort_rows": "x.sort(1).values", "topk_rows": "x.topk(10, 1).values",
    "softmax": "x.softmax(1)", "log_softmax": "x.log_softmax(1)", "dropout": "F.dropout(x, 0.1, True)", "contiguous": "x.t().contiguous()",
    "pad": "F.pad(x, (1, 2, 3, 4))", "tril": "x.tril()", "flip": "x.flip(1)",
}
OTHERS = {
    "where": (f"{X},{X},2:{X}", "torch.where(z, x, y)"),
    "addcmul": (f"{X},{X},{X}", "torch.addcmul(x, y, z, value=0.5)"),
    "layer_norm": (f"{X},C,C", "F.layer_norm(x, (x.size(1),), y, z)"),
    "batch_norm": (f"{IMAGE},P,P", "F.batch_norm(x, None, None, y, z, True)"),
    "cross_entropy": (f"{X},10:R", "F.cross_entropy(x, y)"),
    "linear": (f"{X},RxC,R", "F.linear(x, y, z)"),
    "matmul": (f"{X},CxR", "x @ y"),
    "bmm": (f"{BATCH},{BATCH}", "torch.bmm(x, y)"),
    "einsum": (f"{X},RxC", "torch.einsum('ij,kj->ik', x, y)"),
    "conv2d": (f"{IMAGE},PxPx3x3,P", "F.conv2d(x, y, z, padding=1)"),
    "depthwise": (f"{IMAGE},Px1x3x3,P", "F.conv2d(x, y, z, padding=1, groups=x.size(1))"),
    "max_pool2d": (IMAGE, "F.max_pool2d(x, 2)"),
    "avg_pool2d": (IMAGE, "F.avg_pool2d(x, 2)"),
    "interpolate": (IMAGE, "F.interpolate(x, scale_factor=2.0, mode='bilinear')"),
    "attention": (f"{HEADS},{HEADS},{HEADS}", "F.scaled_dot_product_attention(x, y, z)"),
    "causal_attention": (f"{HEADS},{HEADS},{HEADS}", "F.scaled_dot_product_attention(x, y, z, is_causal=True)"),
    "cat": (f"{X},{X}", "torch.cat((x, y), 1)"),
    "stack": (f"{X},{X}", "torch.stack((x, y), 0)"),
    "gather": (f"{X},10:{X}", "x.gather(1, y)"),
    "scatter_add": (f"{X},{X},10:{X}", "x.scatter_add(1, z, y)"),
    "index_select": (f"{X},10:R", "x.index_select(0, y)"),
    "index_add": (f"{X},{X},10:R", "x.index_add(0, z, y)"),
    "embedding": (f"{X},10:R", "F.embedding(y, x)"),
    "masked_fill": (f"{X},2:{X}", "x.masked_fill(y, 0)"),
}
OPS = {**{name: (f"{X},{X}", call) for name, call in POINTWISE.items()}, **{name: (X, call) for name, call in UNARY.items()}, **OTHERS}

NO_GRADIENT = {"lt", "argmax_rows", "add_", "copy_"}
NO_BROADCAST = {"add_", "copy_"}  # they write x
# Bytes of memory that an element costs at least, where memory is the limit.
BYTES = {**{name: 8 for name in UNARY}, **{name: 12 for name in ("add", "sub", "mul", "div", "add_", "maximum", "lerp")}, "copy_": 8, "relu": 8,
         **{name: 4 for name in ("sum", "sum_rows", "sum_columns", "mean_rows", "amax_rows", "max_rows", "argmax_rows", "var_rows", "norm")}}
for name in ("to_bfloat16", "dropout", "tril", "pad", "contiguous", "cumsum_rows", "logsumexp_rows", "sort_rows", "topk_rows", "flip"):
    del BYTES[name]


def variants():
    """Every measurement: (op, size, layout, pass, the inputs as both servers take them)."""
    for name, (inputs, _) in OPS.items():
        for size, column in SIZES.items():
            sizes = "".join(str(LETTERS[c][column]) if c in LETTERS else c for c in inputs).split(",")
            for layout, letter in LAYOUTS.items():
                if layout == "broadcast" and name in NO_BROADCAST:
                    continue
                changed = 1 if layout == "broadcast" and name in POINTWISE else 0  # which input has the layout
                words = [word + letter * (i == changed) for i, word in enumerate(sizes)]
                for which in PASSES[:1] if name in NO_GRADIENT else PASSES:
                    yield name, size, layout, which, ",".join(words)
