r"""Two recurrent nets joined by attention: one reads a sequence, the other writes one and looks back.

Pages: ``gallery/5_alignment/learn_to_reverse.py``, ``gallery/5_alignment/learn_to_sort.py``.
"""

import torch
from torch import Tensor, nn

from attnkit.additive import AdditiveAttention

__all__ = ["Seq2Seq"]


class Seq2Seq(nn.Module):
    r"""Read symbols with a GRU, write symbols with another one that looks back by additive attention.

    The encoder turns the embeddings $e_j$ of the source into states $h_j$. At step $t$ the decoder reads
    the symbol before, asks with its state $s_t$, and writes from what it gets:

    $$s_t = \operatorname{GRU}(y_{t-1}, s_{t-1}), \qquad c_t = \sum_j \alpha_{tj} v_j, \qquad
    p(y_t) = \operatorname{softmax}(W u_t + b),$$

    where $\alpha_t$ are the weights of the query $s_t$ over the keys $k_j$. The decoder starts from 0:
    beyond what is written already, it sees the source through the weights alone. Two choices decide what
    a weight means:

    - The values. By default keys and values are the encoder's states, $k_j = v_j = h_j$. With
      ``local_values``, $v_j = e_j$ and $k_j = [e_j, h_j]$: value j knows symbol j and no other.
    - The readout. By default $u_t = \tanh(W_c [c_t, s_t])$. With ``context_only``, $u_t = c_t$.

    With both, the logits are $\sum_j \alpha_{tj} (W e_j + b)$: each position votes for its own symbol.

    Args:
        n_symbols: size of the alphabet, shared by source and target.
        d_model: width of embeddings and states (of each direction's, in the encoder).
        bidirectional: whether a second GRU reads the source backwards; both states are concatenated.
        local_values: whether value j is the embedding of symbol j alone.
        context_only: whether the readout sees the context alone.

    Source:
        Luong, Pham and Manning (2015), "Effective approaches to attention-based neural machine
        translation", section 3.1 and equation 5, without input feeding; the score and the bidirectional
        encoder: Bahdanau, Cho and Bengio (2014), section 3.2 and appendix A.1.2. In both papers the
        decoder starts from an encoder state, and in the latter it asks with $s_{t-1}$.

    Example:
        >>> model = Seq2Seq(n_symbols=12, d_model=16)
        >>> source = torch.zeros(2, 5, dtype=torch.int64)
        >>> tokens, weights = model.decode(source, steps=3)
        >>> tokens.shape, weights.shape
        (torch.Size([2, 3]), torch.Size([2, 3, 5]))
    """

    def __init__(
        self,
        n_symbols: int,
        d_model: int,
        *,
        bidirectional: bool = False,
        local_values: bool = False,
        context_only: bool = False,
    ) -> None:
        super().__init__()
        d_state = 2 * d_model if bidirectional else d_model
        d_key, d_v = (d_model + d_state, d_model) if local_values else (d_state, d_state)
        self.n_symbols, self.local_values = n_symbols, local_values
        self.source_embedding = nn.Embedding(n_symbols, d_model)
        self.target_embedding = nn.Embedding(n_symbols + 1, d_model)  # the last one says "begin"
        self.encoder = nn.GRU(d_model, d_model, batch_first=True, bidirectional=bidirectional)
        self.decoder = nn.GRU(d_model, d_model, batch_first=True)
        self.attention = AdditiveAttention(d_model, d_key, d_model)
        self.combine = None if context_only else nn.Linear(d_v + d_model, d_model)
        self.output = nn.Linear(d_v if context_only else d_model, n_symbols)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Read the source.

        Args:
            source: symbols, shape (B, S), int64.

        Returns:
            Keys, shape (B, S, d_key), and values, shape (B, S, d_v).
        """
        embedded = self.source_embedding(source)
        states, _ = self.encoder(embedded)
        return (torch.cat([embedded, states], dim=-1), embedded) if self.local_values else (states, states)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Predict each symbol of the target from the true ones before it (teacher forcing).

        Args:
            source: symbols, shape (B, S), int64.
            target: symbols, shape (B, T), int64; the logits of step t see none from t on.

        Returns:
            Logits, shape (B, T, n_symbols), and the weights over the source, shape (B, T, S).
        """
        before = torch.cat([torch.full_like(target[:, :1], self.n_symbols), target[:, :-1]], dim=1)
        logits, weights, _ = self._write(before, None, *self.encode(source))
        return logits, weights

    @torch.no_grad()
    def decode(self, source: Tensor, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """Write symbols greedily, each from the model's own symbols before it.

        Args:
            source: symbols, shape (B, S), int64.
            steps: number of symbols to write, T, at least 1; S unless given.

        Returns:
            Symbols, shape (B, T), int64, and the weights over the source, shape (B, T, S).

        Raises:
            ValueError: ``steps`` is below 1.
        """
        steps = source.shape[1] if steps is None else steps
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        keys, values = self.encode(source)
        symbol, state = torch.full_like(source[:, :1], self.n_symbols), None
        tokens, rows = [], []
        for _ in range(steps):
            logits, weights, state = self._write(symbol, state, keys, values)
            symbol = logits.argmax(-1)
            tokens.append(symbol)
            rows.append(weights)
        return torch.cat(tokens, dim=1), torch.cat(rows, dim=1)

    def _write(
        self, before: Tensor, state: Tensor | None, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Go on from ``state`` (0 if None), one step for each symbol that came before it."""
        states, state = self.decoder(self.target_embedding(before), state)
        context, weights = self.attention(states, keys, values)
        if self.combine is not None:
            context = torch.tanh(self.combine(torch.cat([context, states], dim=-1)))
        return self.output(context), weights, state
