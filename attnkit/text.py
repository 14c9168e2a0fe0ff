r"""Text for the pages that need some: characters to integers and back.

Page: ``gallery/3_causal_head/text_patterns.py``.
"""

from pathlib import Path

import torch
from torch import Tensor

__all__ = ["CharTokenizer", "load_text"]


class CharTokenizer:
    r"""One integer per distinct character, in sorted order.

    Args:
        text: the characters to know.

    Raises:
        ValueError: ``text`` is empty.

    Example:
        >>> tokenizer = CharTokenizer("banana")
        >>> tokenizer.encode("nab")
        tensor([2, 0, 1])
        >>> tokenizer.decode(tokenizer.encode("nab"))
        'nab'
    """

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("text must hold at least one character, got an empty string")
        self.symbols = sorted(set(text))
        self._index = {symbol: i for i, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        """Number of symbols."""
        return len(self.symbols)

    def encode(self, text: str) -> Tensor:
        """Integers of ``text``, shape (len(text),), int64.

        Raises:
            ValueError: a character was not in the tokenizer's text.
        """
        unknown = sorted(set(text) - self._index.keys())
        if unknown:
            raise ValueError(f"text holds characters this tokenizer does not know: {unknown}")
        return torch.tensor([self._index[c] for c in text], dtype=torch.long)

    def decode(self, tokens: Tensor) -> str:
        """Text of ``tokens``, integers of shape (T,).

        Raises:
            ValueError: a token lies outside 0..len(self) − 1, or ``tokens`` is not one-dimensional.
        """
        if tokens.ndim != 1:
            raise ValueError(f"tokens must have shape (T,), got {tuple(tokens.shape)}")
        tokens = tokens.long()  # a narrow dtype could not be compared with the number of symbols
        if ((tokens < 0) | (tokens >= len(self))).any():
            raise ValueError(f"tokens must lie between 0 and {len(self) - 1}, got {tokens.tolist()}")
        return "".join(self.symbols[i] for i in tokens.tolist())


def load_text(path: str | Path | None = None) -> str:
    r"""Text of a UTF-8 file, or the documentation topics that ship with Python.

    Args:
        path: the file to read; without one, the text of ``pydoc_data.topics`` (what ``help("lambda")``
            prints), which is the same on every machine with the same version of Python.

    Returns:
        The text, with at least one character.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty or not UTF-8.

    Example:
        >>> "lambda" in load_text()
        True
    """
    if path is None:
        from pydoc_data.topics import topics  # half a megabyte: loaded only where it is asked for

        return "\n".join(topics.values())
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"path must name a UTF-8 file: {path}: {error}") from None
    if not text:
        raise ValueError(f"path must name a file with text in it: {path} is empty")
    return text
