# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a plan has to know of one machine: its cores, its devices, and the variables that restrict them.

    python -m accel_core.launch.facts

prints those of this machine as JSON; launchers run it on the other hosts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_core.api import get_accelerator
from accel_core.launch import topology
from accel_core.launch.codec import InvalidData, from_data, to_data
from accel_core.launch.topology import Topology
from accel_core.vendor import Feature, system_root

if TYPE_CHECKING:
    from accel_core.interface import DeepSpeedAccelerator

#: Stands for an unknown NUMA node, as in /sys.
UNKNOWN = -1


@dataclass(frozen=True)
class Accelerator:
    """What a plan needs of an accelerator's interface.

    ranks_are_devices: False for the CPU, whose ranks share the machine's cores. visible: names of the variables that
    restrict a process to some devices. set_visible: writes them for the given devices. exports: prefixes of variables
    that ranks on other hosts need. restricts: False if the runtime does not read `visible`: it gives each process
    one of the devices that a variable of its own leaves, by the local rank.
    """

    name: str
    ranks_are_devices: bool
    visible: tuple[str, ...]
    set_visible: Callable[[MutableMapping[str, str], Sequence[str]], None]
    exports: tuple[str, ...] = ()
    restricts: bool = True


@dataclass(frozen=True)
class Facts:
    """One machine.

    devices: how many the accelerator sees; for the CPU, NUMA nodes with usable cores. mask: the devices to which the
    visible-devices variable restricts this process, None if it is not set. device_nodes: NUMA node of each device,
    `UNKNOWN` if /sys does not tell; may be shorter.
    """

    topology: Topology
    devices: int
    mask: tuple[str, ...] | None = None
    device_nodes: tuple[int, ...] = ()

    def to_json(self) -> str:
        """Return the facts as one line of JSON."""
        return json.dumps(to_data(self))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """Return the facts of `to_json`; raises `InvalidData`."""
        try:
            return from_data(cls, json.loads(text), "facts")
        except (ValueError, RecursionError) as error:
            raise InvalidData(str(error)) from error


def accelerator() -> Accelerator:
    """Return what the process's accelerator says of itself."""
    return _described(get_accelerator())


def local(environ: Mapping[str, str] = os.environ) -> Facts:
    """Return the facts of this machine, or with `ACCEL_SYSROOT` those of a recorded one's cores."""
    # Before torch is imported, whose OpenMP runtime may bind the calling thread.
    machine = topology.read(system_root())
    device = get_accelerator()
    described = _described(device)
    masks = described.visible if described.restricts else ()
    mask = next((environ[name] for name in masks if environ.get(name)), None)
    return Facts(
        topology=machine,
        devices=device.device_count() if described.ranks_are_devices else len(machine.nodes),
        mask=None if mask is None else tuple(item.strip() for item in mask.split(",") if item.strip()),
        device_nodes=_device_nodes(system_root(), device) if described.ranks_are_devices else (),
    )


def _described(device: DeepSpeedAccelerator) -> Accelerator:
    ranks_are_devices = device.device_name() != "cpu"  # torch's device type
    return Accelerator(
        name=device.device_name(),
        ranks_are_devices=ranks_are_devices,
        visible=tuple(device.visible_devices_envs()),
        set_visible=device.set_visible_devices_envs,
        exports=tuple(device.export_envs()),
        # Ranks on CPUs are counted by the mask, though torch has one CPU.
        restricts=not ranks_are_devices or Feature.INDEXED_DEVICES not in getattr(device, "traits", {}),
    )


def _device_nodes(root: Path, device: DeepSpeedAccelerator) -> tuple[int, ...]:
    properties = getattr(getattr(device, "device_module", None), "get_device_properties", None)
    if properties is None:
        return ()
    return tuple(_device_node(root, properties, index) for index in range(device.device_count()))


def _device_node(root: Path, properties: Callable[[int], Any], index: int) -> int:
    """Return the NUMA node of the device's PCI address, if the runtime knows one and /sys that device."""
    try:
        found = properties(index)
        address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
        return max(int((root / "sys/bus/pci/devices" / address / "numa_node").read_text()), UNKNOWN)
    except (AttributeError, AssertionError, OSError, RuntimeError, TypeError, ValueError):
        return UNKNOWN


def main() -> int:
    """Print the facts of this machine."""
    sys.stdout.write(f"{local().to_json()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
