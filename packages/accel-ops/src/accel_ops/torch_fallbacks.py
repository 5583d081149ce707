# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops that DeepSpeed has as sources for one device, in plain torch for every device; their builders.

- Signs of numbers in the bits of bytes, which the 1-bit optimizers of DeepSpeed 0.18 send.
- Choice of tokens for random layerwise token dropping (Yao et al., arXiv:2211.11586).
- Sums with a bias for each channel, for the convolutions of diffusion models.
- Attention with two biases over rows of a matrix of residues (DS4Sci_EvoformerAttention), forward and backward.

Tensors that an op cannot use are errors, as DeepSpeed's kernels read out of bounds or misread them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from accel_core.errors import InvalidOpArgument
from accel_core.op_builder import OpFunctions
from accel_ops.op import Op

Shape = Sequence[int]


def check_shape(what: str, name: str, tensor: torch.Tensor, *allowed: Shape) -> None:
    """Raise InvalidOpArgument unless the tensor has one of these shapes."""
    if tuple(tensor.shape) not in [tuple(each) for each in allowed]:
        wanted = " or ".join(str(tuple(each)) for each in allowed)
        raise invalid(what, f"{name} of shape {tuple(tensor.shape)}", f"shape {wanted}")


def check_dimensions(what: str, name: str, tensor: torch.Tensor, *allowed: int) -> None:
    """Raise InvalidOpArgument unless the tensor has as many dimensions."""
    if tensor.dim() not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise invalid(what, f"{name} of shape {tuple(tensor.shape)}", f"{wanted} dimensions")


