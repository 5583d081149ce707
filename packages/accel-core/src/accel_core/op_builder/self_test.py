# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small input and its expected result for each known op, to check that the op runs here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from accel_core.errors import OpFailed

_HOST = torch.device("cpu")  # torch's name for host memory, not the vendor of that name


def run(name: str, op: Any, device: torch.device) -> str:
    """Run a loaded op, given upstream's name of it; returns a sentence. Raises OpFailed for a wrong result."""
    check = _CHECKS.get(name)
    if check is None:
        return "loaded; no tiny input is known for it"
    check(op, device)
    return "loaded and run on a tiny input"


def _first_step(device: torch.device, update: Callable[..., Any]) -> None:
    """Check a step on a parameter of twos, a gradient of ones and two states of zeros.

    The first step of each optimizer here changes each element by lr, whatever the gradient's size.
    """
    param, *others = (torch.full((5,), value, device=device) for value in (2.0, 1.0, 0.0, 0.0))
    update(param, *others)
    _expect(param, 2.0 - 0.1)


def _fused_adam(op: Any, device: torch.device) -> None:
    flag, numbers = torch.zeros(1, dtype=torch.int32, device=device), (0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    _first_step(device, lambda p, g, m, v: op.multi_tensor_adam(2048, flag, [[g], [p], [m], [v]], *numbers))


def _cpu_adam(op: Any, device: torch.device) -> None:
    numbers = (0.1, 0.9, 0.999, 1e-8, 0.0)
    op.create_adam(_NUMBER, *numbers, True, False)
    _first_step(_HOST, lambda *tensors: op.adam_update(_NUMBER, 1, *numbers, True, *tensors))
    op.destroy_adam(_NUMBER)


def _cpu_adagrad(op: Any, device: torch.device) -> None:
    op.create_adagrad(_NUMBER, 0.1, 1e-8, 0.0, False)
    _first_step(_HOST, lambda p, g, total, _: op.adagrad_update(_NUMBER, 1, 0.1, 1e-8, 0.0, p, g, total))
    op.destroy_adagrad(_NUMBER)


def _cpu_lion(op: Any, device: torch.device) -> None:
    op.create_lion(_NUMBER, 0.1, 0.9, 0.99, 0.0, False)
    _first_step(_HOST, lambda p, g, m, _: op.lion_update(_NUMBER, 1, 0.1, 0.9, 0.99, 0.0, p, g, m))
    op.destroy_lion(_NUMBER)


def _fused_lion(op: Any, device: torch.device) -> None:
    flag, numbers = torch.zeros(1, dtype=torch.int32, device=device), (0.1, 0.9, 0.99, 1, 0.0)
    _first_step(device, lambda p, g, m, _: op.multi_tensor_lion(2048, flag, [[g], [p], [m]], *numbers))


def _fused_lamb(op: Any, device: torch.device) -> None:
    none, numbers = torch.empty(0, device=device), (0.1, 0.9, 0.999, 1.0, 1.0, 1e-8, 1.0, 1, 1, 1, 0.0)
    _first_step(device, lambda p, g, m, v: op.lamb(p, none, m, v, g, *numbers))


def _pin_memory(op: Any, device: torch.device) -> None:
    handle = op.pin_handle()
    tensor = handle.new_cpu_locked_tensor(8, torch.empty(0))
    if not handle.is_pinned(tensor):
        raise _wrong("memory that is not pinned", "pinned memory")
    handle.free_cpu_locked_tensor(tensor)


def _async_io(op: Any, device: torch.device) -> None:
    written, read = torch.arange(4096.0, device=device), torch.zeros(4096, device=device)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "tensor"))
        handle = op.aio_handle()
        handle.async_pwrite(written, path, 0)
        handle.wait()
        handle.async_pread(read, path, 0)
        handle.wait()
    if not torch.equal(read.cpu(), written.cpu()):
        raise _wrong("other bytes than were written", "those that were written")


def _utils(op: Any, device: torch.device) -> None:
    tensors = [torch.full((2,), 2.0, device=device), torch.full((3,), 2.0, device=device)]
    flat = op.flatten(tensors)
    _expect(flat, 2.0)
    for part, tensor in zip(op.unflatten(flat, tensors), tensors, strict=True):
        _expect(part, 2.0)
        if part.shape != tensor.shape:
            raise _wrong(f"a part of shape {tuple(part.shape)}", f"{tuple(tensor.shape)}")


