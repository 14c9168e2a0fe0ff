"""Put the same question to several libraries and to attnkit, and print what each answers as a table.

    make peers-tables

Runs in the environment of the peers. The inputs are so small that an answer can be checked by hand, and nothing
is random: where the table changes, a library has changed.
"""

import warnings

import keras
import onnxruntime
import torch
import transformers

from benchmarks.disagreements import attention, layers
from benchmarks.disagreements.answers import row


def main() -> None:
    libraries = (torch, onnxruntime, keras, transformers)
    print(", ".join(f"{library.__name__} {library.__version__.split('+')[0]}" for library in libraries) + ".\n")
    print("| question | input | the others | attnkit |\n| --- | --- | --- | --- |")
    for question, given, answers in (*attention.QUESTIONS, *layers.QUESTIONS):
        print(row(question, given, answers()))


if __name__ == "__main__":
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        main()
