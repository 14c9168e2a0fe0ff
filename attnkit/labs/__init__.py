"""The checks of the labs: each takes the function a reader wrote, and passes with a claim or names the slip.

Pages: ``docs/labs``. Use: ``from attnkit import labs``, then ``labs.check_softmax(softmax)``.
"""

from attnkit.labs._check import CheckError, NotWrittenError
from attnkit.labs.causal import check_causal_mask, check_gradient, check_masked_weights, check_order, check_perturbation
from attnkit.labs.heads import check_attention, check_multi_head, check_scaled, check_scores, check_split
from attnkit.labs.memory import check_additive, check_gates, check_lstm, check_lstm_run, check_recurrence
from attnkit.labs.mixtures import check_excess, check_mixture, check_softmax, check_stable_softmax, check_temperature
from attnkit.labs.positions import (
    check_frequencies,
    check_rotary,
    check_rotary_scores,
    check_shift,
    check_sinusoidal,
)

__all__ = [
    "CheckError",
    "NotWrittenError",
    "check_additive",
    "check_attention",
    "check_causal_mask",
    "check_excess",
    "check_frequencies",
    "check_gates",
    "check_gradient",
    "check_lstm",
    "check_lstm_run",
    "check_masked_weights",
    "check_mixture",
    "check_multi_head",
    "check_order",
    "check_perturbation",
    "check_recurrence",
    "check_rotary",
    "check_rotary_scores",
    "check_scaled",
    "check_scores",
    "check_shift",
    "check_sinusoidal",
    "check_softmax",
    "check_split",
    "check_stable_softmax",
    "check_temperature",
]