def check_same_dtype(what: str, **tensors: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless the first tensor has a float type, and the others the same."""
    (first_name, first), *others = tensors.items()
    check_floating(what, **{first_name: first})
    for name, other in others:
        if other.dtype != first.dtype:
            raise invalid(what, f"{name} of {other.dtype}", f"{first.dtype}")


def check_floating(what: str, **tensors: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless each tensor has a float type."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise invalid(what, f"{name} of {tensor.dtype}", "a float type")


def check_indices(what: str, name: str, tensor: torch.Tensor) -> None:
    """Raise InvalidOpArgument unless the tensor is of whole numbers."""
    if tensor.dtype not in (torch.int32, torch.int64):
        raise invalid(what, f"{name} of {tensor.dtype}", "torch.int32")


def invalid(what: str, found: str, expected: str) -> InvalidOpArgument:
    """Return the error of a function that cannot use an argument."""
    return InvalidOpArgument(
        f"{what} cannot use these arguments: {found}; expected {expected}",
        do="pass tensors as DeepSpeed's Python functions for this op do",
    )


_BITS = tuple(range(7, -1, -1))


class PackBitsFunctions(OpFunctions):
    """The loaded op. `rank` is not used: the result is on the tensor's device, as upstream's stream is."""

    OP = "pack_bits"

    def packbits(self, tensor: torch.Tensor, input_size: int, rank: int) -> torch.Tensor:
        """Return ceil(input_size / 8) uint8 for the first `input_size` numbers: a bit is 1 where the sign is +.

        The first of eight is the highest bit; the bits after the last number are 0.
        """
        if not tensor.is_floating_point():
            raise invalid("packbits", f"{tensor.dtype}", "a float type")
        if not 0 <= input_size <= tensor.numel():
            raise invalid("packbits", f"input_size = {input_size}", f"at most {tensor.numel()} numbers")
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
            raise invalid("unpackbits", f"{tensor.dtype}", "torch.uint8")
        if not 0 <= input_size <= tensor.numel():
            raise invalid("unpackbits", f"input_size = {input_size}", f"at most {tensor.numel()} bytes")
        data = tensor.reshape(-1)[:input_size]
        bits = torch.stack([(data >> bit) & 1 for bit in _BITS], 1)
        return bits.view(-1).to(torch.float32).mul_(2).sub_(1)


PACK_BITS = Op(
    "pack_bits",
    "PackbitsBuilder",
    "Packing of signs for 1-bit Adam, 0/1 Adam and 1-bit LAMB with `comm_backend_name: compressed`.",
    PackBitsFunctions,
)
PackbitsBuilder = PACK_BITS.builder(__name__)


class RandomLTDFunctions(OpFunctions):
    """The loaded op, for every type of numbers.

    Activations are (batch, sequence, channels), or (sequence, batch, channels) if not `batch_first`; indices of
    tokens are (batch, kept).
    """

    OP = "random_ltd"

    def token_sort_(self, unsorted_token_ids: torch.Tensor, original_tokens: int) -> torch.Tensor:
        """Sort (layers, batch, kept) indices below `original_tokens` in the last dimension, in place; return them."""
        check_dimensions("token_sort_", "unsorted_token_ids", unsorted_token_ids, 3)
        check_indices("token_sort_", "unsorted_token_ids", unsorted_token_ids)
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
        check_same_dtype(what, all_activations=all_activations, layer_activations=layer_activations)
        if 0 in all_activations.stride():
            all_activations = all_activations.clone(memory_format=torch.contiguous_format)
        rows = _batch_first(what, "all_activations", all_activations, batch_first)
        kept = _batch_first(what, "layer_activations", layer_activations, batch_first)
        index = _index(what, rows, sorted_indices)
        check_shape(what, "layer_activations", kept, index.shape)
        rows.scatter_(1, index, kept)
        return all_activations

    def mask_gather_bert(self, dense_mask: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
        """Return the (layers, batch, 1, kept, kept) rows and columns of a mask (batch, 1, sequence, sequence).

        The indices are (layers, batch, kept).
        """
        what = "mask_gather_bert"
        check_dimensions(what, "sorted_indices", sorted_indices, 3)
        check_indices(what, "sorted_indices", sorted_indices)
        layers, batch, kept = sorted_indices.shape
        length = dense_mask.shape[-1] if dense_mask.dim() else 0
        check_shape(what, "dense_mask", dense_mask, (batch, 1, length, length))
        index = sorted_indices.long()
        mask = dense_mask[:, 0].expand(layers, batch, length, length)
        rows = mask.gather(2, index[..., None].expand(layers, batch, kept, length))
        return rows.gather(3, index[:, :, None].expand(layers, batch, kept, kept)).unsqueeze(2)

    def mask_gather_gpt(self, dense_mask: torch.Tensor, truncated_seq_len: int) -> torch.Tensor:
        """Return the first rows and columns of a mask (batch, 1, sequence, sequence), contiguous."""
        what = "mask_gather_gpt"
        check_dimensions(what, "dense_mask", dense_mask, 4)
        if not 0 <= truncated_seq_len <= min(dense_mask.shape[-2:]):
            found = f"truncated_seq_len = {truncated_seq_len}"
            raise invalid(what, found, f"at most {min(dense_mask.shape[-2:])}")
        return dense_mask[:, :1, :truncated_seq_len, :truncated_seq_len].contiguous()


def _batch_first(what: str, name: str, activations: torch.Tensor, batch_first: bool) -> torch.Tensor:
    check_dimensions(what, name, activations, 3)
    return activations if batch_first else activations.transpose(0, 1)


def _index(what: str, rows: torch.Tensor, sorted_indices: torch.Tensor) -> torch.Tensor:
    """Return the indices as torch's gather reads them, the same for each channel."""
    check_dimensions(what, "sorted_indices", sorted_indices, 2)
    check_indices(what, "sorted_indices", sorted_indices)
    check_shape(what, "sorted_indices", sorted_indices, (rows.shape[0], sorted_indices.shape[1]))
    return sorted_indices.long().unsqueeze(-1).expand(-1, -1, rows.shape[2])


RANDOM_LTD = Op(
    "random_ltd",
    "RandomLTDBuilder",
    "Random layerwise token dropping (`data_efficiency`, `random_ltd`).",
    RandomLTDFunctions,
)
RandomLTDBuilder = RANDOM_LTD.builder(__name__)


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
        check_shape(what, "other", other, activation.shape)
        check_same_dtype(what, activation=activation, other=other)
        total += other if other_bias is None else _biased(what, other, other_bias)
    return torch.empty_like(activation).copy_(total)


def _biased(what: str, activation: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    check_dimensions(what, "activation", activation, 3, 4)
    check_same_dtype(what, activation=activation, bias=bias)
    channels = activation.shape[1 if activation.dim() == 4 else 2]
    check_shape(what, "bias", bias, (channels,))
    precision = torch.promote_types(activation.dtype, torch.float32)
    return activation.to(precision) + (bias.view(-1, 1, 1) if activation.dim() == 4 else bias)


SPATIAL_INFERENCE = Op(
    "spatial_inference",
    "SpatialInferenceBuilder",
    "Sums with biases for DeepSpeed's diffusion models.",
    SpatialFunctions,
)
SpatialInferenceBuilder = SPATIAL_INFERENCE.builder(__name__)


#: Scores that are kept at a time, at most, where a row has fewer: 64 MiB in float32.
_SCORES = 1 << 24


class EvoformerFunctions(OpFunctions):
    """The loaded op. Results are written to tensors that the caller makes; sums are float32.

    q, k, v, o: (*, length, heads, width). With a bias (batch, rows, length, heads, width).
    bias1: (batch, rows, 1, 1, length) of the keys; bias2: (batch, 1, heads, length, length). One without elements
    is none.
    lse, delta: (rows of all batches, heads, length or more) float32.
    """

    OP = "evoformer_attn"

    def attention(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias1: torch.Tensor,
        bias2: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
    ) -> None:
        """Write softmax(q k^T / sqrt(width) + bias1 + bias2) v to `o`, and the logarithm of its divisor to `lse`."""
        problem = _Problem.of("attention", q, k, v, bias1, bias2, {"o": o}, {"lse": lse})
        length = q.shape[-3]
        out, divisors = problem.heads_first(o), lse[:, :, :length]
        # The kernels leave infinity behind the last query.
        lse[:, :, length:] = math.inf
        for rows in problem.slices():
            scores = problem.scores(rows)
            divisors[rows] = scores.logsumexp(-1)
            # Not exp(scores - divisor): of a row of biases of -1e9, the rounded divisor lacks the logarithm.
            out[rows] = (scores.softmax(-1) @ problem.wide(v, rows)).to(o.dtype)

    def attention_bwd(
        self,
        go: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        delta: torch.Tensor,
        bias1: torch.Tensor,
        bias2: torch.Tensor,
        gq: torch.Tensor,
        gk: torch.Tensor,
        gv: torch.Tensor,
        gb1: torch.Tensor,
        gb2: torch.Tensor,
    ) -> None:
        """Write the gradients, given that of `o`; add those of biases to `gb1`, `gb2`, if they have elements."""
        like_q, like_lse = {"go": go, "o": o, "gq": gq, "gk": gk, "gv": gv}, {"lse": lse, "delta": delta}
        problem = _Problem.of("attention_bwd", q, k, v, bias1, bias2, like_q, like_lse)
        problem.check_gradients(gb1, gb2)
        length = q.shape[-3]
        for rows in problem.slices():
            grad = problem.wide(go, rows)
            weights = problem.scores(rows).softmax(-1)
            problem.heads_first(gv)[rows] = (weights.mT @ grad).to(gv.dtype)
            sums = (grad * problem.wide(o, rows)).sum(-1)
            delta[rows, :, :length] = sums
            scores = weights.mul_((grad @ problem.wide(v, rows).mT).sub_(sums.unsqueeze(-1)))
            problem.add_gradients(rows, scores, gb1, gb2)
            scores *= problem.scale
            problem.heads_first(gq)[rows] = (scores @ problem.wide(k, rows)).to(gq.dtype)
            problem.heads_first(gk)[rows] = (scores.mT @ problem.wide(q, rows)).to(gk.dtype)


@dataclass(frozen=True)
class _Problem:
    """Sizes and inputs; `rows` are slices of the leading dimensions of q taken as one, within a batch."""

    q: torch.Tensor
    k: torch.Tensor
    bias1: torch.Tensor
    bias2: torch.Tensor

    @classmethod
    def of(
        cls,
        what: str,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias1: torch.Tensor,
        bias2: torch.Tensor,
        like_q: dict[str, torch.Tensor],
        like_lse: dict[str, torch.Tensor],
    ) -> _Problem:
        """Raises InvalidOpArgument for sizes and types that do not fit together."""
        biased = bias1.numel() or bias2.numel()
        check_dimensions(what, "q", q, *((5,) if biased else range(3, 9)))
        check_same_dtype(what, q=q, k=k, v=v, **like_q)
        for name, tensor in {"k": k, "v": v, **like_q}.items():
            check_shape(what, name, tensor, q.shape)
        length, heads = q.shape[-3], q.shape[-2]
        for name, tensor in like_lse.items():
            check_dimensions(what, name, tensor, 3)
            room = (math.prod(q.shape[:-3]), heads, max(length, tensor.shape[2]))
            check_shape(what, name, tensor, room)
        if bias1.numel():
            check_shape(what, "bias1", bias1, (*q.shape[:2], 1, 1, length))
        if bias2.numel():
            check_shape(what, "bias2", bias2, (q.shape[0], 1, heads, length, length))
        return cls(q, k, bias1, bias2)

    def check_gradients(self, gb1: torch.Tensor, gb2: torch.Tensor) -> None:
        for name, grad, bias in (("gb1", gb1, self.bias1), ("gb2", gb2, self.bias2)):
            if grad.numel():
                check_shape("attention_bwd", name, grad, bias.shape)
                check_floating("attention_bwd", **{name: grad})

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(max(1, self.q.shape[-1]))

    def slices(self) -> Iterator[slice]:
        """Yield parts of the rows, each of one batch, so that few scores are in memory at a time."""
        length, heads = self.q.shape[-3], self.q.shape[-2]
        batches, rows = (self.q.shape[0], self.q.shape[1]) if self.q.dim() == 5 else (1, self._rows())
        size = max(1, _SCORES // max(1, heads * length * length))
        for batch in range(batches):
            for first in range(0, rows, size):
                yield slice(batch * rows + first, batch * rows + min(first + size, rows))

    def _rows(self) -> int:
        return math.prod(self.q.shape[:-3])

    def heads_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a view (rows, heads, length, width)."""
        return tensor.view(-1 if tensor.numel() else self._rows(), *tensor.shape[-3:]).transpose(1, 2)

    def wide(self, tensor: torch.Tensor, rows: slice) -> torch.Tensor:
        """Return these rows (rows, heads, length, width) in float32; a float64 stays one."""
        flat = tensor.reshape(self._rows(), *tensor.shape[-3:])[rows].transpose(1, 2)
        return flat.to(torch.promote_types(tensor.dtype, torch.float32))

    def scores(self, rows: slice) -> torch.Tensor:
        """Return q k^T / sqrt(width) plus biases, (rows, heads, length, length), a new tensor."""
        scores = (self.wide(self.q, rows) * self.scale) @ self.wide(self.k, rows).mT
        if self.bias1.numel():
            scores += self.bias1.reshape(-1, 1, 1, self.bias1.shape[-1])[rows]
        if self.bias2.numel():
            scores += self.bias2[rows.start // self.q.shape[1]]
        return scores

    def add_gradients(self, rows: slice, scores: torch.Tensor, gb1: torch.Tensor, gb2: torch.Tensor) -> None:
        """Add the gradients of scores to those of the biases, which are views of what was given."""
        if gb1.numel():
            gb1.view(-1, gb1.shape[-1])[rows] += scores.sum((1, 2))
        if gb2.numel():
            gb2[rows.start // self.q.shape[1], 0] += scores.sum(0)


EVOFORMER_ATTN = Op(
    "evoformer_attn",
    "EvoformerAttnBuilder",
    "Attention of AlphaFold's Evoformer, for DS4Sci_EvoformerAttention.",
    EvoformerFunctions,
)
EvoformerAttnBuilder = EVOFORMER_ATTN.builder(__name__)
