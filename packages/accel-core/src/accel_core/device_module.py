# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of `torch.<type>` that accelerators call, and torch's counterparts for missing ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Protocol, cast

import torch

from accel_core.errors import FunctionNotImplemented, InvalidDevice


class DeviceModule(Protocol):
    """Interface of `torch.<type>` (torch.cuda, torch.xpu, torch.npu, …). A device index of None is the current device.

    Missing streams, events, `synchronize` and memory functions are those of `torch.accelerator`, `torch.Stream` and
    `torch.Event`. torch must have them (all since 2.10), and the device must be torch's accelerator. They raise
    InvalidDevice for an index without a device. A missing `is_bf16_supported` is derived from
    `get_amp_supported_dtype`, which torch.autocast calls.

    Any other missing function raises FunctionNotImplemented when it is called. Override the method of the accelerator
    that calls it; do the same if a signature differs. Graphs (`graph`, and `<TYPE>Graph`) and `_lazy_call` are
    optional: without `_lazy_call`, `lazy_call` calls at once.
    """

    @property
    def Stream(self) -> Callable[..., Any]: ...
    @property
    def Event(self) -> Callable[..., Any]: ...
    @property
    def default_generators(self) -> Sequence[torch.Generator]: ...

    def is_available(self) -> bool: ...
    def device_count(self) -> int: ...
    def current_device(self) -> int: ...
    def set_device(self, device: int, /) -> object: ...
    def synchronize(self, device: int | None = ..., /) -> object: ...
    def get_device_properties(self, device: int, /) -> Any: ...

    def get_rng_state(self, device: int = ..., /) -> torch.Tensor: ...
    def set_rng_state(self, new_state: torch.Tensor, device: int = ..., /) -> object: ...
    def manual_seed(self, seed: int, /) -> object: ...
    def manual_seed_all(self, seed: int, /) -> object: ...
    def initial_seed(self) -> int: ...

    def stream(self, stream: Any, /) -> AbstractContextManager[Any]: ...
    def current_stream(self, device: int | None = ..., /) -> Any: ...
    def default_stream(self, device: int | None = ..., /) -> Any: ...

    def empty_cache(self) -> object: ...
    def memory_allocated(self, device: int | None = ..., /) -> int: ...
    def max_memory_allocated(self, device: int | None = ..., /) -> int: ...
    def memory_reserved(self, device: int | None = ..., /) -> int: ...
    def max_memory_reserved(self, device: int | None = ..., /) -> int: ...
    def memory_stats(self, device: int | None = ..., /) -> dict[str, Any]: ...
    def reset_peak_memory_stats(self, device: int | None = ..., /) -> object: ...
    def mem_get_info(self, device: int | None = ..., /) -> tuple[int, int]: ...

    def is_bf16_supported(self) -> bool: ...


_NAMES = tuple(name for name in vars(DeviceModule) if not name.startswith("_"))
_LAZY_CALL = "_lazy_call"
#: Functions of torch.accelerator with a device index, by the module's name for them.
_WITH_INDEX = {
    "set_device": "set_device_index",
    "mem_get_info": "get_memory_info",
    **{
        name: name
        for name in (
            "synchronize", "current_stream", "get_rng_state", "memory_allocated", "max_memory_allocated",
            "memory_reserved", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
        )
    },
}  # fmt: skip
_WITHOUT_INDEX = {
    "current_device": "current_device_index",
    "empty_cache": "empty_cache",
    "initial_seed": "initial_seed",
}
#: Methods of the accelerator that call a function of another name.
_CALLERS = {"default_generators": "default_generator", "mem_get_info": "total_memory and available_memory"}


def is_torchs_accelerator(device_type: str) -> bool:
    """Return whether `torch.accelerator` serves devices of this type."""
    current = torch.accelerator.current_accelerator()
    return current is not None and current.type == device_type


def completed(module: Any, device_type: str, fallbacks: Mapping[str, Any] | None = None) -> DeviceModule:
    """Return the module itself if it is complete, else a module that adds the missing functions.

    Functions are looked up once, so that a call costs what it costs in torch.

    fallbacks: the vendor's own functions for names that may be missing; they precede torch's.
    """
    if all(hasattr(module, name) for name in (*_NAMES, _LAZY_CALL)):
        return cast(DeviceModule, module)
    others = {_LAZY_CALL: _call, **_counterparts(module, device_type), **(fallbacks or {})}
    if (amp_dtypes := getattr(module, "get_amp_supported_dtype", None)) is not None:
        others.setdefault("is_bf16_supported", lambda: torch.bfloat16 in amp_dtypes())
    whole = ModuleType(getattr(module, "__name__", f"torch.{device_type}"), "A device module with fallbacks.")
    names = vars(whole)
    for name in (*_NAMES, _LAZY_CALL):
        # Data, such as the generators, may be replaced when the runtime is initialized: __getattr__ reads them.
        if callable(found := getattr(module, name, others.get(name))):
            names[name] = found

    def __getattr__(name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError:
            if name not in _NAMES:
                raise
            raise _lacks(name, device_type) from None

    names["__getattr__"] = __getattr__
    return cast(DeviceModule, whole)


def _lacks(name: str, device_type: str) -> FunctionNotImplemented:
    function = f"torch.{device_type}.{name}"
    return FunctionNotImplemented(
        f"the accelerator needs {function}: no such name in torch.{device_type}, and no counterpart "
        f"in torch {torch.__version__}",
        do=f"override {_CALLERS.get(name, name)} in the accelerator's class, or add {function} to the runtime",
    )


def _unless_unknown(sizes: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    def mem_get_info(device: Any = None, /) -> Any:
        try:
            return sizes(device)
        except NotImplementedError as error:  # the allocator does not know them
            raise _lacks("mem_get_info", device_type) from error

    return mem_get_info


def _call(callback: Callable[[], Any]) -> Any:
    return callback()


def _counterparts(module: Any, device_type: str) -> dict[str, Any]:
    """Return torch's functions for the current accelerator, by the names of device modules."""
    if not is_torchs_accelerator(device_type):
        return {}
    own: Any = torch.accelerator
    found = {name: getattr(own, other) for name, other in _WITHOUT_INDEX.items() if hasattr(own, other)}
    count = module.device_count

    def checked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(device: Any = None, /) -> Any:
            if device is None:
                return function()
            index = device if isinstance(device, int) else torch.device(device).index
            if index is not None and not 0 <= index < count():
                raise InvalidDevice(
                    f"there is no such device of type {device_type} in this process: index {index}; expected an "
                    f"index below {count()}, or None",
                    do="pass the index of a device that device_count() counts",
                )
            return function(device)

        return call

    for name, other in _WITH_INDEX.items():
        if hasattr(own, other):
            found[name] = checked(getattr(own, other))

    def stream(stream: Any, /) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else cast(AbstractContextManager[Any], stream)

    if "mem_get_info" in found:
        found["mem_get_info"] = _unless_unknown(found["mem_get_info"], device_type)
    return {**found, "Stream": torch.Stream, "Event": torch.Event, "stream": stream}
