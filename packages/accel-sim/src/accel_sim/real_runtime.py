# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendor's own runtime on an emulated driver: `accel sim npu --runtime torch_npu`.

The driver's sources are data of this package, and are compiled into the user's cache: files with the names of a
vendor's libraries must not meet the real ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from accel_core.errors import InvalidInput
from accel_core.simulated import RUNTIME
from accel_sim import settings, shared, stub_packages, vendors

#: The runtime of each device whose driver is emulated, with the folder of the driver's sources.
_DRIVERS = {("npu", "torch_npu"): "cann"}
#: Settings that only simulated devices have.
_MODES = (settings.RACE, settings.DEFER, settings.HARDWARE, settings.FAIL, settings.BEHAVIOUR)


def environment(
    key: str,
    runtime: str,
    *,
    devices: int | None = None,
    memory: str | None = None,
    modes: Iterable[str] = (),
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment in which child processes have the vendor's runtime, without a simulated device.

    devices, memory: as in `accel_sim.environment`. modes: options of simulated devices, which are rejected.
    Raises `InvalidInput`, `BuildFailed`, `CacheUnusable`.
    """
    if (key, runtime) not in _DRIVERS:
        known = ", ".join(f"accel sim {key} --runtime {name}" for key, name in _DRIVERS)
        raise InvalidInput(
            f"no driver is emulated for the runtime {runtime!r} of {key!r}; expected {known}",
            do="leave --runtime out: the device is simulated then",
        )
    result = stub_packages.without_outer(os.environ if base is None else base)
    if given := [*modes, *(mode.name for mode in _MODES if result.get(mode.name, "0") not in ("", "0"))]:
        raise InvalidInput(
            f"{given[0]} is not for the runtime {runtime}: only simulated devices have it", do="leave it out"
        )
    devices_text = str(devices) if devices is not None else result.get(settings.DEVICES.name)
    memory_text = memory or result.get(settings.MEMORY.name)
    result = {name: value for name, value in result.items() if not name.startswith(settings.DEVICE.name)}
    if devices_text:
        result["EMULATED_CANN_DEVICES"] = result[settings.DEVICES.name] = str(settings.count(devices_text))
    if memory_text:
        result["EMULATED_CANN_MEMORY_MIB"] = str(settings.size(memory_text) >> 20)
    result[RUNTIME.name] = runtime
    result["PATH"] = os.pathsep.join([stub_packages.tools(vendors.find(key)), result.get("PATH", os.defpath)])
    return dict(_driver(_DRIVERS[key, runtime]).environment(result))


def _driver(name: str) -> Any:
    """Return the module that builds the driver, from the data of this package."""
    package = f"accel_sim_{name}"
    if package not in sys.modules:
        folder = shared.folder(name)
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.build")