def _quantizer(op: Any, device: torch.device) -> None:
    values = torch.tensor([-8.0, -3.5, 2.5, 7.0], device=device, dtype=torch.float16)
    _expect_all(op.dequantize(*op.quantize(values, 1, 4, op.Symmetric), 1, 4, op.Symmetric), [-8, -4, 2, 7])


def _evoformer(op: Any, device: torch.device) -> None:
    q = torch.ones(1, 1, 2, 1, 4, device=device)
    v = torch.tensor([1.0, 3.0], device=device).view(1, 1, 2, 1, 1) * q
    none, lse = torch.empty(0, device=device), torch.empty(1, 1, 2, device=device)
    out = torch.full_like(q, torch.nan)  # not empty memory, which may hold the right numbers
    op.attention(q, q, v, none, none, out, lse)
    _expect(out, 2.0)


def _fp_quantizer(op: Any, device: torch.device) -> None:
    values = torch.tensor([0.0, 2.0, -1.25, 480.0], device=device, dtype=torch.bfloat16)
    data = torch.zeros(1, 8, device=device, dtype=torch.uint8)
    back = torch.full_like(values, torch.nan)
    op.dequantize(back, op.quantize(data, values, 4, 0, 8, 3), 4, 3, 4)
    # The largest value sets the scale, and is exact. Where codes reach 448, not 480, the others are between two.
    if back[-1] != values[-1] or not torch.allclose(back.float(), values.float(), rtol=1 / 16, atol=0):
        raise _wrong(f"{back.tolist()}", f"{values.tolist()}, the last one exact, the others within 1/16")


def _pack_bits(op: Any, device: torch.device) -> None:
    signs = [1, -1, -1, 1, 1, 1, -1, 1]
    packed = op.packbits(torch.tensor(signs, device=device, dtype=torch.float32), 8, 0)
    _expect_all(op.unpackbits(packed, 1, 0), signs)


def _random_ltd(op: Any, device: torch.device) -> None:
    rows = torch.arange(3.0, device=device).view(1, 3, 1)
    index = torch.tensor([[0, 2]], device=device, dtype=torch.int32)
    _expect_all(op.token_gather(rows, index, True).flatten(), [0, 2])


def _spatial(op: Any, device: torch.device) -> None:
    ones = torch.ones(1, 2, 3, device=device, dtype=torch.float16)
    _expect(op.nhwc_bias_add_add(ones, ones[0, 0], ones), 3.0)


#: No optimizer of DeepSpeed has this ID: it counts from 0.
_NUMBER = 2**31 - 1
_CHECKS: dict[str, Callable[[Any, torch.device], None]] = {
    "async_io": _async_io,
    "cpu_adagrad": _cpu_adagrad,
    "cpu_adam": _cpu_adam,
    "cpu_lion": _cpu_lion,
    "evoformer_attn": _evoformer,
    "fp_quantizer": _fp_quantizer,
    "fused_adam": _fused_adam,
    "fused_lamb": _fused_lamb,
    "fused_lion": _fused_lion,
    "pack_bits": _pack_bits,
    "pin_memory": _pin_memory,
    "quantizer": _quantizer,
    "random_ltd": _random_ltd,
    "spatial_inference": _spatial,
    "utils": _utils,
}


def _expect(tensor: torch.Tensor, value: float) -> None:
    got = tensor.detach().cpu()
    if not torch.allclose(got, torch.full_like(got, value), atol=1e-5):
        raise _wrong(f"{got.tolist()}", f"{value} everywhere")


def _expect_all(tensor: torch.Tensor, values: Sequence[float]) -> None:
    if tensor.tolist() != values:
        raise _wrong(f"{tensor.tolist()}", f"{values}")


def _wrong(found: str, expected: str) -> OpFailed:
    return OpFailed(
        f"the op computes something wrong: {found}; expected {expected}",
        do="report it to the package that serves the op, with the output of `accel doctor`",
    )
