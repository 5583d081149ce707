# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base classes of accelerators, for any device type with a module `torch.<type>`.

The device modules (torch.cuda, torch.xpu, torch.npu, torch.mlu, …) have the same functions. A vendor's class
overrides only the methods for which its module differs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any, cast

import torch
from typing_extensions import override

from accel_core.device_module import DeviceModule, completed, is_torchs_accelerator
from accel_core.errors import InvalidDevice, InvalidVendor, UnsupportedBackend
from accel_core.interface import DeepSpeedAccelerator, PinnedMemoryInterface
from accel_core.op_builder import OpTable
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from accel_core.vendor import Feature, Trait, VisibleDevices

__all__ = ["DeviceModule", "NoPinnedMemory", "NoStreams", "OneDeviceAccelerator", "TorchDeviceAccelerator"]


def checked_traits(device: str, traits: Mapping[str, Trait], builders: Collection[str]) -> dict[str, Trait]:
    """Return the traits with str keys.

    Raises InvalidVendor for a key that is neither a feature nor an op builder, and for a value that isn't a Trait.

    device:   device type, for the message.
    builders: builder names of the vendor's own op table, besides DeepSpeed's.
    """
    known = {feature.value for feature in Feature} | {*UPSTREAM, *ONE_DEVICE, *builders}
    by_key = {str.__str__(key): trait for key, trait in traits.items()}
    if unknown := sorted(by_key.keys() - known):
        near = sorted({match for key in unknown for match in difflib.get_close_matches(key, known, 3, 0.5)})
        hint = f"; the nearest: {', '.join(near)}" if near else ""
        raise InvalidVendor(
            f"the traits of {device} have keys that are neither an accel_core.vendor.Feature nor an op builder: "
            f"{', '.join(map(repr, unknown))}{hint}",
            do="correct the key in the vendor package's traits.py",
        )
    if wrong := sorted(
        f"{key}: {type(trait).__name__}" for key, trait in by_key.items() if not isinstance(trait, Trait)
    ):
        raise InvalidVendor(
            f"the traits of {device} have values of another type: {', '.join(wrong)}; expected "
            "accel_core.vendor.Trait for each key",
            do="use Trait.unsupported(reason) or Trait.not_implemented(reason)",
        )
    return by_key


