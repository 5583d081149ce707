# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Flattening of lists of tensors, on any device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from accel_core.op_builder import OpBuilder


class UtilsBuilder(OpBuilder):
    """Builds `utils`: `flatten(tensors)` and `unflatten(flat, tensors)`, which are torch's own functions."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and torch's module."""
        return True, "torch._utils"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        return SimpleNamespace(flatten=_flatten_dense_tensors, unflatten=_unflatten_dense_tensors)
