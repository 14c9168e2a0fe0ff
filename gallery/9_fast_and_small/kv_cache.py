r"""
# A causal decoder computes each key and value once, and keeps them

In a causal model no later token changes an earlier one's keys and values. This page shows that a decoder that keeps
them gets the same outputs however the text is cut, and counts what it saves in multiplications and costs in bytes.

*Sources:* [Shazeer (2019)](../../references.md#shazeer2019), section 2.4, decoding step by step and its memory traffic;
[Touvron et al. (2023a)](../../references.md#touvron2023), table 2, and
[Touvron et al. (2023b)](../../references.md#touvron2023b), section 2.2, the shape of Llama 2 7B;
[Grattafiori et al. (2024)](../../references.md#grattafiori2024), table 3, that of Llama 3 8B.
"""

# mkdocs_gallery_order = 2
# mkdocs_gallery_builds_on = ["causal_head", "block"]

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from attnkit import KVCache, attention, causal_mask, claims, merge_heads, rotate, split_heads

plt.style.use("attnkit.paper")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# %%
# ## What may be kept
#
# In a causal layer the output at token $t$ is
#
# $$y_t = \operatorname{softmax}\left(\frac{q_t K_{\le t}^\top}{\sqrt{d_k}}\right) V_{\le t},$$
#
# a function of tokens $1, \dots, t$ only. By induction over the layers the same holds for every hidden state, and so
# for the key and value made from it: whatever follows, $k_j$ and $v_j$ stay as they are in every layer. When token
# $t + 1$ arrives, only $q_{t+1}$, $k_{t+1}$ and $v_{t+1}$ are new. Past queries are not needed again and not kept.
#
# With $n$ tokens held and positions counted from 0, the first new token has position $n$. That number is needed twice:
# query $i$ of the new chunk may see the keys $j \le i + n$, and position encodings go on counting at $n$. Rotary keys
# are turned before they are kept. Here are two layers with residuals.

d_model, n_heads, T = 32, 4, 12
layers = torch.randn(2, 3, d_model, d_model) / d_model**0.5  # per layer W_Q, W_K, W_V
x = torch.randn(T, d_model)


def decode(x, caches, layers=layers):
    """Run new tokens through the layers; the caches hold those that came before."""
    for projections, cache in zip(layers, caches):
        n = len(cache)
        q, k, v = split_heads(x @ projections, n_heads)
        positions = n + torch.arange(len(x))
        k, v = cache.append(rotate(k, positions), v)
        out, _ = attention(rotate(q, positions), k, v, causal_mask(len(x), len(cache), offset=n))
        x = x + merge_heads(out)
    return x


def forward(x, causal=True):
    """All tokens at once without a cache, by torch's attention; also the last layer's keys."""
    for projections in layers:
        q, k, v = split_heads(x @ projections, n_heads)
        q, k = rotate(q), rotate(k)
        x = x + merge_heads(scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0])
    return x, k


expected, keys = forward(x)
for chunks in ([1] * 12, [5, 7], [4, 1, 1, 6]):
    caches = [KVCache(), KVCache()]
    out = torch.cat([decode(chunk, caches) for chunk in x.split(chunks)])
    name = "token by token" if max(chunks) == 1 else "in chunks of " + " + ".join(map(str, chunks))
    claims.close(f"decoding {name} equals the full forward pass", out, expected, atol=1e-13)

cache, counted = KVCache(), []
for value in (1.0, 3.0, 5.0):
    k, v = cache.append(torch.zeros(1, 2), torch.tensor([[value]]))
    counted.append(attention(torch.zeros(1, 2), k, v)[0].item())
claims.close(
    "equal keys and values 1, 3, 5, one by one, decode to 1, 2, 3", counted, torch.tensor([1.0, 2, 3]), atol=1e-14
)
claims.holds("a cache of three tokens has length 3", len(cache) == 3)

changed = x.clone()
changed[8] += 1
_, keys_changed = forward(changed)
claims.close(
    "changing token 8 leaves keys 0 to 7 of the second layer as they are", keys_changed[:, :8], keys[:, :8], atol=0
)
moved = (keys_changed - keys).abs().amax(dim=(0, 2))[8:]
claims.above("changing token 8 changes every later key of the second layer", moved, 1e-3)
both_ways = (forward(changed, causal=False)[1] - forward(x, causal=False)[1]).abs().amax(dim=(0, 2))
claims.above("without the causal mask, changing token 8 changes all keys of the second layer", both_ways, 1e-3)

# %%
# ## What is saved
#
# To write token $t$ without a cache, all $t$ tokens go through the model again: per layer $3 t d^2$ multiplications for
# the projections and $2 t^2 d$ for scores and mixtures, with $d = d_{\mathrm{model}}$. With the cache it is one token's
# share, $3 d^2 + 2 t d$, exactly $t$ times less. Over $T$ tokens the cache turns a cubic count into a
# quadratic one. (A kernel that skips the future halves the $t^2$ term and changes none of this.) torch counts:


