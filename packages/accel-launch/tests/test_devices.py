# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes of devices, by their PCI addresses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from accel_launch.machine import UNKNOWN, _device_nodes


def device(*properties: object) -> SimpleNamespace:
    def get_device_properties(index: int) -> object:
        found = properties[index]
        if isinstance(found, Exception):
            raise found
        return found

    module = SimpleNamespace(get_device_properties=get_device_properties)
    return SimpleNamespace(device_module=module, device_count=lambda: len(properties))


def at(bus: int) -> SimpleNamespace:
    return SimpleNamespace(pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)


def test_the_node_is_read_from_sys(tmp_path: Path) -> None:
    for address, node in (("0000:3b:00.0", "1"), ("0000:04:00.0", "-1"), ("0000:05:00.0", "nonsense")):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node + "\n")
    asked = device(at(0x3B), at(4), at(5), at(6), SimpleNamespace(), RuntimeError("no driver"))
    assert _device_nodes(tmp_path, asked) == (1, *[UNKNOWN] * 5)  # type: ignore[arg-type]


def test_a_device_without_properties_has_no_known_node(tmp_path: Path) -> None:
    assert _device_nodes(tmp_path, SimpleNamespace(device_count=lambda: 2)) == ()  # type: ignore[arg-type]
