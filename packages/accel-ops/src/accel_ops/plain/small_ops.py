# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Small ops in plain torch: signs as bits, random layer-token dropping, sums of images with biases.

- Signs of numbers in the bits of bytes, which the 1-bit optimizers of DeepSpeed 0.18 send.
- Choice of tokens for random layerwise token dropping (Yao et al., arXiv:2211.11586).
- Sums with a bias for each channel, for the convolutions of diffusion models.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from accel_core.op_builder import Implementation, OpBuilder, OpFunctions
from accel_ops.plain import checks

_BITS = tuple(range(7, -1, -1))


class PackBitsFunctions(OpFunctions):
    """The loaded op. `rank` is not used: the result is on the tensor's device, as upstream's stream is."""

    OP = "pack_bits"

    def packbits(self, tensor: torch.Tensor, input_size: int, rank: int) -> torch.Tensor:
        """Return ceil(input_size / 8) uint8 for the first `input_size` numbers: a bit is 1 where the sign is +.

        The first of eight is the highest bit; the bits after the last number are 0.
        """
        if not tensor.is_floating_point():
            raise checks.invalid("packbits", f"{tensor.dtype}", "a float type")
        if not 0 <= input_size <= tensor.numel():
            raise checks.invalid(
                "packbits", f"input_size = {input_size}", f"at most {tensor.numel()} numbers"
            )
        signs = torch.zeros((input_size + 7) // 8 * 8, dtype=torch.uint8, device=tensor.device)
        signs[:input_size] = ~tensor.reshape(-1)[:input_size].signbit()
        rows = signs.view(-1, 8)
        packed = rows[:, 7].clone()
        for column, bit in enumerate(_BITS[:-1]):
            packed |= rows[:, column] << bit
        return packed

    def unpackbits(self, tensor: torch.Tensor, input_size: int, rank: int) -> torch.Tensor:
        """Return 8 * input_size float32 for the first `input_size` bytes: 1 for a bit of 1, -1 for one of 0."""
        if tensor.dtype != torch.uint8:
            raise checks.invalid("unpackbits", f"{tensor.dtype}", "torch.uint8")
        if not 0 <= input_size <= tensor.numel():
            raise checks.invalid(
                "unpackbits", f"input_size = {input_size}", f"at most {tensor.numel()} bytes"
            )
        data = tensor.reshape(-1)[:input_size]
        bits = torch.stack([(data >> bit) & 1 for bit in _BITS], 1)
        return bits.view(-1).to(torch.float32).mul_(2).sub_(1)


class PackbitsBuilder(OpBuilder):
    """Packing of signs for 1-bit Adam, 0/1 Adam and 1-bit LAMB with `comm_backend_name` "compressed"."""

    NAME = "pack_bits"
    BUILD_VAR = "DS_BUILD_PACK_BITS"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return PackBitsFunctions()


class RandomLTDFunctions(OpFunctions):
    """The loaded op, for every type of numbers.

    Activations are (batch, sequence, channels), or (sequence, batch, channels) if not `batch_first`; indices of
    tokens are (batch, kept).
    """

    OP = "random_ltd"

    def token_sort_(self, unsorted_token_ids: torch.Tensor, original_tokens: int) -> torch.Tensor:
        """Sort (layers, batch, kept) indices below `original_tokens` in the last dimension, in place; return them."""
        checks.dimensions("token_sort_", "unsorted_token_ids", unsorted_token_ids, 3)
        checks.indices("token_sort_", "unsorted_token_ids", unsorted_token_ids)
        return unsorted_token_ids.copy_(unsorted_token_ids.sort(-1).values)

    def token_gather(
        self, activations: torch.Tensor, sorted_indices: torch.Tensor, batch_first: bool
    ) -> torch.Tensor:
        """Return the kept tokens, contiguous, in the order of the activations' dimensions."""
        what = "token_gather"
        rows = _batch_first(what, "activations", activations, batch_first)
        kept = rows.gather(1, _index(what, rows, sorted_indices))
        return (kept if batch_first else kept.transpose(0, 1)).contiguous()

    def token_scatter_(
        self,
        all_activations: torch.Tensor,
        layer_activations: torch.Tensor,
        sorted_indices: torch.Tensor,
        batch_first: bool,
    ) -> torch.Tensor:
        """Write the kept tokens to their places in `all_activations`; return it.

        An expanded tensor, such as a gradient of `sum`, cannot be written to: the result is then a new one.
        """
        what = "token_scatter_"
        checks.same_dtype(what, all_activations=all_activations, layer_activations=layer_activations)
        if 0 in all_activations.stride():
            all_activations = all_activations.clone(memory_format=torch.contiguous_format)
        rows = _batch_first(what, "all_activations", all_activations, batch_first)
        kept = _batch_first(what, "layer_activations", layer_activations, batch_first)
        index = _index(what, rows, sorted_indices)
        checks.shape(what, "layer_activations", kept, index.shape)
        rows.scatter_(1, index, kept)
        return all_activations

    def mask_gather_bert(self, dense_mask: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
        """Return the (layers, batch, 1, kept, kept) rows and columns of a mask (batch, 1, sequence, sequence).

        The indices are (layers, batch, kept).
        """
        what = "mask_gather_bert"
        checks.dimensions(what, "sorted_indices", sorted_indices, 3)
        checks.indices(what, "sorted_indices", sorted_indices)
        layers, batch, kept = sorted_indices.shape
        length = dense_mask.shape[-1] if dense_mask.dim() else 0
        checks.shape(what, "dense_mask", dense_mask, (batch, 1, length, length))
        index = sorted_indices.long()
        mask = dense_mask[:, 0].expand(layers, batch, length, length)
        rows = mask.gather(2, index[..., None].expand(layers, batch, kept, length))
        return rows.gather(3, index[:, :, None].expand(layers, batch, kept, kept)).unsqueeze(2)

    def mask_gather_gpt(self, dense_mask: torch.Tensor, truncated_seq_len: int) -> torch.Tensor:
        """Return the first rows and columns of a mask (batch, 1, sequence, sequence), contiguous."""
        what = "mask_gather_gpt"
        checks.dimensions(what, "dense_mask", dense_mask, 4)
        if not 0 <= truncated_seq_len <= min(dense_mask.shape[-2:]):
            found = f"truncated_seq_len = {truncated_seq_len}"
            raise checks.invalid(what, found, f"at most {min(dense_mask.shape[-2:])}")
        return dense_mask[:, :1, :truncated_seq_len, :truncated_seq_len].contiguous()


def _batch_first(what: str, name: str, activations: torch.Tensor, batch_first: bool) -> torch.Tensor:
    checks.dimensions(what, name, activations, 3)
    return activations if batch_first else activations.transpose(0, 1)


def _index(what: str, rows: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
    """Return the indices as torch's gather reads them, the same for each channel."""
    checks.dimensions(what, "sorted_indices", sorted_indices, 2)
    checks.indices(what, "sorted_indices", sorted_indices)
    checks.shape(what, "sorted_indices", sorted_indices, (rows.shape[0], sorted_indices.shape[1]))
    return sorted_indices.long().unsqueeze(-1).expand(-1, -1, rows.shape[2])


class RandomLTDBuilder(OpBuilder):
    """Random layerwise token dropping (`data_efficiency`, `random_ltd`)."""

    NAME = "random_ltd"
    BUILD_VAR = "DS_BUILD_RANDOM_LTD"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return RandomLTDFunctions()


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
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return SpatialFunctions()
