# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A step by kernels that cost seconds to load: only where tensors come that they take, and torch's operators do not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from accel_core.op_builder.steps import adam as plain
from accel_core.op_builder.steps.adam import AdamStep, Lists, Step
from accel_core.op_builder.steps.kernels import has_types

_log = logging.getLogger("accel_core")


class FirstUse:
    """A step that is decided when it is first needed; plain torch takes all that the kernels would leave to it anyway.

    find:     returns the step, and what it is.
    expected: what it is before that.
    busy:     whether nothing can be tried at the moment: plain torch takes such a step, and a later one decides.
    """

    def __init__(self, find: Callable[[], tuple[Step, str]], expected: str, busy: Callable[[], bool]) -> None:
        self._find, self._busy = find, busy
        self._step: Step | None = None
        self.what = expected

    def decide(self) -> Step:
        """Return the step, found now if it was not before."""
        if self._step is None:
            self._step, self.what = self._find()
        return self._step

    def __call__(self, lists: Lists, adam: AdamStep) -> None:
        """Do one step in place on [gradients, parameters, first moments, second moments]."""
        if self._step is None and self._wanted(lists) and not self._busy():
            self.decide()
            _log.info("FusedAdam: %s for tensors that torch's operators refuse", self.what)
        (self._step or plain.step)(lists, adam)

    def _wanted(self, lists: Lists) -> bool:
        return any(
            has_types(tensors) and all(tensor.is_contiguous() for tensor in tensors)
            for tensors in zip(*lists, strict=True)
        )