class _IsOfType(dict[torch.device, bool]):
    """Cache of `device.type == name`, because `device.type` creates a string at every access."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, device: torch.device) -> bool:
        self[device] = device.type == self.name
        return self[device]


def _typed(dtype: torch.dtype) -> property:
    """Return a property with the constructor of tensors of this type on the device."""
    return property(lambda accelerator: accelerator.tensor_constructor(dtype))


def _add_torch_names(module: Any, accelerator: TorchDeviceAccelerator) -> None:
    """Add names to a `torch.<type>` that torch's own Python code reads without a check.

    Without `_initialized`, torch.utils.checkpoint does not restore the device's random state, and dropout draws another
    mask in the recomputation. DeviceMesh calls `is_initialized()`.
    """
    if not hasattr(module, "get_rng_state"):
        return  # torch.cpu: its random state is always restored
    current = partial(device_index, accelerator)
    for name, value in {"_initialized": True, "is_initialized": lambda: True, "device": current}.items():
        if not hasattr(module, name):
            setattr(module, name, value)


@contextmanager
def device_index(accelerator: DeepSpeedAccelerator, index: int) -> Iterator[None]:
    """Make a device the current one of this thread inside a `with` block; the previous one is restored after it."""
    former = accelerator.current_device()
    accelerator.set_device(index)
    try:
        yield
    finally:
        accelerator.set_device(former)


class TorchDeviceAccelerator(DeepSpeedAccelerator):
    """An accelerator that is implemented with a torch device module.

    name:        the torch device type (`npu`).
    collectives: backend name for torch.distributed (`hccl`).
    ops:         the vendor's op table.
    traits:      what the device cannot do, by Feature or class name of a builder; other keys raise InvalidVendor.
    device_module: default `torch.<name>`, as registered by the vendor's runtime.
    fallbacks:   functions for names that the device module may lack, ahead of torch's own (see DeviceModule).
    compile_backend: default backend of torch.compile.
    visible:     how the runtime reads its visible-devices variable; default: as a list of numbers.
    """

    def __init__(
        self,
        name: str,
        *,
        collectives: str,
        ops: OpTable,
        traits: Mapping[str, Trait] | None = None,
        device_module: DeviceModule | None = None,
        fallbacks: Mapping[str, Any] | None = None,
        compile_backend: str = "inductor",
        visible: VisibleDevices | None = None,
    ) -> None:
        super().__init__()
        self._name: str = name
        self._communication_backend_name: str = collectives
        self._compile_backend: str = compile_backend
        #: The ops of the device.
        self.op_table = ops
        self.traits: Mapping[str, Trait] = checked_traits(name, traits or {}, ops)
        module = getattr(torch, name) if device_module is None else device_module
        self.device_module: DeviceModule = completed(module, name, fallbacks)
        self._is_own = _IsOfType(name)
        self.visible = visible
        _add_torch_names(getattr(torch, name, None), self)

    def is_available(self) -> bool:
        return bool(self.device_module.is_available())

    def device_count(self) -> int:
        return int(self.device_module.device_count())

    def current_device(self) -> int:
        return self.device_module.current_device()

    def set_device(self, device_index: int) -> None:
        self.device_module.set_device(device_index)

    def synchronize(self, device_index: int | None = None) -> None:
        self.device_module.synchronize(device_index)

    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device(self._name) if device_index is None else torch.device(self._name, device_index)

    def device_name(self, device_index: int | None = None) -> str:
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def current_device_name(self) -> str:
        return f"{self._name}:{self.current_device()}"

    def is_synchronized_device(self) -> bool:
        return False

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        pass

    def range_pop(self, domain: str | None = None) -> None:
        pass

    def random(self) -> ModuleType:
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        if device_index is None:
            self.device_module.set_rng_state(new_state)
        else:
            self.device_module.set_rng_state(new_state, device_index)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        state: torch.Tensor = (
            self.device_module.get_rng_state()
            if device_index is None
            else self.device_module.get_rng_state(device_index)
        )
        return state

    def manual_seed(self, seed: int) -> None:
        self.device_module.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        self.device_module.manual_seed_all(seed)

    def initial_seed(self) -> int:
        return int(self.device_module.initial_seed())

    def default_generator(self, device_index: int) -> torch.Generator:
        generator: torch.Generator = self.device_module.default_generators[device_index]
        return generator

    @property
    def Stream(self) -> Any:
        return self.device_module.Stream

    @property
    def Event(self) -> Any:
        return self.device_module.Event

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return self.device_module.stream(stream)

    def current_stream(self, device_index: int | None = None) -> Any:
        return self.device_module.current_stream(device_index)

    def default_stream(self, device_index: int | None = None) -> Any:
        return self.device_module.default_stream(device_index)

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return cast(Any, self.device_module)._lazy_call(callback)  # private in every module

    def empty_cache(self) -> None:
        self.device_module.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return self.device_module.memory_allocated(device_index)

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.device_module.max_memory_allocated(device_index)

    def memory_reserved(self, device_index: int | None = None) -> int:
        return self.device_module.memory_reserved(device_index)

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return self.device_module.max_memory_reserved(device_index)

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return self.device_module.memory_stats(device_index)

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self.device_module.reset_peak_memory_stats(device_index)

    def total_memory(self, device_index: int | None = None) -> int:
        if not hasattr(self.device_module, "get_device_properties"):
            return int(self.device_module.mem_get_info(device_index)[1])
        index = self.current_device() if device_index is None else device_index
        return int(self.device_module.get_device_properties(index).total_memory)

    def available_memory(self, device_index: int | None = None) -> int:
        free = int(self.device_module.mem_get_info(device_index)[0])
        return free + self._unused_memory(device_index)

    def _unused_memory(self, *device: int | None) -> int:
        """Return the bytes that the allocator holds and no tensor uses; 0 if it always holds the whole device."""
        if Feature.RESERVED_MEMORY in self.traits:
            return 0
        module = self.device_module
        return max(0, module.memory_reserved(*device) - module.memory_allocated(*device))

    def _pin_arguments(self) -> tuple[str, ...]:
        """Return the device to pass when memory is pinned; none where torch pins for this type by default."""
        return () if is_torchs_accelerator(self._name) else (self._name,)

    def is_bf16_supported(self) -> bool:
        return bool(self.device_module.is_bf16_supported())

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        half = [torch.float16] if self.is_fp16_supported() else []
        return [torch.float32, *half, *([torch.bfloat16] if self.is_bf16_supported() else [])]

    def is_triton_supported(self) -> bool:
        return False

    # ------------------------------------------------------------------------------------- graphs
    # All runtimes use the same naming: CUDAGraph, XPUGraph, NPUGraph, MLUGraph, HPUGraph.

    def create_graph(self) -> Any:
        cls = getattr(self.device_module, f"{str(self._name).upper()}Graph", None)
        return None if cls is None else cls()

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        if graph is None:
            return super().capture_to_graph(graph, pool, stream)
        capture: AbstractContextManager[Any] = cast(Any, self.device_module).graph(
            graph, pool=pool, stream=stream
        )
        return capture

    def replay_graph(self, graph: Any) -> None:
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self) -> bool:
        capturing = getattr(self.device_module, "is_current_stream_capturing", None)
        return bool(capturing and capturing())

    def tensor_constructor(self, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
        """Return the value of `FloatTensor` etc. for a dtype; override it if the runtime has its own types."""
        return partial(torch.tensor, dtype=dtype, device=self._name)

    BFloat16Tensor = _typed(torch.bfloat16)
    ByteTensor = _typed(torch.uint8)
    DoubleTensor = _typed(torch.float64)
    FloatTensor = _typed(torch.float32)
    HalfTensor = _typed(torch.float16)
    IntTensor = _typed(torch.int32)
    LongTensor = _typed(torch.int64)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return self._is_own[tensor.device]

    def op_builder_dir(self) -> str:
        return self.op_table.package

    def get_op_builder(self, class_name: str) -> Any:
        return self.op_table.builder(class_name, self._name, self.traits)

    def create_op_builder(self, class_name: str) -> Any:
        return self.get_op_builder(class_name)()

    def build_extension(self) -> Any:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def communication_backend_name(self) -> str:
        return self._communication_backend_name

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        known = torch._dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise UnsupportedBackend(
                f"the torch.compile backend of {self._name} cannot be set: {backend!r}; expected one of "
                f"{', '.join(sorted(known))}",
                do="choose one of these, or import the package that registers it first",
            )
        self._compile_backend = backend


class NoStreams(DeepSpeedAccelerator):
    """Mixin for devices without streams, before TorchDeviceAccelerator: work runs in the order of the calls.

    Streams are None, and `is_synchronized_device()` is True: DeepSpeed creates no streams and records no events.
    """

    @override
    def is_synchronized_device(self) -> bool:
        return True

    @property
    @override
    def Stream(self) -> None:
        return None

    @override
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext()

    @override
    def current_stream(self, device_index: int | None = None) -> None:
        return None

    @override
    def default_stream(self, device_index: int | None = None) -> None:
        return None


class NoPinnedMemory(PinnedMemoryInterface):
    """Mixin for devices that gain nothing by page-locked host memory, before TorchDeviceAccelerator.

    `pin_memory` returns the tensor itself; without a copy (`make_copy=False`) a new buffer, as on other devices.
    """

    torch_pins_host_memory = False

    @override
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    @override
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return tensor.new_empty(shape)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return False


def _without_index(name: str) -> Any:
    """Return a method that checks its index and calls a function of the runtime, which takes none."""

    def method(self: OneDeviceAccelerator, device_index: int | None = None) -> Any:
        self.checked_index(device_index)
        return getattr(self.device_module, name)()

    method.__name__ = name
    return method


class OneDeviceAccelerator(TorchDeviceAccelerator):
    """Base class for runtimes with one device per process, which the launcher chooses (Gaudi, Apple's GPU).

    `device(i)` and `device_name(i)` ignore the index, because callers pass local ranks; `current_device_name()` has it,
    as the names of tensors' devices have. Every other method accepts
    None and the current index, and raises InvalidDevice (RuntimeError) for others, as the result would be that of
    another device. Vendors declare the trait `indexed_devices`.
    """

    @override
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device(self._name)

    @override
    def device_name(self, device_index: int | None = None) -> str:
        return self._name

    def checked_index(self, device_index: Any) -> int | None:
        """Return None, the index to pass to the runtime; raises InvalidDevice for the index of another device."""
        if device_index is None:
            return None
        index = device_index if isinstance(device_index, int) else torch.device(device_index).index
        if index is not None and index != self.current_device():
            raise InvalidDevice(
                f"there is no such device of type {self._name} in this process: index {index}; expected "
                f"{self.current_device()}, the only one, or None",
                do="leave the index out; the launcher decides which device the process has",
            )
        return None

    synchronize = _without_index("synchronize")
    current_stream = _without_index("current_stream")
    default_stream = _without_index("default_stream")
    memory_allocated = _without_index("memory_allocated")
    max_memory_allocated = _without_index("max_memory_allocated")
    memory_reserved = _without_index("memory_reserved")
    max_memory_reserved = _without_index("max_memory_reserved")
    memory_stats = _without_index("memory_stats")
    reset_peak_memory_stats = _without_index("reset_peak_memory_stats")

    @override
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        self.checked_index(device_index)
        self.device_module.set_rng_state(new_state)

    @override
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        self.checked_index(device_index)
        return self.device_module.get_rng_state()

    @override
    def total_memory(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return int(self.device_module.mem_get_info()[1])

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return int(self.device_module.mem_get_info()[0]) + self._unused_memory()
