"""Time our recurrent cells against torch.nn: forward and backward over the adding problem's batch.

OMP_NUM_THREADS=1 python benchmarks/cells.py
"""

import statistics
import time

import torch
from torch import nn

from attnkit import gru_cell, lstm_cell, rnn_cell

B, T, HIDDEN, REPEATS = 64, 40, 32, 30


def loop(cell, module, x):
    weights = tuple(module.parameters())
    h = x.new_zeros(B, HIDDEN)
    state, states = (h, h) if cell is lstm_cell else h, []
    for x_t in x.unbind(1):
        result = cell(x_t, state, *weights)
        state = result if cell is rnn_cell else result[0]
        states.append(state[0] if cell is lstm_cell else state)
    return torch.stack(states, dim=1)


def seconds(run):
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run().sum().backward()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main():
    torch.set_num_threads(1)
    x = torch.rand(B, T, 2, generator=torch.Generator().manual_seed(0))
    print(f"torch {torch.__version__}, one thread, batch {B}, {T} steps, hidden {HIDDEN}, median of {REPEATS}\n")
    print("| cell | ours, ms | torch.nn, ms | ratio |\n|---|---|---|---|")
    for name, cell in (("RNN", rnn_cell), ("LSTM", lstm_cell), ("GRU", gru_cell)):
        module = getattr(nn, name)(2, HIDDEN, batch_first=True)
        ours, theirs = seconds(lambda: loop(cell, module, x)), seconds(lambda: module(x)[0])  # noqa: B023
        print(f"| {name} | {1000 * ours:.1f} | {1000 * theirs:.1f} | {ours / theirs:.1f} |")


if __name__ == "__main__":
    main()
