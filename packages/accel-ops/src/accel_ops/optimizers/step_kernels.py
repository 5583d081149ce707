# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of Adam and Lion by kernels of `accel/multi_tensor.h`, with plain torch for what the kernels do not take."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product, repeat
from typing import Any

import torch

from accel_ops import reference
from accel_ops.device.driver_kernels import KernelsUnusable, Lack, Launch, log_fallback
from accel_ops.optimizers.fused import AdamStep, Lists, Tensors, adam_step, multi_tensor_lion

#: Tensors of a launch: `kTensors` of the header.
TENSORS = 40
#: Elements of a block, a multiple of `kStepPack`: some rounds of all its threads.
CHUNK = 4096
THREADS = 256
#: Blocks of a launch in the first dimension.
_MOST_BLOCKS = (1 << 31) - 1
_FLOAT = ctypes.c_float
_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
#: Types of gradient, parameter and states.
_KINDS = [
    (torch.float32, torch.float32, torch.float32),
    *((half, torch.float32, torch.float32) for half in (torch.float16, torch.bfloat16)),
    *((half, half, torch.float32) for half in (torch.float16, torch.bfloat16)),
    *((torch.float32, half, torch.float32) for half in (torch.float16, torch.bfloat16)),
    *((half, half, half) for half in (torch.float16, torch.bfloat16)),
]
TYPES = {kinds: "_".join(_NAMES[kind] for kind in kinds) for kinds in _KINDS}
#: The same by the types of all tensors of a row: of one state or two.
_BY_TENSORS = {(*kinds, *kinds[2:] * more): name for kinds, name in TYPES.items() for more in (0, 1)}
#: Others may have no memory, or memory that is not theirs alone.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TensorTable(ctypes.Structure):
    """The tensors of a launch: `accel::TensorTable`, with the device that they are on."""

    _fields_ = (
        ("at", ctypes.c_void_p * TENSORS * 4),
        ("size", ctypes.c_int64 * TENSORS),
        ("end", ctypes.c_uint32 * TENSORS),
        ("chunk", ctypes.c_int64),
    )
    device: torch.device


class AdamValues(ctypes.Structure):
    """`accel::Adam`."""

    _fields_ = tuple(
        zip(
            ("beta1", "rest1", "beta2", "rest2", "step_size", "root_correction", "eps", "keep", "coupled_decay",
             "grad_factor"),
            repeat(_FLOAT),
        )
    )  # fmt: skip


class LionValues(ctypes.Structure):
    """`accel::Lion`."""

    _fields_ = tuple(
        zip(("lr", "beta1", "rest1", "beta2", "rest2", "keep", "grad_factor", "at_zero"), repeat(_FLOAT))
    )


#: {kernel: C types of its arguments}.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    f"accel_{step}_{types}": (TensorTable, values)
    for step, values in (("adam", AdamValues), ("lion", LionValues))
    for types in TYPES.values()
}


class KernelSteps:
    """Steps over kernels. What they do not take goes to plain torch, which also raises the errors.

    device_type: torch's name of the kernels' devices.
    launch: starts a kernel on the current stream of the table's device.
    lack: why plain torch computes, besides the reasons that all devices have.
    chunk: elements of a block.
    """

    def __init__(
        self, device_type: str, launch: Launch, lack: Lack = lambda tensor: "", chunk: int = CHUNK
    ) -> None:
        self._device_type, self._launch, self._device_lack = device_type, launch, lack
        self._chunk = chunk

    def adam(self, lists: Lists, adam: AdamStep) -> None:
        """Do one step in place on [gradients, parameters, first moments, second moments]."""
        rest = self._take("adam", lists, adam_values(adam))
        if rest[0]:
            adam_step(rest, adam)

    def multi_tensor_lion(
        self, chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Sequence[Tensors], lr: float,
        beta1: float, beta2: float, step: int, weight_decay: float,
    ) -> None:  # fmt: skip
        """Do one step in place on [gradients, parameters, momenta], as `fused.multi_tensor_lion`."""
        values = LionValues(lr, beta1, 1 - beta1, beta2, 1 - beta2, 1 - lr * weight_decay, 1, -1)
        rest = self._take("lion", tensor_lists, values)
        if rest[0]:
            multi_tensor_lion(chunk_size, noop_flag_buffer, rest, lr, beta1, beta2, step, weight_decay)

    def _take(self, step: str, lists: Lists, values: ctypes.Structure) -> list[Tensors]:
        """Start kernels for the tensors that they take; return the lists of the others."""
        taken: dict[tuple[torch.device, str], list[tuple[torch.Tensor, ...]]] = defaultdict(list)
        rest: list[Tensors] = [[] for _ in lists]
        lacks: dict[torch.device, str] = {}
        for tensors in zip(*lists, strict=True):
            device = tensors[0].device
            if device not in lacks:
                lacks[device] = self._lack_of_device(tensors[0])
            types = _BY_TENSORS.get(tuple([tensor.dtype for tensor in tensors]), "")
            lack = lacks[device] or self._lack(tensors, device, types)
            if lack:
                log_fallback("optimizer steps", lack)
                for column, tensor in zip(rest, tensors, strict=True):
                    column.append(tensor)
            elif tensors[0].numel():
                taken[device, types].append(tensors)
        for (device, types), rows in taken.items():
            for table, blocks in tables(rows, self._chunk):
                table.device = device
                self._launch(f"accel_{step}_{types}", blocks, THREADS, (table, values))
            _changed([tensor for row in rows for tensor in row[1:]])
        return rest

    def _lack_of_device(self, tensor: torch.Tensor) -> str:
        if tensor.device.type != self._device_type:
            return f"a tensor on {tensor.device}"
        return self._device_lack(tensor)

    def _lack(self, tensors: Sequence[torch.Tensor], device: torch.device, types: str) -> str:
        if not types:
            return "types " + ", ".join(str(tensor.dtype) for tensor in tensors)
        shape = tensors[0].shape
        for tensor in tensors:
            if type(tensor) not in _PLAIN:
                return f"a {type(tensor).__name__}"
            if tensor.device != device:
                return f"a tensor on {tensor.device}"
            if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_neg():
                return "a tensor that is not contiguous"
            if tensor.shape != shape:
                return "shapes that differ"
        too_many = tensors[0].numel() > self._chunk * _MOST_BLOCKS
        return f"{tensors[0].numel()} elements in a tensor" if too_many else ""


