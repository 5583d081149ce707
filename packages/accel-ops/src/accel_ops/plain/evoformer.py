# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Attention with two biases over rows of a matrix of residues (DS4Sci_EvoformerAttention), forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from accel_core.op_builder import Implementation, OpBuilder, OpFunctions
from accel_ops.plain import checks

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
            sums = scores.logsumexp(-1)
            divisors[rows] = sums
            out[rows] = (scores.sub_(sums.unsqueeze(-1)).exp_() @ problem.wide(v, rows)).to(o.dtype)

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
            weights = problem.scores(rows).sub_(lse[rows, :, :length].unsqueeze(-1)).exp_()
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
        checks.dimensions(what, "q", q, *((5,) if biased else range(3, 9)))
        checks.same_dtype(what, q=q, k=k, v=v, **like_q)
        for name, tensor in {"k": k, "v": v, **like_q}.items():
            checks.shape(what, name, tensor, q.shape)
        length, heads = q.shape[-3], q.shape[-2]
        for name, tensor in like_lse.items():
            checks.dimensions(what, name, tensor, 3)
            room = (math.prod(q.shape[:-3]), heads, max(length, tensor.shape[2]))
            checks.shape(what, name, tensor, room)
        if bias1.numel():
            checks.shape(what, "bias1", bias1, (*q.shape[:2], 1, 1, length))
        if bias2.numel():
            checks.shape(what, "bias2", bias2, (q.shape[0], 1, heads, length, length))
        return cls(q, k, bias1, bias2)

    def check_gradients(self, gb1: torch.Tensor, gb2: torch.Tensor) -> None:
        for name, grad, bias in (("gb1", gb1, self.bias1), ("gb2", gb2, self.bias2)):
            if grad.numel():
                checks.shape("attention_bwd", name, grad, bias.shape)
                checks.floating("attention_bwd", **{name: grad})

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


class EvoformerAttnBuilder(OpBuilder):
    """Attention of AlphaFold's Evoformer, for DS4Sci_EvoformerAttention."""

    NAME = "evoformer_attn"
    BUILD_VAR = "DS_BUILD_EVOFORMER_ATTN"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch runs everywhere."""
        return True, "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions."""
        return EvoformerFunctions()
