"""The model of docs/scaling.md: the time of a data-parallel step against ranks, bucket size and link speed. Prints the page's tables:

    python3 benchmarks/ddp/model.py
"""
import math


def all_reduce(n, size, alpha, busbw):
    """Seconds for `size` bytes on n ranks: latency, and the bytes that pass each link of a ring; busbw as nccl-tests defines it."""
    return 0.0 if n == 1 else alpha + size * 2 * (n - 1) / n / busbw


def step(n, compute, gradients, alpha, busbw, bucket=25e6, first=1e6):
    """Seconds of a step, and of it what no backward hides. Backward is two thirds of compute; gradients come evenly through it, a bucket's
    reduction begins when it is full and the one before has ended."""
    backward, done, full, left = compute * 2 / 3, 0.0, 0.0, gradients
    size = first
    while left > 0:
        part = min(size, left)
        left -= part
        full += backward * part / gradients
        done = max(done, full) + all_reduce(n, part, alpha, busbw)
        size = bucket
    exposed = max(0.0, done - backward)
    return compute + exposed, exposed


def links(n, per_node=8, inside=370e9, nics=400e9 * 0.85):
    """alpha and busbw of n H100s, 8 to a node: NVLink within; between nodes 8 NICs of 400 Gb/s, of which a ring gets 85 %."""
    nodes = max(1, n // per_node)
    return (20e-6 if nodes == 1 else 33e-6 + 14e-6 * math.log2(nodes)), (inside if nodes == 1 else min(inside, nics))


MODELS = {"ResNet-50, fp16, 256 images": (0.050, 51.1e6), "GPT-2 124M, bf16, 32 x 1,024 tokens": (0.140, 248.8e6)}


def main():
    for name, (compute, gradients) in MODELS.items():
        print(f"\n{name}: {1e3 * compute:.0f} ms, {gradients / 1e6:.0f} MB of gradients\n")
        print("| GPUs | 8 x 400 Gb/s a node: ms (efficiency) | exposed ms | 1 x 100 Gb/s a node: ms (efficiency) | exposed ms |")
        print("|---|---|---|---|---|")
        for n in (8, 16, 32, 64, 128, 256, 512, 1024):
            cells = []
            for nics in (400e9 * 0.85, 12.5e9 * 0.85):
                t, exposed = step(n, compute, gradients, *links(n, nics=nics))
                cells.append(f"{1e3 * t:.2f} ({100 * compute / t:.1f} %) | {1e3 * exposed:.2f}")
            print(f"| {n} | {' | '.join(cells)} |")
    print("\nBucket size, GPT-2 on 64 GPUs with 1 x 100 Gb/s, and 1,024 with 8 x 400 Gb/s\n")
    print("| bucket MB | 64 slow: ms | 1,024 fast: ms |\n|---|---|---|")
    for bucket in (1e6, 5e6, 25e6, 100e6, 250e6):
        compute, gradients = MODELS["GPT-2 124M, bf16, 32 x 1,024 tokens"]
        slow = step(64, compute, gradients, *links(64, nics=12.5e9 * 0.85), bucket=bucket)[0]
        fast = step(1024, compute, gradients, *links(1024), bucket=bucket)[0]
        print(f"| {bucket / 1e6:.0f} | {1e3 * slow:.2f} | {1e3 * fast:.2f} |")


if __name__ == "__main__":
    main()
