"""Attention in time and memory: ours against torch's, tiled against naive, linear against softmax, cached against not.

    python -m benchmarks.attention

Each row is measured in a fresh process with one thread, both sides in turn, and printed as a ratio of medians of
processor time. Memory is the peak of the process above what it held before the call. A few minutes.
"""

import json
import math
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from attnkit import KVCache, attention, causal_mask, linear_attention, merge_heads, split_heads, tiled_attention

N_HEADS, D_K, BLOCK = 8, 64, 128


def torch_attention(backend):
    def run(q, k, v):
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v)

    return run


FORMS = {
    "naive": lambda q, k, v: attention(q, k, v)[0],
    "tiled": lambda q, k, v: tiled_attention(q, k, v, block=BLOCK),
    "math": torch_attention(SDPBackend.MATH),
    "flash": torch_attention(SDPBackend.FLASH_ATTENTION),
    "softmax": lambda q, k, v: attention(q, k, v, causal_mask(q.shape[-2]))[0],
    "softmax, tiled": lambda q, k, v: tiled_attention(q, k, v, causal_mask(q.shape[-2]), block=BLOCK),
    "linear": linear_attention,
}


def inputs(T, n_heads=N_HEADS):
    return torch.randn(3, 1, n_heads, T, D_K, generator=torch.Generator().manual_seed(0)).unbind(0)


def medians(*runs, seconds=2.0):
    """Median processor time of each call, all measured in turn for a while."""
    times = [[] for _ in runs]
    for run in runs:
        run()
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(times[0]) < 3:
        for run, taken in zip(runs, times):
            start = time.process_time()
            run()
            taken.append(time.process_time() - start)
    return [statistics.median(taken) for taken in times]


# What a fresh process measures


def time_forms(T, *names):
    q, k, v = inputs(T)
    with torch.no_grad():
        return medians(*(lambda form=FORMS[name]: form(q, k, v) for name in names))


def time_gradients(T, *names):
    leaves = [x.requires_grad_() for x in inputs(T)]
    return medians(*(lambda form=FORMS[name]: torch.autograd.grad(form(*leaves).sum(), leaves) for name in names))


def time_decoding(T):
    """The T-th token through two layers: with a cache of T − 1 tokens, and all T tokens again."""
    d_model = N_HEADS * D_K
    layers = torch.randn(2, 3, d_model, d_model) / d_model**0.5
    x = torch.randn(T, d_model)

    def step(x, caches):
        for weights, (k_all, v_all) in zip(layers, caches):
            q, k, v = split_heads(x @ weights, N_HEADS)
            cache = KVCache()
            cache.append(k_all, v_all)
            n = len(cache)
            k, v = cache.append(k, v)
            x = x + merge_heads(attention(q, k, v, causal_mask(len(x), len(k[0]), offset=n))[0])
        return x

    held = [torch.randn(2, N_HEADS, T - 1, D_K).unbind(0) for _ in layers]
    empty = [torch.zeros(2, N_HEADS, 0, D_K).unbind(0) for _ in layers]
    with torch.no_grad():
        return medians(lambda: step(x[-1:], held), lambda: step(x, empty))


def memory(T, name, n_heads=4):
    """Bytes of the process at the peak of a call, beyond those before it."""
    q, k, v = inputs(T, n_heads)
    with torch.no_grad():
        FORMS[name](*inputs(64, n_heads))  # what torch loads on first use is not counted
        before = resident()
        FORMS[name](q, k, v)
    return resident(peak=True) - before


def resident(peak=False):
    """Resident bytes now, or at the most since the last call that asked for now."""
    try:
        if not peak:
            with open("/proc/self/clear_refs", "w") as reset:
                reset.write("5")  # makes the high-water mark the present size
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    except OSError:  # not Linux: the mark cannot be reset, and small calls may go unseen
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# The tables


def fresh(function, *arguments):
    """The result of a function above, called in a process of its own."""
    command = [sys.executable, __file__, json.dumps([function.__name__, *arguments])]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(*heads):
    print()
    row(*heads)
    row(*("---" for _ in heads))


def main():
    print(f"torch {torch.__version__}, one thread, float32, {N_HEADS} heads of width {D_K}, block {BLOCK}.")

    table("time of", "against", "T", "ratio", "target")
    for T in (128, 512, 2048):
        ours, theirs = fresh(time_forms, T, "naive", "math")
        row("`attention`", "torch, MATH", T, f"{ours / theirs:.2f}", "≤ 1.3")
    for T in (512, 2048):
        tiled, naive, flash = fresh(time_forms, T, "tiled", "naive", "flash")
        row("`tiled_attention`", "`attention`", T, f"{tiled / naive:.2f}", "≤ 2" if T == 2048 else "")
        row("`tiled_attention`", "torch, flash", T, f"{tiled / flash:.2f}", "")
    tiled, naive = fresh(time_gradients, 2048, "tiled", "naive")
    row("`tiled_attention` and gradients", "`attention` and gradients", 2048, f"{tiled / naive:.2f}", "")

    table("extra peak memory, 4 heads", "T = 2048", "T = 4096", "T = 8192", "of naive at 8192", "target")
    naive_at_8192 = None
    for name, label, target in (
        ("naive", "`attention`", ""),
        ("tiled", "`tiled_attention`", "< 10 %"),
        ("flash", "torch, flash", ""),
    ):
        extra = [fresh(memory, T, name) for T in (2048, 4096, 8192)]
        naive_at_8192 = naive_at_8192 or extra[-1]
        row(label, *(f"{x / 2**20:.1f} MiB" for x in extra), f"{extra[-1] / naive_at_8192:.1%}", target)

    lengths = (64, 128, 256, 512, 1024, 2048, 4096)
    table("time of `linear_attention` against causal", *(f"T = {T}" for T in lengths), "cross at T ≈")
    ratios = [fresh(time_forms, T, "linear", "softmax", "softmax, tiled") for T in lengths]
    for n, label in ((1, "`attention`"), (2, "`tiled_attention`")):
        row(
            label, *(f"{taken[0] / taken[n]:.2f}" for taken in ratios), crossing(lengths, [t[0] / t[n] for t in ratios])
        )

    lengths = (16, 64, 256, 1024)
    table("time of a token with a cache against without, two layers", *(f"t = {T}" for T in lengths))
    taken = [fresh(time_decoding, T) for T in lengths]
    row("attention layers, d_model 512", *(f"{cached / again:.3f}" for cached, again in taken))


def crossing(lengths, ratios):
    """Where the ratio passes 1 for good, on a straight line between two lengths on logarithmic axes."""
    for n in reversed(range(len(lengths) - 1)):
        if ratios[n] >= 1 > ratios[n + 1]:
            share = math.log(ratios[n]) / math.log(ratios[n] / ratios[n + 1])
            return f"{lengths[n] * (lengths[n + 1] / lengths[n]) ** share:.0f}"
    return "outside"


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        function, *arguments = json.loads(sys.argv[1])
        print(json.dumps(globals()[function](*arguments)))
    else:
        main()
