"""`rotate` against the rotary embedding of Llama in transformers: both turn queries and keys of one layer.

    make bench

Runs in the environment of the peers, which has transformers. Prints ratios of median processor times, measured in
turn in one process with one thread, and checks first that both give the same.
"""

import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from attnkit import rotate
from benchmarks.attention import medians, row, table

SIZES = ((8, 512, 64), (8, 2048, 64), (32, 512, 128), (32, 2048, 128))


def forms(n_heads, T, d_k):
    """Ours and theirs, from the same queries and keys to turned ones, angles included."""
    q, k = torch.randn(2, 1, n_heads, T, d_k, generator=torch.Generator().manual_seed(0))
    embedding = LlamaRotaryEmbedding(LlamaConfig(hidden_size=n_heads * d_k, num_attention_heads=n_heads))
    positions = torch.arange(T)[None]

    def ours():
        return rotate(q, layout="half"), rotate(k, layout="half")

    def theirs():
        return apply_rotary_pos_emb(q, k, *embedding(q, positions))

    return ours, theirs


def main():
    print(f"torch {torch.__version__}, one thread, float32, queries and keys of one layer, angles included.")
    table("time of", "against", "heads", "T", "d_k", "ratio", "target")
    for size in SIZES:
        ours, theirs = forms(*size)
        for mine, other in zip(ours(), theirs()):
            # Angles of a thousand radians are rounded differently in float32.
            torch.testing.assert_close(mine, other, atol=2e-3, rtol=0)
        mine, other = medians(ours, theirs)
        row("`rotate`", "transformers, Llama", *size, f"{mine / other:.2f}", "≤ 1.2")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        main()
