"""Linear attention and the delta rule: by hand, against their other forms in float64, and by their laws.

The axes have different primes: B = 2, H = 3, T = 5, S = 7, d_k = 11, d_v = 13; T = 131 where chunks matter.
"""

import re

import pytest
import torch
from torch.nn.functional import elu, normalize
from torch.utils.flop_counter import FlopCounterMode

from attnkit import linear
from attnkit.linear import delta_rule, elu_plus_one, linear_attention
from attnkit.scaled_dot_product import attention

HALF = [torch.float16, torch.bfloat16]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def qkv(T=5, S=None):
    S = T if S is None else S
    return randn(2, 3, T, 11), randn(2, 3, S, 11, seed=1), randn(2, 3, S, 13, seed=2)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def exactly(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def quadratic(q, k, v, phi, causal):
    weights = phi(q) @ phi(k).mT
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True) @ v


def recurrent(q, k, v, phi):
    state, total, out = 0.0, 0.0, []
    for t in range(q.shape[-2]):
        state = state + torch.einsum("...d,...e->...de", phi(k[..., t, :]), v[..., t, :])
        total = total + phi(k[..., t, :])
        features = phi(q[..., t, :])
        out.append(torch.einsum("...d,...de->...e", features, state) / (features * total).sum(-1, keepdim=True))
    return torch.stack(out, dim=-2)


# elu_plus_one


def test_the_feature_map_is_elu_plus_one_and_stays_positive_where_the_sum_would_round_to_zero():
    x = randn(2, 3, 5, 7)
    exactly(elu_plus_one(x), elu(x) + 1, atol=1e-15)
    exactly(elu_plus_one(column(-1.0, 0.0, 2.0)), torch.tensor([[1 / torch.e], [1.0], [3.0]], dtype=torch.float64))
    far = column(-700.0)
    assert (elu(far) + 1).item() == 0.0
    exactly(elu_plus_one(far).log(), far)


