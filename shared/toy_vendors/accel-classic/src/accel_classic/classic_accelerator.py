# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An accelerator that derives from DeepSpeed's own class and has only what that class asks for."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from typing import Any

import torch
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator


def _yes(self: Any) -> bool:
    return True


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    return None


def _no_bytes(self: Any, device_index: int | None = None) -> int:
    return 0


def _same(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


class Classic_Accelerator(DeepSpeedAccelerator):
    """One device in host memory."""

    def __init__(self) -> None:
        self._name = "classic"
        self._communication_backend_name = "gloo"
        self._compile_backend = "inductor"
        self.class_dict: dict[str, Any] | None = None

    is_synchronized_device = use_host_timers = _yes
    resolves_data_dependency = handles_memory_backpressure = _yes
    is_available = is_bf16_supported = is_fp16_supported = _yes

    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"

    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("cpu")

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    set_device = synchronize = empty_cache = _nothing

    def random(self) -> Any:
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        torch.set_rng_state(new_state)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return torch.get_rng_state()

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.default_generator

    Stream = Event = property(_nothing)
    current_stream = default_stream = _nothing

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext()

    memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _no_bytes
    memory_cached = max_memory_cached = total_memory = available_memory = _no_bytes
    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats = _nothing

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        return {}

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.half, torch.bfloat16]

    range_push = range_pop = _nothing

    def lazy_call(self, callback: Any) -> Any:
        return callback()

    def communication_backend_name(self) -> str:
        return self._communication_backend_name

    def is_triton_supported(self) -> bool:
        return False

    create_graph = replay_graph = _nothing

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Any:
        return contextlib.nullcontext()

    BFloat16Tensor = property(lambda self: torch.BFloat16Tensor)
    ByteTensor = property(lambda self: torch.ByteTensor)
    DoubleTensor = property(lambda self: torch.DoubleTensor)
    FloatTensor = property(lambda self: torch.FloatTensor)
    HalfTensor = property(lambda self: torch.HalfTensor)
    IntTensor = property(lambda self: torch.IntTensor)
    LongTensor = property(lambda self: torch.LongTensor)

    # 0.18 asks for these two, 0.19 for the next three.
    pin_memory = _same
    is_pinned = _yes
    _torch_pin_memory = _same
    _torch_is_pinned = _yes

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return tensor.new_empty(shape)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu"

    def op_builder_dir(self) -> str:
        return "accel_classic.op_builder"

    def _builders(self) -> dict[str, Any]:
        if self.class_dict is None:
            self.class_dict = {}
            package = importlib.import_module(self.op_builder_dir())
            for _, name, _ in pkgutil.iter_modules(package.__path__):
                module = importlib.import_module(f"{self.op_builder_dir()}.{name}")
                kinds = inspect.getmembers(module, inspect.isclass)
                self.class_dict.update(kind for kind in kinds if not inspect.isabstract(kind[1]))
        return self.class_dict

    def create_op_builder(self, class_name: str) -> Any:
        kind = self.get_op_builder(class_name)
        return None if kind is None else kind()

    def get_op_builder(self, class_name: str) -> Any:
        return self._builders().get(class_name)

    def build_extension(self) -> Any:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def export_envs(self) -> list[str]:
        return []

    def visible_devices_envs(self) -> list[str]:
        return ["CLASSIC_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env: dict[str, str], local_accelerator_ids: list[int]) -> None:
        current_env["CLASSIC_VISIBLE_DEVICES"] = ",".join(map(str, local_accelerator_ids))

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        self._compile_backend = backend
