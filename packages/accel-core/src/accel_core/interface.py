# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator interface.

Names and signatures are those of DeepSpeed 0.18 and 0.19, so that code written for
`deepspeed.accelerator.get_accelerator()` runs unchanged. Where upstream's backends differ from each other,
the docstring of the method defines the behaviour. Sizes of memory are in bytes; a device index of None is the
current device.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

__all__ = ["DeepSpeedAccelerator", "PinnedMemoryInterface"]

_HOST = "cpu"  # torch's name for host memory, not the vendor of that name


class PinnedAllocator(Protocol):
    """An alternative allocator of page-locked memory that takes precedence; DeepSpeed 0.19 has one."""

    def active(self) -> Any:
        """Return an object with pin, pin_empty, is_pinned and unpin, or None to use torch's allocator."""
        ...

    def track(self, nbytes: int) -> None:
        """Add locked bytes to the accounting."""
        ...


class PinnedMemoryInterface(ABC):
    """Page-locked host memory, from which copies to the device can run asynchronously.

    It is torch's, unless `host_pins` has another allocator. The signatures accept both DeepSpeed 0.18, which passes
    `align_bytes`, and 0.19, which passes `make_copy` and `match_shape`. The three `torch_*` methods lock memory for
    this device, and vendors override them; the other methods call these.
    """

    #: Set by the bridge; active if DS_PIN_MEMORY_BACKEND chooses DeepSpeed's native allocator.
    host_pins: ClassVar[PinnedAllocator | None] = None
    #: True if torch's `pin_memory` locks pages on this device.
    torch_pins_host_memory: bool = True

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a CPU tensor in memory that torch has page-locked for this device."""
        return tensor.pin_memory()

    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        """Return an uninitialized page-locked CPU tensor of this shape, of the dtype of `tensor`."""
        return tensor.new_empty(shape, pin_memory=True)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return whether torch has page-locked the tensor's memory for this device."""
        return tensor.is_pinned()

    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        """Return a page-locked tensor like this CPU tensor.

        make_copy:   copy the data too; else only shape and dtype are taken.
        match_shape: keep the shape; else a flat buffer of as many elements (only without make_copy).
        align_bytes: 1 for torch's alignment, 0 for whole pages (DeepSpeed 0.18). In that release it is
                     the second positional argument, so an int there that is not a bool means align_bytes.
        """
        if type(make_copy) is int:
            make_copy, align_bytes = True, make_copy
        if align_bytes == 0:
            return self.pin_aligned(tensor)
        pins = self._native_pins()
        if pins is not None:
            self._track(tensor.nbytes)
            pinned: torch.Tensor = pins.pin(tensor, make_copy=make_copy, match_shape=match_shape)
            return pinned
        if make_copy:
            if self.torch_pins_host_memory:
                self._track(tensor.nbytes)
            return self.torch_pin_memory(tensor)
        return self._pin_fresh(tensor, tuple(tensor.shape) if match_shape else (tensor.numel(),))

    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a page-locked, page-aligned copy of a CPU tensor (`align_bytes=0`).

        Where the device locks no memory, the copy is neither locked nor aligned.
        """
        pinned = self.torch_pin_memory(tensor)
        if pinned.data_ptr() % mmap.PAGESIZE == 0 or not self.torch_is_pinned(pinned):
            return pinned
        # torch's allocators cut small pieces out of a page.
        import torch

        buffer = self.torch_pin_memory(torch.empty(tensor.nbytes + mmap.PAGESIZE, dtype=torch.uint8))
        first = -buffer.data_ptr() % mmap.PAGESIZE
        return (
            buffer[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
        )

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = _HOST) -> torch.Tensor:
        """Return a new, uninitialized page-locked CPU tensor; raises ValueError for another device."""
        import torch

        _refuse_other_device(device)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        return self._pin_fresh(torch.empty(0, dtype=dtype), shape)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = _HOST, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return a new, uninitialized page-locked CPU tensor of this shape; raises ValueError for another device."""
        _refuse_other_device(device)
        template = tensor.new_empty((0,), dtype=dtype or tensor.dtype, device=device)
        return self._pin_fresh(template, tuple(tensor.shape))

    def _pin_fresh(self, template: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        pins = self._native_pins()
        if pins is not None or self.torch_pins_host_memory:
            numel = 1
            for length in shape:
                numel *= int(length)
            self._track(numel * template.element_size())
        fresh: torch.Tensor = (
            self.torch_empty_pinned(template, shape) if pins is None else pins.pin_empty(template, shape)
        )
        return fresh

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's memory is page-locked."""
        pins = self._native_pins()
        return bool(pins is not None and pins.is_pinned(tensor)) or self.torch_is_pinned(tensor)

    def unpin_memory(self, tensor: torch.Tensor) -> Any:
        """Free memory of the alternative allocator at once; torch frees its own with the last reference."""
        pins = self._native_pins()
        return None if pins is None else pins.unpin(tensor)

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked host memory with the device runtime; returns False if that is not needed."""
        return False

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`."""

    def pin_memory_alignment(self) -> int:
        """Return the alignment in bytes that `register_host_memory` needs; 1 means none."""
        return 1

    def _native_pins(self) -> Any:
        return None if self.host_pins is None else self.host_pins.active()

    def _track(self, nbytes: int) -> None:
        if self.host_pins is not None:
            self.host_pins.track(nbytes)


def _refuse_other_device(device: Any) -> None:
    import torch

    try:
        device_type = torch.device(device).type
    except RuntimeError as error:
        raise ValueError(f"pinned memory is host memory: device must be cpu, got {device!r}") from error
    if device_type != _HOST:
        raise ValueError(f"pinned memory is host memory: device must be cpu, got {device!r}")


def _constructor(dtype: str) -> property:
    """Return an abstract property."""
    return property(
        abstractmethod(lambda accelerator: None), doc=f"Constructor of {dtype} tensors on the device."
    )


class DeepSpeedAccelerator(PinnedMemoryInterface):
    """Interface of one device type, for DeepSpeed and accelerator-agnostic models.

    Derive from `accel_core.TorchDeviceAccelerator`, which implements it for any device type with a module
    `torch.<type>`, and override what differs::

        class NPU_Accelerator(TorchDeviceAccelerator):
            def __init__(self) -> None:
                import torch_npu  # registers torch.npu
                super().__init__("npu", collectives="hccl", ops=TABLE, traits=TRAITS)

            def visible_devices_envs(self) -> list[str]:
                return ["ASCEND_RT_VISIBLE_DEVICES"]
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._communication_backend_name: str | None = None
        self._compile_backend: str | None = None

    # --- device: Names, indices and number of devices, and synchronization with them.
    #: True if range_push takes an NVTX domain and category.
    supports_nvtx_domain: bool = False

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether at least one device can be used. Opens no device context."""

    @abstractmethod
    def device_count(self) -> int:
        """Return the number of devices that this process may use."""

    @abstractmethod
    def current_device(self) -> int:
        """Return the index of the current device."""

    @abstractmethod
    def set_device(self, device_index: int) -> None:
        """Set the current device of this thread; raises RuntimeError if the index is out of range."""

    @abstractmethod
    def synchronize(self, device_index: int | None = None) -> None:
        """Wait for all work queued on the device (default: the current one)."""

    @abstractmethod
    def device(self, device_index: int | None = None) -> torch.device:
        """Return the torch.device with this index; without one, the device type alone, as in `.to(device())`."""

    @abstractmethod
    def device_name(self, device_index: int | None = None) -> str:
        """Return the device as a string for torch: `"npu"`, or `"npu:1"` with an index."""

    @abstractmethod
    def current_device_name(self) -> str:
        """Return the name of the current device, with its index if it has one: `"npu:0"`."""

    @abstractmethod
    def is_synchronized_device(self) -> bool:
        """Return whether every operation is complete when its call returns, as on a CPU."""

    def use_host_timers(self) -> bool:
        """Return whether device work has to be timed with the host's clock, because events cannot."""
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        """Return whether the runtime orders operations on the same data; DeepSpeed then synchronizes less."""
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        """Return whether the runtime waits when memory is short; DeepSpeed then does not limit queued work."""
        return self.is_synchronized_device()

    @abstractmethod
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        """Open a named profiler range; does nothing without a profiler."""

    @abstractmethod
    def range_pop(self, domain: str | None = None) -> None:
        """Close the innermost profiler range."""

    # --- random: The random number generators of the devices.
    @abstractmethod
    def random(self) -> ModuleType:
        """Return the module with `fork_rng`: torch.random."""

    @abstractmethod
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Set the state of the device's generator: a uint8 tensor on the CPU, as returned by `get_rng_state`."""

    @abstractmethod
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """Return the state of the device's generator (default: the current device), a uint8 tensor on the CPU."""

    @abstractmethod
    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator."""

    @abstractmethod
    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices."""

    @abstractmethod
    def initial_seed(self) -> int:
        """Return the initial seed of the current device's generator."""

    @abstractmethod
    def default_generator(self, device_index: int) -> torch.Generator:
        """Return the default generator of a device."""

    # --- stream: Streams, in which device work is queued, and events recorded in them, of the runtime's own types.
    @property
    @abstractmethod
    def Stream(self) -> Any:
        """The runtime's stream class; None on a synchronized device."""

    @property
    @abstractmethod
    def Event(self) -> Any:
        """The runtime's event class, with `record`, `wait`, `query`, `synchronize`, `elapsed_time` (ms)."""

    @abstractmethod
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context manager that makes this stream the current one; None leaves the current stream."""

    @abstractmethod
    def current_stream(self, device_index: int | None = None) -> Any:
        """Return the current stream of a device."""

    @abstractmethod
    def default_stream(self, device_index: int | None = None) -> Any:
        """Return the default stream of a device."""

    @abstractmethod
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Call `callback` when the runtime is initialized: now if it is, else right after its initialization."""

    # --- memory: Total, used and peak device memory.
    @abstractmethod
    def empty_cache(self) -> None:
        """Release unused blocks of the caching allocator."""

    @abstractmethod
    def memory_allocated(self, device_index: int | None = None) -> int:
        """Return the bytes held by tensors."""

    @abstractmethod
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Return the peak of `memory_allocated` since the start or the last reset, in bytes."""

    @abstractmethod
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        """Return statistics under torch's keys: `allocated_bytes.all.current`, `allocated_bytes.all.peak`, …"""

    @abstractmethod
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Reset all peaks."""

    @abstractmethod
    def memory_reserved(self, device_index: int | None = None) -> int:
        """Return the bytes that the caching allocator holds, used or not."""

    @abstractmethod
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Return the peak of `memory_reserved` since the start or the last reset, in bytes."""

    @abstractmethod
    def total_memory(self, device_index: int | None = None) -> int:
        """Return the total memory of the device, in bytes."""

    @abstractmethod
    def available_memory(self, device_index: int | None = None) -> int:
        """Return the bytes that this process can still allocate: free memory, and what its allocator holds unused."""

    # Deprecated names. torch.xpu does not have torch's own aliases.

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        """Deprecated name of `reset_peak_memory_stats`."""
        self.reset_peak_memory_stats(device_index)

    def memory_cached(self, device_index: int | None = None) -> int:
        """Deprecated name of `memory_reserved`."""
        return self.memory_reserved(device_index)

    def max_memory_cached(self, device_index: int | None = None) -> int:
        """Deprecated name of `max_memory_reserved`."""
        return self.max_memory_reserved(device_index)

    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        """Deprecated name of `reset_peak_memory_stats`."""
        self.reset_peak_memory_stats(device_index)

    # --- dtype: The floating point types that can be used for training.
    @abstractmethod
    def is_bf16_supported(self) -> bool:
        """Return whether models can be trained in bfloat16."""

    @abstractmethod
    def is_fp16_supported(self) -> bool:
        """Return whether models can be trained in float16."""

    def is_fp64_supported(self) -> bool:
        """Return whether float64 is supported, as it is on nearly every device."""
        return True

    @abstractmethod
    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the floating point types that DeepSpeed may train in, float32 first."""

    @abstractmethod
    def is_triton_supported(self) -> bool:
        """Return whether Triton kernels run. Does not import Triton."""

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton grouped GEMM is faster than torch._grouped_mm here."""
        return False

    # --- graph: By default there is none: `create_graph` returns None, and a capture runs the code inside.
    def create_graph(self) -> Any:
        """Return a new empty graph, None if the device has no graphs."""
        return None

    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        """Return a context manager that captures its work into the graph. If `graph` is None, the work only runs."""
        return nullcontext()

    def replay_graph(self, graph: Any) -> None:
        """Replay a captured graph. Do nothing if `graph` is None."""

    def is_current_stream_capturing(self) -> bool:
        """Return whether the current stream is capturing."""
        return False

    # --- tensor: Typed constructors: `FloatTensor([1.0, 2.0])` returns a tensor on the device.
    BFloat16Tensor = _constructor("bfloat16")
    ByteTensor = _constructor("uint8")
    DoubleTensor = _constructor("float64")
    FloatTensor = _constructor("float32")
    HalfTensor = _constructor("float16")
    IntTensor = _constructor("int32")
    LongTensor = _constructor("int64")

    @abstractmethod
    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on a device of this type."""

    # --- op: Op builders, by upstream's class names, such as `FusedAdamBuilder`.
    @abstractmethod
    def op_builder_dir(self) -> str:
        """Return the package that defines the builders; DeepSpeed imports every module in it."""

    @abstractmethod
    def create_op_builder(self, class_name: str) -> Any:
        """Return a new builder; a NotImplementedBuilder, whose `load` raises the reason, if the device lacks the op."""

    @abstractmethod
    def get_op_builder(self, class_name: str) -> Any:
        """Return the class of a builder; `create_op_builder` calls it without arguments."""

    @abstractmethod
    def build_extension(self) -> Any:
        """Return the setuptools command class that builds extensions for this device."""

    # --- launch: Settings for a launcher that starts ranks on this device.
    @abstractmethod
    def communication_backend_name(self) -> str:
        """Return the backend for torch.distributed.init_process_group: `hccl`, `gloo`, …"""

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of the collective library, None if it is unknown."""
        return None

    def export_envs(self) -> list[str]:
        """Return prefixes of the environment variables to export to other nodes."""
        return []

    @abstractmethod
    def visible_devices_envs(self) -> list[str]:
        """Return the variables that restrict a process to some devices; none with the trait `visible_devices`."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Set the visible devices of a rank in the environment with which it will start."""
        for variable in self.visible_devices_envs():
            current_env[variable] = ",".join(map(str, local_accelerator_ids))

    @abstractmethod
    def get_compile_backend(self) -> str:
        """Return the name of the torch.compile backend."""

    @abstractmethod
    def set_compile_backend(self, backend: str) -> None:
        """Set the torch.compile backend; raises UnsupportedBackend (ValueError) if it is not registered."""