def multiplications(run):
    """Multiplications of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 2  # a flop is * or +


text, caches = torch.randn(64, d_model), [KVCache(), KVCache()]
steps = range(1, len(text) + 1)
kept = torch.tensor([multiplications(lambda t=t: decode(text[t - 1 : t], caches)) for t in steps])
again = torch.tensor([multiplications(lambda t=t: decode(text[:t], [KVCache(), KVCache()])) for t in steps])
t = torch.tensor(steps)
for n in (1, 16, 64):
    print(f"token {n:2}: {kept[n - 1]:9,.0f} multiplications with the cache, {again[n - 1]:12,.0f} without")
print(f"all 64:   {kept.sum():9,.0f} multiplications with the cache, {again.sum():12,.0f} without")

claims.close("with the cache token t costs 3d² + 2td per layer", kept / 2, 3 * d_model**2 + 2 * t * d_model, atol=0)
claims.close("without the cache token t costs exactly t times as much", again / kept, t, atol=1e-12)

# %%

fig, ax = plt.subplots()
ax.semilogy(t.numpy(), again.numpy(), label="everything again")
ax.semilogy(t.numpy(), kept.numpy(), label="with the cache")
ax.set(title="The cache saves a factor of t at token t", xlabel="token t", ylabel="multiplications")
ax.set_xticks([1, 16, 32, 48, 64])
ax.set_yticks([1e4, 1e5, 1e6], ["10 k", "100 k", "1 M"])
ax.minorticks_off()
ax.legend(loc="center right")
fig.set_label(
    f"Multiplications per token on a logarithmic axis, for {len(text)} tokens. Both curves start together; with the "
    f"cache it grows slowly, without it the last token costs {again[-1] / kept[-1]:.0f} times as much."
)

# %%
# ## What it costs in bytes
#
# A cache holds, per token, a key and a value for each layer and each key head:
#
# $$\text{bytes per token} = 2 \cdot \text{layers} \cdot \text{key heads} \cdot d_k \cdot \text{bytes per number}.$$
#
# Two published shapes, with 2 bytes per number: Llama 2 7B has 32 layers of 32 heads of width 128; Llama 3 8B has 32
# layers and shares 8 key heads of width 128 among its 32 query heads. We fill caches of these shapes with one token and
# count. The bytes grow with the context and with the number of sequences served at once, and at some number of
# tokens, all sequences together, the cache outweighs the model.

models = {"Llama 2 7B": (32, 32, 128, 6.7e9), "Llama 3 8B": (32, 8, 128, 8.0e9)}  # layers, key heads, d_k, parameters
bytes_per_token = {}
for name, (n_layers, n_kv_heads, d_k, n_parameters) in models.items():
    token = torch.zeros(1, n_kv_heads, 1, d_k, dtype=torch.float16)
    filled = [tensor for _ in range(n_layers) for tensor in KVCache().append(token, token)]
    bytes_per_token[name] = sum(tensor.nbytes for tensor in filled)
    print(f"{name}: {bytes_per_token[name] / 1024:.0f} KiB per token, ", end="")
    print(f"heavier than its own weights from {2 * n_parameters / bytes_per_token[name]:,.0f} tokens on")

claims.close("Llama 2 7B keeps 512 KiB per token", bytes_per_token["Llama 2 7B"], 512 * 1024, atol=0)
claims.close("Llama 3 8B keeps 128 KiB per token", bytes_per_token["Llama 3 8B"], 128 * 1024, atol=0)

# %%

fig, ax = plt.subplots()
context = 2 ** torch.arange(10, 18)
for name, per_token in bytes_per_token.items():
    ax.loglog(context.numpy(), (context * per_token / 2**30).numpy(), marker="o", label=name)
ax.set(
    title="A quarter of the key heads, a quarter of the cache",
    xlabel="tokens held, all sequences together",
    ylabel="GiB, at 2 bytes per number",
)
ax.set_xticks([1024, 4096, 16384, 65536], ["1024", "4096", "16384", "65536"])
ax.set_yticks([1, 4, 16, 64], ["1", "4", "16", "64"])
ax.minorticks_off()
ax.legend()
fig.set_label(
    f"Two parallel lines on logarithmic axes, size of the cache against tokens held. At {context[-1]:,} tokens Llama 2 "
    f"7B needs {context[-1] * bytes_per_token['Llama 2 7B'] / 2**30:.0f} GiB and Llama 3 8B a quarter of it."
)

# %%
# ## When it does not pay
#
# - **Training and scoring** a given text: all tokens are there at once, and one forward pass computes each key once
#   anyway.
# - **Edited text**: a replaced token invalidates all later keys in every layer but the first, an inserted one in all
#   layers, since it moves positions. Only a common prefix can be shared.
# - **Bidirectional models**: each token changes all others, as the last claim of the first section shows.
# - **A fast processor with a slow memory** saves less time than multiplications. A step of decoding reads the whole
#   cache and multiplies each number once, so that units that could do many multiplications in the time of one read
#   stay idle. Hence the wish for a smaller cache: [shared heads](grouped_query.md) use each number several times.
#
# The [benchmark of attention](../../benchmarks.md) times decoding both ways.

S, q = 1000, torch.randn(n_heads, 1, 8)
k, v = KVCache().append(torch.randn(n_heads, S, 8), torch.randn(n_heads, S, 8))
per_number = multiplications(lambda: attention(q, k, v)) / (k.numel() + v.numel())
print(f"multiplications per number read from the cache: {per_number:.0f}")
claims.close("decoding with as many key heads as query heads uses each cached number once", per_number, 1.0, atol=0)

# %%
# ## Try it
#
# - Write `causal_mask(len(x), len(cache))` in `decode`: every claim on chunks fails, token by token most visibly, for
#   then a query sees the first key only.
# - Write `positions = torch.arange(len(x))`: the chunks fail too, though the masks are right.
# - Print `(out == expected).all()`: the chunked outputs differ in their last bits, because sums of another shape are
#   added up in another order.