def test_the_feature_map_has_finite_gradients_everywhere():
    x = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], dtype=torch.float64, requires_grad=True)
    elu_plus_one(x).sum().backward()
    exactly(x.grad, torch.tensor([0.0, 1 / torch.e, 1.0, 1.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_the_feature_map_keeps_the_dtype(dtype):
    assert elu_plus_one(torch.zeros(3, dtype=dtype)).dtype == dtype


# Linear attention: by hand


def test_constant_features_give_running_means():
    zeros = torch.zeros(3, 1, dtype=torch.float64)
    out = linear_attention(zeros, zeros, column(1.0, 3.0, 5.0), feature_map=torch.ones_like)
    assert out.flatten().tolist() == [1.0, 2.0, 3.0]  # 1, 4, 9 without the normaliser
    mean = linear_attention(zeros, zeros, column(1.0, 3.0, 5.0), feature_map=torch.ones_like, causal=False)
    assert mean.flatten().tolist() == [3.0, 3.0, 3.0]


def test_weights_are_products_of_features():
    # φ(0) = 1, φ(1) = 2: query 0 weighs keys 0 and 1 as 1 : 2, and so does query 1, twice as strongly.
    out = linear_attention(column(0.0, 1.0), column(0.0, 1.0), column(3.0, 6.0))
    exactly(out, column(3.0, 5.0))
    both = linear_attention(column(0.0, 1.0), column(0.0, 1.0), column(3.0, 6.0), causal=False)
    exactly(both, column(5.0, 5.0))


# Against its other forms


@pytest.mark.parametrize("phi", [elu_plus_one, torch.exp, lambda x: torch.cat([x.exp(), (-x).exp()], dim=-1)])
@pytest.mark.parametrize("T", [5, 64, 131])
def test_causal_equals_the_masked_matrix_and_the_recurrence(T, phi):
    q, k, v = qkv(T)
    out = linear_attention(q, k, v, feature_map=phi)
    exactly(out, quadratic(q, k, v, phi, causal=True))
    exactly(out, recurrent(q, k, v, phi))


@pytest.mark.parametrize(("T", "S"), [(5, 7), (7, 5), (131, 5)])
def test_without_a_mask_it_equals_the_matrix(T, S):
    q, k, v = qkv(T, S)
    exactly(linear_attention(q, k, v, causal=False), quadratic(q, k, v, elu_plus_one, causal=False))


@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
def test_the_chunk_changes_nothing(chunk, monkeypatch):
    expected = linear_attention(*qkv(131))
    monkeypatch.setattr(linear, "CHUNK", chunk)
    exactly(linear_attention(*qkv(131)), expected)


def test_gradients_equal_those_of_the_matrix():
    ours, theirs = [[x.requires_grad_() for x in qkv(131)] for _ in range(2)]
    cotangent = randn(2, 3, 131, 13, seed=5)
    out, expected = linear_attention(*ours), quadratic(*theirs, elu_plus_one, causal=True)
    for a, b in zip(torch.autograd.grad(out, ours, cotangent), torch.autograd.grad(expected, theirs, cotangent)):
        exactly(a, b)


# Laws


def test_equal_values_pass_unchanged_and_outputs_stay_between_the_values():
    q, k, v = qkv(131)
    exactly(linear_attention(q, k, torch.ones_like(v)), torch.ones_like(v))
    out = linear_attention(q, k, v)
    assert (out <= v.cummax(-2).values + 1e-14).all()
    assert (out >= v.cummin(-2).values - 1e-14).all()


def test_the_future_does_not_count():
    q, k, v = qkv(131)
    out = linear_attention(q, k, v)
    k[..., 70:, :], v[..., 70:, :] = 9.0, 9.0
    changed = linear_attention(q, k, v)
    assert torch.equal(changed[..., :70, :], out[..., :70, :])
    assert (changed[..., 70:, :] != out[..., 70:, :]).all()


def test_its_work_grows_with_the_tokens_and_not_with_their_square():
    def work(T):
        with FlopCounterMode(display=False) as counter:
            linear_attention(*(randn(T, d) for d in (11, 11, 13)))
        return counter.get_total_flops()

    assert work(640) == 10 * work(64)


def test_the_kernel_of_random_exponentials_is_close_to_softmax():
    # E exp(w·q − |q|²/2) exp(w·k − |k|²/2) = exp(q·k) for normal w: softmax attention is one of the family.
    q, k, v = randn(7, 2) / 2, randn(7, 2, seed=1) / 2, randn(7, 13, seed=2)
    w = randn(2, 200_000, seed=3)

    def phi(x):
        return torch.exp(x @ w - x.square().sum(-1, keepdim=True) / 2)

    expected, _ = attention(q, k, v, scale=1.0)
    exactly(linear_attention(q, k, v, feature_map=phi, causal=False), expected, atol=0.02)


def test_a_query_whose_features_meet_no_key_gets_zero_with_finite_gradients():
    q, k, v = (x.requires_grad_() for x in (column(-1.0, 1.0), column(1.0, 1.0), column(2.0, 4.0)))
    out = linear_attention(q, k, v, feature_map=torch.relu)
    assert out.flatten().tolist() == [0.0, 3.0]
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_leading_axes_broadcast():
    q, k, v = randn(3, 5, 11), randn(1, 5, 11, seed=1), randn(2, 1, 5, 13, seed=2)
    for causal in (True, False):
        out = linear_attention(q, k, v, causal=causal)
        exactly(out, quadratic(q, k, v, elu_plus_one, causal))


def test_no_tokens():
    assert linear_attention(*qkv(0)).shape == (2, 3, 0, 13)
    assert linear_attention(*qkv(0), causal=False).shape == (2, 3, 0, 13)
    q, k, v = qkv(5, 0)
    assert torch.equal(linear_attention(q, k, v, causal=False), torch.zeros(2, 3, 5, 13, dtype=torch.float64))


def test_two_lengths_in_a_row():
    for T in (7, 131, 7):
        exactly(linear_attention(*qkv(T)), quadratic(*qkv(T), elu_plus_one, causal=True))


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_sums_in_float32(dtype):
    zeros, ones = torch.zeros(3000, 1, dtype=dtype), torch.ones(3000, 1, dtype=dtype)
    out = linear_attention(zeros, zeros, ones)  # a half-precision sum of ones stops growing long before 3000
    assert out.dtype == dtype
    assert (out == 1).all()
    steps = delta_rule(ones, ones / 64, ones, torch.ones(3000, dtype=dtype))
    assert steps.dtype == dtype


# The delta rule


def test_a_key_written_twice_recalls_the_second_value():
    k = torch.tensor([[0.6, 0.8], [0.6, 0.8]], dtype=torch.float64)
    exactly(delta_rule(k, k, column(3.0, 5.0), torch.ones(2)), column(3.0, 5.0))
    exactly(delta_rule(k, k, column(3.0, 5.0), torch.full((2,), 0.5)), column(1.5, 3.25))


def test_beta_zero_writes_nothing_and_orthogonal_keys_do_not_disturb_each_other():
    k = torch.eye(2, dtype=torch.float64)[[0, 1, 1, 0]]
    out = delta_rule(k, k, column(7.0, 3.0, 5.0, 100.0), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    exactly(out, column(7.0, 3.0, 5.0, 7.0))


def test_the_delta_rule_is_gradient_descent_on_the_squared_error():
    q, k, v = (x[0, 0] for x in qkv(7))
    k, beta = normalize(k, dim=-1), randn(7, seed=4).sigmoid()
    memory, expected = torch.zeros(11, 13, dtype=torch.float64), []
    for t in range(7):
        memory.requires_grad_()
        (gradient,) = torch.autograd.grad((k[t] @ memory - v[t]).square().sum() / 2, memory)
        memory = (memory - beta[t] * gradient).detach()
        expected.append(q[t] @ memory)
    exactly(delta_rule(q, k, v, beta), torch.stack(expected))


def test_the_delta_rule_equals_its_matrix_recurrence():
    q, k, v = qkv(31)
    k, beta = normalize(k, dim=-1), randn(2, 3, 31, seed=4).sigmoid()
    memory, expected = torch.zeros(2, 3, 11, 13, dtype=torch.float64), []
    for t in range(31):
        outer = torch.einsum("bhd,bhc->bhdc", k[:, :, t], k[:, :, t])
        keep = torch.eye(11, dtype=torch.float64) - beta[:, :, t, None, None] * outer
        memory = keep @ memory + beta[:, :, t, None, None] * torch.einsum("bhd,bhe->bhde", k[:, :, t], v[:, :, t])
        expected.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], memory))
    exactly(delta_rule(q, k, v, beta), torch.stack(expected, dim=2))


def test_with_orthogonal_keys_written_once_the_delta_rule_is_a_plain_sum():
    k = torch.linalg.qr(randn(11, 11))[0][:5]
    q, v = randn(5, 11, seed=1), randn(5, 13, seed=2)
    exactly(delta_rule(q, k, v, torch.ones(5)), (q @ k.T).tril() @ v)


def test_gradients_of_the_delta_rule_equal_finite_differences():
    q, k, v = (x[0, 0, :3, :2].requires_grad_() for x in qkv())
    beta = torch.tensor([0.3, 0.7, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(delta_rule, (q, k, v, beta))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 5), (2, 1, 1), (7, 2, 3, 5)])
