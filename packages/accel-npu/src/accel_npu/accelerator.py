# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ascend NPU: differences from other torch devices."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from typing import Any

import torch
import torch_npu
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_npu import visible
from accel_npu.op_builder import TABLE
from accel_npu.traits import TRAITS

_log = logging.getLogger("accel_npu")
#: ACL_HOST_REG_MAPPED. A range that is only pinned (1) is copied no faster than locked pages (DeepSpeed#8531).
_MAPPED = 2
#: The registration takes whole pages of this size.
_PAGE = 4096
_EXPORTED = ["ASCEND", "HCCL", "TORCH_HCCL", "PYTORCH_NPU", "TASK_QUEUE", "LD_LIBRARY", "PATH"]


class NPU_Accelerator(TorchDeviceAccelerator):
    """Huawei Ascend, with torch.npu and hccl."""

    def __init__(self) -> None:
        super().__init__(
            "npu",
            collectives="hccl",
            ops=TABLE,
            traits=TRAITS,
            device_module=torch_npu.npu,
            visible=visible.VISIBLE,
        )

    @override
    def tensor_constructor(self, dtype: torch.dtype) -> Any:
        # Some releases of torch_npu bind them from C++ after its import.
        return getattr(torch_npu.npu, _constructor_name(dtype))

    @override
    def current_stream(self, device_index: int | None = None) -> Any:
        return self._on_device(torch_npu.npu.current_stream, device_index)

    @override
    def default_stream(self, device_index: int | None = None) -> Any:
        return self._on_device(torch_npu.npu.default_stream, device_index)

    @staticmethod
    def _on_device(stream: Callable[[int | None], Any], device_index: int | None) -> Any:
        try:
            return stream(device_index)
        except RuntimeError:  # also of a device that this process has not used yet
            with torch_npu.npu.device(device_index):
                return stream(device_index)

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked memory with CANN; returns False, with one warning, if that is impossible or refused."""
        functions = _registration()
        if functions is None:
            _warn_once("this torch_npu has no torch.npu.npurt, or it fails")
            return False
        code = int(functions[0](address, num_bytes, _MAPPED))
        if code:
            _warn_once(f"npuHostRegister returned {code}")
        return not code

    @override
    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`; raises RuntimeError if CANN refuses, so that the memory is not freed."""
        functions = _registration()
        code = int(functions[1](address)) if functions else 0
        if code:
            raise RuntimeError(f"npuHostUnregister returned {code} for the memory at {address:#x}")

    @override
    def pin_memory_alignment(self) -> int:
        return _PAGE

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return [visible.VARIABLE]

    @override
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        current_env[visible.VARIABLE] = visible.joined(local_accelerator_ids)


def _registration() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return the functions that register and unregister host memory; None without them."""
    try:
        runtime = torch_npu.npu.npurt()
        return runtime.npuHostRegister, runtime.npuHostUnregister
    except (AttributeError, RuntimeError):  # an older torch_npu, or a runtime that cannot be initialized
        return None


@cache
def _warn_once(reason: str) -> None:
    _log.warning(
        "host memory is not registered with the NPU: %s. Copies from it are right, but slower.", reason
    )


@cache
def _constructor_name(dtype: torch.dtype) -> str:
    return torch.empty(0, dtype=dtype, device="cpu").type().rpartition(".")[2]
