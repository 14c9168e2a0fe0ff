"""The checks of the labs: each takes the function a reader wrote, and passes with a claim or names the slip.

Pages: ``docs/labs``. Use: ``from attnkit import labs``, then ``labs.check_softmax(softmax)``.
"""

from attnkit.labs._check import CheckError, NotWrittenError
from attnkit.labs.causal import check_causal_mask, check_gradient, check_masked_weights, check_order, check_perturbation
from attnkit.labs.heads import check_attention, check_multi_head, check_scaled, check_scores, check_split
from attnkit.labs.mixtures import check_excess, check_mixture, check_softmax, check_stable_softmax, check_temperature

__all__ = [
    "CheckError",
    "NotWrittenError",
    "check_attention",
    "check_causal_mask",
    "check_excess",
    "check_gradient",
    "check_masked_weights",
    "check_mixture",
    "check_multi_head",
    "check_order",
    "check_perturbation",
    "check_scaled",
    "check_scores",
    "check_softmax",
    "check_split",
    "check_stable_softmax",
    "check_temperature",
]