def test_beta_broadcasts(shape):
    q, k, v = qkv()
    beta = randn(*shape, seed=4).sigmoid()
    full = beta.expand(torch.broadcast_shapes(beta.shape, (2, 3, 5)))
    out = delta_rule(q, k, v, beta)
    assert out.shape == (*full.shape, 13)
    exactly(out, delta_rule(q, k, v, full))


def test_the_delta_rule_without_tokens():
    assert delta_rule(*qkv(0), torch.ones(0)).shape == (2, 3, 0, 13)


def test_a_beta_of_another_dtype_follows_the_keys():
    q, k, v = (x.float() for x in qkv())
    assert delta_rule(q, k, v, torch.full((5,), 0.5, dtype=torch.float64)).dtype == torch.float32


# Errors


@pytest.mark.parametrize("form", [linear_attention, lambda q, k, v: delta_rule(q, k, v, torch.ones(5))])
@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q, k, v[..., :3, :]),
        lambda q, k, v: (q, k[..., :3], v),
        lambda q, k, v: (q[0, 0, 0], k, v),
        lambda q, k, v: (q.long(), k, v),
        lambda q, k, v: (q.float(), k, v),
        lambda q, k, v: (q, k, v.half()),
        lambda q, k, v: (q, k[:, :2], v[:, :2]),
    ],
)
def test_what_does_not_fit_is_refused_with_the_words_of_attention(change, form):
    arguments = change(*qkv())
    with pytest.raises((TypeError, ValueError)) as expected:
        attention(*arguments)
    with pytest.raises(expected.type, match=f"^{re.escape(str(expected.value))}$"):
        form(*arguments)


