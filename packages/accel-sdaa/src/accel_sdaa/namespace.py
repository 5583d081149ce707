# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.sdaa, with fallbacks for functions that a release of it may lack.

torch_sdaa is closed source. Seven of the functions that an accelerator needs are used in little public code besides
DeepSpeed's. If the installed release has them, they are called unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from accel_core.device import DeviceModule
from accel_core.errors import FunctionNotImplemented


class _Completed:
    """A device module, with fallbacks for functions that it lacks."""

    def __init__(self, module: DeviceModule, standins: dict[str, Any]) -> None:
        self._module = module
        self.__dict__.update(standins)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError as error:
            raise FunctionNotImplemented(
                what=f"the accelerator needs torch.sdaa.{name}",
                found="a torch_sdaa without it, and no public function to use instead",
                expected="the name, as DeepSpeed's own backend for SDAA calls it",
                do="install another torch_sdaa 3 release, or ask Tecorigin for it",
            ) from error


def completed(module: DeviceModule) -> DeviceModule:
    """Return the module itself if it is complete; else an object with its names and the fallbacks."""
    standins = {name: partial(make, module) for name, make in _STANDINS.items() if not hasattr(module, name)}
    complete = not standins and all(hasattr(module, name) for name in _NO_STANDIN)
    # Its names are known only at run time.
    return module if complete else cast(DeviceModule, _Completed(module, standins))


def _current_device(module: Any) -> int:
    return int(torch.empty(0, device="sdaa").device.index)


def _index(module: Any, device: Any) -> int:
    index = device if isinstance(device, int) else torch.device(device).index
    return int(completed(module).current_device()) if index is None else index


def _get_rng_state(module: Any, device: Any = "sdaa") -> Any:
    return module.get_rng_state_all()[_index(module, device)]


def _set_rng_state(module: Any, new_state: torch.Tensor, device: Any = "sdaa") -> None:
    states = list(module.get_rng_state_all())
    states[_index(module, device)] = new_state
    module.set_rng_state_all(states)


def _memory_reserved(module: Any, device: Any = None) -> int:
    return int(module.memory_stats(device)["reserved_bytes.all.current"])


def _lazy_call(module: Any, callback: Callable[[], Any], **_options: Any) -> None:
    callback()


_STANDINS: dict[str, Callable[..., Any]] = {
    "_lazy_call": _lazy_call,
    "current_device": _current_device,
    "get_rng_state": _get_rng_state,
    "memory_reserved": _memory_reserved,
    "set_rng_state": _set_rng_state,
}
#: No public function returns the generator of a device or its seed.
_NO_STANDIN = ("default_generators", "initial_seed")
