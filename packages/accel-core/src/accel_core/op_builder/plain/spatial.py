# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Sums with a bias for each channel, for the convolutions of diffusion models."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.functions import OpFunctions
from accel_core.op_builder.plain import checks
from accel_core.op_builder.routes import Route


class SpatialFunctions(OpFunctions):
    """The loaded op.

    Activations are (batch, channels, height, width), or (batch, sequence, channels); a bias is (channels,). Sums are
    float32, rounded once to the activations' type. Strides of the result are those of the activations.
    """

    OP = "spatial_inference"

    def nhwc_bias_add(self, activation: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return activation + bias."""
        return _sum("nhwc_bias_add", activation, bias)

    def nhwc_bias_add_add(
        self, activation: torch.Tensor, bias: torch.Tensor, other: torch.Tensor
    ) -> torch.Tensor:
        """Return activation + bias + other."""
        return _sum("nhwc_bias_add_add", activation, bias, other)

    def nhwc_bias_add_bias_add(
        self, activation: torch.Tensor, bias: torch.Tensor, other: torch.Tensor, other_bias: torch.Tensor
    ) -> torch.Tensor:
        """Return (activation + bias) + (other + other_bias)."""
        return _sum("nhwc_bias_add_bias_add", activation, bias, other, other_bias)


def _sum(
    what: str,
    activation: torch.Tensor,
    bias: torch.Tensor,
    other: torch.Tensor | None = None,
    other_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    total = _biased(what, activation, bias)
    if other is not None:
        checks.shape(what, "other", other, activation.shape)
        checks.same_dtype(what, activation=activation, other=other)
        total += other if other_bias is None else _biased(what, other, other_bias)
    return torch.empty_like(activation).copy_(total)


def _biased(what: str, activation: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    checks.dimensions(what, "activation", activation, 3, 4)
    checks.same_dtype(what, activation=activation, bias=bias)
    channels = activation.shape[1 if activation.dim() == 4 else 2]
    checks.shape(what, "bias", bias, (channels,))
    precision = torch.promote_types(activation.dtype, torch.float32)
    return activation.to(precision) + (bias.view(-1, 1, 1) if activation.dim() == 4 else bias)


class SpatialInferenceBuilder(OpBuilder):
    """Sums with biases for DeepSpeed's diffusion models."""

    NAME = "spatial_inference"
    BUILD_VAR = "DS_BUILD_SPATIAL_INFERENCE"
    ROUTES: ClassVar[tuple[Route, ...]] = (Route.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return SpatialFunctions()
