# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Digests of tensors: what is kept of a tensor to compare it with the same one of another run.

A digest has the norm, extremes, NaN and Inf counts, and 32 evenly spaced elements. It also has the projection on a
vector of random signs, the same in every run. The difference of two projections has the variance of the squared norm
of the tensors' difference, so that it estimates their distance without either tensor.
"""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass

import torch

_SAMPLES = 32
#: Columns of the matrix as which a tensor is projected; signs of its rows and columns are multiplied.
_COLUMNS = 4096
#: Larger values of float64 have squares that are not finite.
_LARGEST = 1e140


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of a tensor.

    shape, dtype: as of the tensor; `bfloat16`.
    norm:         Euclidean norm of the finite elements.
    projection:   sum of the finite elements, each times its random sign.
    low, high:    extremes of the finite elements.
    nan, inf:     how many elements are.
    places:       projection of where they are; 0 if there is none.
    sample:       32 evenly spaced elements, or all of fewer.
    """

    shape: tuple[int, ...]
    dtype: str
    norm: float
    projection: float
    low: float
    high: float
    nan: int
    inf: int
    places: float
    sample: tuple[float, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        counts = [f"{count} {name}" for name, count in (("NaN", self.nan), ("Inf", self.inf)) if count]
        values = ", ".join(f"{value:.6g}" for value in self.sample[:4])
        return (
            f"{self.dtype}{list(self.shape)} norm {self.norm:.7g} [{values}, …] {' '.join(counts)}".rstrip()
        )


def digest(tensor: torch.Tensor) -> Digest:
    """Return the digest of a tensor, computed on the CPU in float64 after float32 products.

    The tensor is copied to the host: a device that computes wrongly must not compute its own digest.
    """
    host = _host(tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    flat = host.reshape(-1)
    count = flat.numel()
    if not count:
        return Digest(tuple(tensor.shape), dtype, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, ())
    sample = tuple(flat[:: max(1, count // _SAMPLES)][:_SAMPLES].tolist())
    nan, inf, places = 0, 0, 0.0
    norm = float(torch.linalg.vector_norm(flat))
    if not math.isfinite(norm):  # NaN or Inf, or squares beyond float32
        flat = flat.double()
        nan, inf = int(flat.isnan().sum()), int(flat.isinf().sum())
        if nan or inf:
            places = _projection(flat.isnan() + 2.0 * flat.isposinf() + 4.0 * flat.isneginf())
        # The largest of float64, with which masks are filled, have no square.
        flat = flat.nan_to_num(0.0, 0.0, 0.0).clamp(-_LARGEST, _LARGEST)
        norm = float(torch.linalg.vector_norm(flat))
    low, high = (float(value) for value in torch.aminmax(flat))
    return Digest(tuple(tensor.shape), dtype, norm, _projection(flat), low, high, nan, inf, places, sample)


def _host(tensor: torch.Tensor) -> torch.Tensor:
    local = getattr(tensor, "to_local", None)  # of a DTensor
    plain = (local() if local else tensor).detach()
    if plain.is_complex() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.is_quantized or plain.layout != torch.strided:
        plain = plain.dequantize() if plain.is_quantized else plain.to_dense()
    host = plain.cpu()
    if host.dtype == torch.float64 or not host.is_floating_point():
        return host.double()  # it holds all integers that programs count with
    return host.float()


def _projection(flat: torch.Tensor) -> float:
    if torch.is_autocast_enabled("cpu"):  # of the program, which would compute this product in a half type
        with torch.autocast("cpu", enabled=False):
            return _projection(flat)
    rows, rest = divmod(flat.numel(), _COLUMNS)
    signs = _signs(_COLUMNS, 1, flat.dtype)
    total = 0.0
    if rows:
        by_row = (flat[: rows * _COLUMNS].view(rows, _COLUMNS) @ signs).double()
        total = float(by_row @ _signs(rows, 2, torch.float64))
    return total + (float((flat[-rest:] @ signs[:rest]).double()) if rest else 0.0)


@functools.lru_cache(maxsize=64)
def _signs(count: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Return random signs without torch's generators and factories, which a program may have replaced."""
    drawn = torch.frombuffer(bytearray(random.Random(seed).randbytes(count)), dtype=torch.uint8)
    return (drawn & 1).to(dtype).mul_(2).sub_(1)
