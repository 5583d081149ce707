# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What recording by `accel compare` adds to a training step on the CPU.

Steps with and without the recorder take turns in one process; each round gives one ratio.
"""

import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from accel_compare.recorder import Options, Recorder
from accel_testkit.timing import seconds, turns
from benchmarks import results

_TEXT = """\
A training step on one thread of the CPU that is recorded by module, beside the same step that is not. Both take turns
in one process; a round's ratio is of two steps that were measured one after the other, and the median of {rounds}
rounds is reported. The goal is a ratio of at most 2. `accel compare record` says what it costs before it starts.

    python -m benchmarks.compare"""
_WORDS = 512


class Language(nn.Module):
    """A small language model of torch's own layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_WORDS, width), nn.Linear(width, _WORDS)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.layers(self.embedding(ids)))
        return found


def _language(width: int, length: int) -> Callable[[], None]:
    model, ids = Language(width, 4), torch.randint(_WORDS, (8, length))
    return _step(model, lambda: nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()))


def _images(width: int) -> Callable[[], None]:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3)]
    for _ in range(4):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    return _step(model, lambda: nn.functional.cross_entropy(model(images), labels))


def _step(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


_PROGRAMS: dict[str, Callable[[], Callable[[], None]]] = {
    "language model, width 64, 32 tokens": lambda: _language(64, 32),
    "language model, width 256, 128 tokens": lambda: _language(256, 128),
    "language model, width 512, 256 tokens": lambda: _language(512, 256),
    "convolutions, width 64": lambda: _images(64),
}


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each program."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads of two programs on one processor wait for each other
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Options(folder, last=1 << 30, draws=False, limit=1 << 40))
        recorder.install()
        for name, make in _PROGRAMS.items():
            step = make()

            def timed(on: bool, step: Callable[[], None] = step) -> float:
                recorder.pause(not on)
                return seconds(step)

            times = turns({"alone": lambda: timed(False), "recorded": lambda: timed(True)}, rounds, warm_up=2)
            ratios = [two / one for one, two in zip(times["alone"], times["recorded"], strict=True)]
            rows.append(
                {
                    "program": name,
                    "step, ms": statistics.median(times["alone"]) * 1e3,
                    "recorded by module, ms": statistics.median(times["recorded"]) * 1e3,
                    "ratio": statistics.median(ratios),
                }
            )
        recorder.close()
    return rows


def main() -> None:
    given = results.parser(__doc__, rounds=15).parse_args()
    rows = measure(given.rounds)
    results.write("compare", "The cost of recording", _TEXT.format(rounds=given.rounds), rows, given.out)


if __name__ == "__main__":
    main()