def has_types(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether there are kernels for the types of gradient, parameter and states."""
    return tuple([tensor.dtype for tensor in tensors]) in _BY_TENSORS


def adam_values(adam: AdamStep) -> AdamValues:
    """Return the kernels' constants of a step, computed in double."""
    _, lr, beta1, beta2, epsilon, number, decoupled, corrected, decay = adam
    correction1 = 1 - beta1**number if corrected else 1.0
    correction2 = 1 - beta2**number if corrected else 1.0
    keep, coupled = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    return AdamValues(
        beta1, 1 - beta1, beta2, 1 - beta2, lr / correction1, correction2**-0.5, epsilon, keep, coupled, 1
    )


def tables(rows: Iterable[Sequence[torch.Tensor]], chunk: int) -> Iterator[tuple[TensorTable, int]]:
    """Yield the tables of launches, each with its number of blocks."""
    group: list[Sequence[torch.Tensor]] = []
    ends: list[int] = []
    for row in rows:
        blocks = -(-row[0].numel() // chunk)
        if len(group) == TENSORS or (ends and ends[-1] + blocks > _MOST_BLOCKS):
            yield _table(group, ends, chunk), ends[-1]
            group, ends = [], []
        group.append(row)
        ends.append(blocks + (ends[-1] if ends else 0))
    if group:
        yield _table(group, ends, chunk), ends[-1]


def _table(rows: Sequence[Sequence[torch.Tensor]], ends: Sequence[int], chunk: int) -> TensorTable:
    table, count = TensorTable(chunk=chunk), len(rows)
    for at, column in zip(table.at, zip(*rows, strict=True), strict=False):
        at[:count] = [tensor.data_ptr() for tensor in column]
    table.size[:count] = [row[0].numel() for row in rows]
    table.end[:count] = ends
    return table


def _changed(tensors: Tensors) -> None:
    """Let autograd know that tensors have changed, which it cannot see."""
    torch.autograd.graph.increment_version(tensors)


_NO_FLAG = torch.empty(0)
#: A small rate: SYCL devices may be off by some units in the last place in a quotient and a root.
_RATE = 0.25
#: Of self-checks: DeepSpeed's defaults, which half types do not hold, and some that count in each digit.
ADAM_CONSTANTS = (
    AdamStep(_NO_FLAG, _RATE, 0.9, 0.999, 1e-8, 1, 1, 1, 0.25),
    AdamStep(_NO_FLAG, _RATE, 0.75, 0.875, 1e-3, 3, 1, 1, 0.25),
)
_LION = ((_RATE, 0.9, 0.99, 1, 0.25), (_RATE, 0.75, 0.875, 1, 0.25))


def check_adam(launch: Launch, device: torch.device) -> None:
    """Take steps of AdamW and Adam in each combination of types; compare with float64 on the host."""
    kernels = KernelSteps(device.type, launch)
    for kinds in TYPES:
        for decoupled, constants in product((1, 0), ADAM_CONSTANTS):
            constants = constants._replace(adam_w_mode=decoupled)
            found, wanted = _lists(kinds, 2, device)
            kernels.adam(found, constants)
            reference.step_lists(reference.adam, wanted, **constants.hyperparameters)
            _compare("Adam", kinds, found, wanted)


def check_lion(launch: Launch, device: torch.device) -> None:
    """Take a step of Lion in each combination of types; compare with float64 on the host."""
    kernels = KernelSteps(device.type, launch)
    for kinds, constants in product(TYPES, _LION):
        found, wanted = _lists(kinds, 1, device)
        kernels.multi_tensor_lion(0, _NO_FLAG, found, *constants)
        lr, *betas, _, decay = constants
        reference.step_lists(reference.lion, wanted, lr=lr, betas=betas, weight_decay=decay, at_zero=-1.0)
        _compare("Lion", kinds, found, wanted)


_Kinds = tuple[torch.dtype, torch.dtype, torch.dtype]
_Lists = list[list[torch.Tensor]]


def _lists(kinds: _Kinds, states: int, device: torch.device) -> tuple[_Lists, _Lists]:
    columns = kinds[0], kinds[1], *[kinds[2]] * states
    # More elements than an unrolled kernel takes at once; the sixth has no gradient and no state.
    # The conversion is for `deepspeed.zero.Init`, which replaces torch.arange and ignores its dtype.
    start = [torch.arange(2, 13).remainder(7).div(8 + place).to(kind) for place, kind in enumerate(columns)]
    return [[tensor.to(device)] for tensor in start], [[tensor.cpu().double()] for tensor in start]


def _compare(optimizer: str, kinds: _Kinds, found: _Lists, wanted: _Lists) -> None:
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        if not _near(ours[0].cpu(), theirs[0]):
            where = f"{TYPES[kinds]} on {ours[0].device}"
            raise KernelsUnusable(f"a trial step of {optimizer} in {where} is not what plain torch computes")


def _near(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    error = (ours.double() - wanted).abs() / wanted.abs().clamp(min=1)
    return bool((error <= 2 * torch.finfo(ours.dtype).eps).all())
