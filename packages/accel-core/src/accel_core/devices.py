# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Facts about devices, from `devices.toml`: core names vendors there alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device that DeepSpeed or this project knows.

    key:          the value of DS_ACCELERATOR that selects it.
    priority:     the present accelerator with the highest priority is chosen.
    class_name:   the accelerator class users know.
    distribution: the package of this project that supports it.
    variant:      distinguishes devices that share a key.
    namespace:    attribute of torch that counts devices; empty for the CPU, which is always present. Default: the key.
    runtime:      module of the runtime; empty if it is part of torch.
    runtime_distribution: its package; default: of the same name.
    requires:     its runtime, as in messages: completes "<class_name> requires …". Default: the module.
    install:      how to install the runtime, as in `accel_core.vendor.Vendor`.
    files:        glob patterns of device files, relative to the root; empty if there are none.
    pci_vendor:   PCI vendor of the device, where devices of other makers have such files, too.
    torch_fields: attributes of torch.version; builds for this device set one of them.
    library:      glob pattern of the runtime's library for the device, which its builds for CPUs lack.
    platform:     the only sys.platform with such devices; empty for any.
    package_only: DeepSpeed has no backend for this key, and another entry is for the same device.
    takes:        the device whose module of torch this runtime replaces: that device cannot be used afterwards.
    privateuse1, yields_to: as in `accel_core.vendor.Vendor`.
    """

    key: str
    priority: int
    class_name: str
    distribution: str
    variant: str = ""
    namespace: str
    runtime: str = ""
    runtime_distribution: str
    requires: str
    install: str = ""
    files: tuple[str, ...] = ()
    pci_vendor: str = ""
    torch_fields: tuple[str, ...] = ()
    library: str = ""
    platform: str = ""
    package_only: bool = False
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    takes: str = ""

    def sentence(self) -> str:
        """Return a sentence such as `NPU_Accelerator requires torch_npu`."""
        return f"{self.class_name} requires {self.requires}"


def _device(row: dict[str, Any]) -> Device:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    runtime = row.get("runtime", "")
    return Device(**{"namespace": row["key"], "runtime_distribution": runtime, "requires": runtime} | fields)


_TABLE = tomllib.loads(Path(__file__).with_name("devices.toml").read_text(encoding="utf-8"))
DEVICES = tuple(map(_device, _TABLE["device"]))
CPU_KEY = "cpu"

#: Values of DS_ACCELERATOR that are valid whatever is installed, in DeepSpeed's order.
SUPPORTED_ACCELERATOR_LIST: list[str] = _TABLE["supported"]


def known_devices(key: str) -> tuple[Device, ...]:
    """Return the devices with this key, highest priority first; empty for a third party's key."""
    return tuple(device for device in DEVICES if device.key == key)


def known_device(key: str, variant: str = "") -> Device:
    """Return the device of a key and variant, without a variant the first; raises KeyError for a third party's."""
    for device in known_devices(key):
        if variant in ("", device.variant):
            return device
    raise KeyError(f"{key} {variant}".strip())
