# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the losses, scales and steps of a configuration with the expected ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from accel_testkit.engine import reference
from accel_testkit.engine.configurations import Configuration
from accel_testkit.engine.rank import Found
from accel_testkit.engine.runs import Answers
from accel_testkit.suite.expect import expect, largest

#: Largest difference of a loss (they are between 1 and 5) from plain PyTorch on the CPU. bf16: the largest
#: that was seen is 2.24e-3, on a CPU with bf16 instructions (AMX); 1.9e-3 without.
TOLERANCE = {"fp32": 1e-6, "bf16": 2.5e-3, "fp16": 2e-3}
#: The same for an op's own Adam: DeepSpeed's CPU Adam takes 1 - beta**step in float32, of which few digits are left.
_OWN_ADAM = 1e-5
#: What loss scaling does, step by step.
_SCALING = ("scales", "skipped")


@dataclass(frozen=True)
class Comparison:
    """The comparison of one configuration.

    refused:    ends the test as skipped once DeepSpeed is seen to refuse the type; None where the device has it.
    exact:      the device computes with the host's own kernels.
    record:     keeps figures with the check's results.
    """

    configuration: Configuration
    refused: Callable[[list[Any]], None] | None
    exact: bool
    record: Callable[[dict[str, Any]], None]

    @property
    def tolerance(self) -> float:
        """Return the largest allowed difference of a loss."""
        own = _OWN_ADAM if self.configuration.optimizer != "torch" else 0.0
        return max(TOLERANCE[self.configuration.dtype], own)

    def trained(self, answers: Answers) -> list[Found]:
        """Return what each rank found; fail with the traceback of a rank that did not train."""
        name = self.configuration.name
        found = [answer.get(name) for answer in answers]
        if self.refused is not None:
            self.refused(found)
        for rank, (mine, answer) in enumerate(zip(found, answers, strict=True)):
            if not isinstance(mine, dict):
                pytest.fail(
                    f"{name} does not train on rank {rank}\n{mine or answer.get('error')}", pytrace=False
                )
        return [mine for mine in found if isinstance(mine, dict)]

    def with_plain_torch(self, answers: Answers, first: int = 0) -> None:
        """Compare losses within the type's tolerance, scales and skipped steps. first: index of the first step."""
        found = self.trained(answers)
        losses = _mean(found)
        tolerance = self.tolerance
        wanted = reference.of(self.configuration, len(answers))
        steps = slice(first, first + len(losses))
        worst = _furthest(losses, wanted["losses"][steps])
        self.record({"difference": worst})
        expect(
            worst <= tolerance,
            f"{self.configuration.name} trains differently from plain PyTorch",
            found=f"losses {losses}, off by {worst:g}",
            expected=f"{wanted['losses'][steps]}, within {tolerance:g}",
            do="run the conformance suite first: what it finds usually explains this",
        )
        for rank in found:
            for what in _SCALING:
                expect(
                    rank[what] == wanted[what][steps],
                    f"{self.configuration.name}: loss scaling differs from torch's GradScaler",
                    found=f"{what} {rank[what]}",
                    expected=f"{wanted[what][steps]}",
                    do="see whether all ranks notice an overflow on one of them",
                )

    def with_stock(self, answers: Answers, stock: Answers) -> None:
        """Compare every rank's losses, scales and skipped steps with those of the same rank of DeepSpeed on a CPU."""
        found, wanted = self.trained(answers), self.trained(stock)
        worst = largest(_furthest(a["losses"], b["losses"]) for a, b in zip(found, wanted, strict=True))
        self.record({"difference": worst, "identical": found == wanted})
        tolerance = 0.0 if self.exact else self.tolerance
        expect(
            worst <= tolerance
            and all(a[what] == b[what] for a, b in zip(found, wanted, strict=True) for what in _SCALING),
            f"{self.configuration.name} trains differently from DeepSpeed on a CPU",
            found=f"off by {worst:g}: {found}",
            expected=f"{wanted}, within {tolerance:g}",
            do="look for a branch of DeepSpeed that asks the accelerator: a stream, a data type, a reduction",
        )


def _mean(found: list[Found]) -> list[float]:
    return [sum(values) / len(found) for values in zip(*(rank["losses"] for rank in found), strict=True)]


def _furthest(found: list[float], wanted: list[float]) -> float:
    return largest(abs(a - b) for a, b in zip(found, wanted, strict=True))
