"""Splitting, merging and repeating heads, as einops spells them."""

import pytest
import torch
from einops import rearrange, repeat

from attnkit import merge_heads, repeat_heads, split_heads


@pytest.mark.parametrize(("B", "T", "H", "d"), [(1, 1, 1, 1), (2, 3, 4, 5), (1, 7, 2, 3)])
def test_heads_are_split_and_merged_as_einops_spells_it(B, T, H, d):
    x = torch.randn(B, T, H * d)
    heads = rearrange(x, "B T (H d) -> B H T d", H=H)
    assert split_heads(x, H).equal(heads)
    assert merge_heads(heads).equal(rearrange(heads, "B H T d -> B T (H d)"))


@pytest.mark.parametrize(("H", "times"), [(1, 3), (2, 2), (3, 1)])
def test_heads_are_repeated_next_to_each_other_and_not_in_turn(H, times):
    x = torch.randn(2, H, 3, 4)
    assert repeat_heads(x, H * times).equal(repeat(x, "B H T d -> B (H times) T d", times=times))