def test_causal_with_different_lengths_is_refused_and_the_error_names_both():
    message = "^causal linear attention needs as many queries as keys: q has 5 tokens, k has 7$"
    with pytest.raises(ValueError, match=message):
        linear_attention(*qkv(5, 7))
    with pytest.raises(ValueError, match=r"^the delta rule needs as many queries as keys: q has 5 tokens, k has 7$"):
        delta_rule(*qkv(5, 7), torch.ones(5))


def test_a_feature_map_that_loses_tokens_is_refused():
    message = r"^feature_map may change the last axis only: q has shape \(2, 3, 5, 11\), .* have \(2, 3, 4, 11\)$"
    with pytest.raises(ValueError, match=message):
        linear_attention(*qkv(), feature_map=lambda x: x[..., 1:, :])


def test_a_beta_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^beta must broadcast to \(\.\.\., T\) = \(\.\.\., 5\), got shape \(7,\)$"):
        delta_rule(*qkv(), torch.ones(7))
    with pytest.raises(ValueError, match=r"^leading axes of beta and q, k and v do not broadcast: beta has \(7,\), "):
        delta_rule(*qkv(), torch.ones(7, 5))
    with pytest.raises(TypeError, match=r"^beta must be floating point, got torch.int64$"):
        delta_rule(*qkv(), torch.ones(5, dtype=torch.long))


@pytest.mark.parametrize("batched", ["q", "k", "v", "beta"])
def test_an_empty_sequence_keeps_the_leading_axes_of_every_argument(batched):
    given = {name: torch.zeros(0, width) for name, width in (("q", 2), ("k", 2), ("v", 3))} | {"beta": torch.zeros(0)}
    given[batched] = given[batched].expand(5, 7, 11, *given[batched].shape)
    assert delta_rule(**given).shape == (5, 7, 11, 0, 3)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_a_beta_must_fit_the_leading_axes_of_each_argument(name):
    given = {"q": torch.zeros(4, 2), "k": torch.zeros(4, 2), "v": torch.zeros(4, 3)}
    given[name] = given[name].expand(2, 3, 5, 4, -1)
    with pytest.raises(ValueError, match="leading axes of beta and q, k and v"):
        delta_rule(**given, beta=torch.zeros(2, 3, 6, 4))


def test_where_the_weights_cancel_the_sum_is_left_undivided():
    q, k = torch.tensor([[1.0]]), torch.tensor([[1.0], [-1.0]])
    out = linear_attention(q, k, torch.tensor([[5.0], [2.0]]), feature_map=lambda x: x, causal=False)
    assert out.tolist() == [[3.0]]
