# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' command-line tools of a simulated machine: `npu-smi`, `hl-smi`, `nvidia-smi`, ….

`stub_packages` puts a script of each tool's name first on PATH, which runs this module. What they print is in
`vendor_tool_answers`. Like the real tools they show all devices of the machine, whatever a process may see of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from accel_sim import settings, vendors
from accel_sim.vendors import SimVendor


@dataclass(frozen=True)
class Answer:
    """What is printed: head, `each` filled in once a device, foot; {count} is the number of devices."""

    head: str
    each: str
    foot: str = ""


@dataclass(frozen=True)
class Query:
    """A table of chosen fields.

    options: an option and what its value is: fields, format, device.
    fields: a field, its value, and its unit where it has one.
    unknown: exit status and text for a field that the tool does not know.
    """

    options: dict[str, str]
    fields: dict[str, tuple[str, ...]]
    unknown: tuple[int, str]

    def heading(self, name: str) -> str:
        """Return the column's heading."""
        unit = self.fields[name][1:]
        return f"{name} [{unit[0]}]" if unit else name

    def value(self, name: str, plain: bool) -> str:
        """Return the template of a value, with its unit unless `plain`."""
        value, *unit = self.fields[name]
        return " ".join([value, *([] if plain else unit)])


@dataclass(frozen=True)
class Tool:
    """One program.

    answers: by the arguments, joined by spaces.
    unknown: exit status and text for other arguments; status 0: the tool warns and ignores them.
    none: exit status and text on a machine without a device, where these differ.
    """

    vendor: str
    answers: dict[str, Answer]
    unknown: tuple[int, str]
    none: tuple[int, str] | None = None
    query: Query | None = None


_NPU_INFO = Answer(
    head="""\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0 (simulated)       Version: 25.2.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
""",
    each="""\
| {index:<5} {short:<19} | OK            | 90.0        40                0    / 0             |
| 0                         | 0000:{bus:<8} | 0           0    / 0          0    / {mib:<13} |
+===========================+===============+====================================================+
""",
)

_HL_VERSION = "hl-1.19.0-fw-57.1.0.0 (simulated)"
_HL_LIST = Answer(
    head=f"""\
================ HL-SMI LOG ================
Driver Version                          : 1.19.0-simulated
HL-SMI Version                          : {_HL_VERSION}

Attached AIPs                           : {{count}}

""",
    each="""\
[{index}] AIP (accel{index}) 0000:{bus}
        Product Name                    : {name}
        Serial Number                   : AM{number}
        Module status                   : Operational
        Module ID                       : {index}
        AIP UUID                        : 01P0-HL3000A0-{number}
        AIP Status                      : Production Level
        Firmware [SPI] Version          : Preboot version hl-gaudi3-1.19.0-fw-57.1.0-sec-9 (simulated)
        PCI
                Bus Id                  : 0000:{bus}

""",
)
_HL_TABLE = Answer(
    head=f"""\
+-----------------------------------------------------------------------------+
| HL-SMI Version:              {_HL_VERSION:<46} |
| Driver Version:              1.19.0-simulated                               |
|-------------------------------+----------------------+----------------------+
| AIP  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncor-Events|
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |
|===============================+======================+======================|
""",
    each="""\
| {index:3}  {short:<15}     N/A  | 0000:{bus}     N/A |                   0  |
| N/A   30C   N/A   220W / 900W |    0MiB / {mib:7}MiB |     0%           N/A |
|-------------------------------+----------------------+----------------------+
""",
)

_NVIDIA_TABLE = Answer(
    head="""\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.00 (simulated)   Driver Version: 570.00 (simulated)   CUDA Version: 12.8 |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
""",
    each="""\
| {index:3}  {name:<28}   On  |   00000000:{bus} Off |                    0 |
| N/A   30C    P0             70W /  700W |       0MiB / {mib:6}MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
""",
)
_NVIDIA_LIST = Answer("", "GPU {index}: {name} (UUID: GPU-00000000-0000-0000-0000-{number})\n")
_NVIDIA_FIELDS: dict[str, tuple[str, ...]] = {
    "index": ("{index}",),
    "count": ("{count}",),
    "name": ("{name}",),
    "gpu_name": ("{name}",),
    "uuid": ("GPU-00000000-0000-0000-0000-{number}",),
    "gpu_uuid": ("GPU-00000000-0000-0000-0000-{number}",),
    "serial": ("[N/A]",),
    "driver_version": ("570.00",),
    "pci.bus_id": ("00000000:{bus}",),
    "gpu_bus_id": ("00000000:{bus}",),
    "compute_cap": ("{capability}",),
    "compute_mode": ("Default",),
    "persistence_mode": ("Enabled",),
    "mig.mode.current": ("Disabled",),
    "pstate": ("P0",),
    "memory.total": ("{mib}", "MiB"),
    "memory.used": ("0", "MiB"),
    "memory.free": ("{mib}", "MiB"),
    "utilization.gpu": ("0", "%"),
    "utilization.memory": ("0", "%"),
    "temperature.gpu": ("30",),
    "power.draw": ("70.00", "W"),
    "power.limit": ("700.00", "W"),
}
_HL_FIELDS: dict[str, tuple[str, ...]] = {
    "index": ("{index}",),
    "module_id": ("{index}",),
    "name": ("{name}",),
    "uuid": ("01P0-HL3000A0-{number}",),
    "serial": ("AM{number}",),
    "bus_id": ("0000:{bus}",),
    "driver_version": ("1.19.0-simulated",),
    "memory.total": ("{mib}", "MiB"),
    "memory.used": ("0", "MiB"),
    "memory.free": ("{mib}", "MiB"),
    "utilization.aip": ("0", "%"),
    "temperature.aip": ("30", "C"),
    "power.draw": ("220", "W"),
}

_XPU_TABLE = Answer(
    head="""\
+-----------+--------------------------------------------------------------------------------------+
| Device ID | Device Information                                                                   |
+-----------+--------------------------------------------------------------------------------------+
""",
    each="""\
| {index:<9} | Device Name: {name:<71} |
|           | Vendor Name: Intel(R) Corporation                                                    |
|           | SOC UUID: 00000000-0000-0000-0000-{number:<50} |
|           | PCI BDF Address: 0000:{bus:<62} |
|           | DRM Device: /dev/dri/card{index:<59} |
|           | Function Type: physical                                                              |
+-----------+--------------------------------------------------------------------------------------+
""",
)
_XPU_JSON = Answer(
    head='{\n    "device_list": [\n',
    each="""\
        {{
            "device_function_type": "physical",
            "device_id": {index},
            "device_name": "{name}",
            "device_type": "GPU",
            "drm_device": "/dev/dri/card{index}",
            "pci_bdf_address": "0000:{bus}",
            "pci_device_id": "0xbd5",
            "uuid": "00000000-0000-0000-0000-{number}",
            "vendor_name": "Intel(R) Corporation"
        }}{comma}
""",
    foot="    ]\n}\n",
)
_CLINFO = Answer(
    head="""\
Number of platforms                               1
  Platform Name                                   Intel(R) OpenCL Graphics (simulated)
  Platform Vendor                                 Intel(R) Corporation

  Platform Name                                   Intel(R) OpenCL Graphics (simulated)
Number of devices                                 {count}
""",
    each="""\
  Device Name                                     {name}
  Device Vendor                                   Intel(R) Corporation
  Device Vendor ID                                0x8086
  Device Type                                     GPU
  Device Available                                Yes
  Global memory size                              {bytes}

""",
)
_CLINFO_LIST = Answer(
    "Platform #0: Intel(R) OpenCL Graphics (simulated)\n", " {branch}-- Device #{index}: {name}\n"
)

_CNMON = Answer(
    head="""\
+------------------------------------------------------------------------------+
| CNMON v6.2.29 (simulated)                         Driver v6.2.29 (simulated) |
+-------------------------------+----------------------+-----------------------+
| Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |
| Fan   Temp      Pwr:Usage/Cap |         Memory-Usage | SR-IOV   Compute-Mode |
|===============================+======================+=======================|
""",
    each="""\
| {index:<5} /   {short:<11}  v1.5.0 |         0000:{bus} | 0%                  0 |
|  0%   30C         90 W/ 550 W |     0 MiB/{mib:6} MiB | N/A           Default |
+-------------------------------+----------------------+-----------------------+
""",
)
_TECO = Answer(
    head="""\
+-----------------------------------------------------------------------------+
|  TECO-SMI: 1.15.0 (simulated)      SDAADriver: 3.2.0   SDAARuntime: 3.2.0   |
|-------------------------------+----------------------+----------------------|
| Index  Name                   | Bus-Id               | Health      SPE-Util |
|        Temp          Pwr Usage|          Memory-Usage|                      |
|=============================================================================|
""",
    each="""\
|   {index:<4} {short:<22} | 00000000:{bus}     | OK                0% |
|        40C                90W |        0MB /{mib:6}MB |                      |
|-------------------------------+----------------------+----------------------|
""",
)

TOOLS = {
    "npu-smi": Tool(
        "npu",
        {
            "info": _NPU_INFO,
            "info -l": Answer(
                "\tTotal Count                    : {count}\n",
                "\n\tNPU ID                         : {index}\n\tProduct Name                   : {name}\n"
                "\tChip Count                     : 1\n",
            ),
            "info -m": Answer(
                "\tNPU ID                         Chip ID                        Chip Logic ID"
                "                  Chip Name\n",
                "\t{index:<30} 0                              {index:<30} {name}\n",
            ),
        },
        (1, "Error parameter of {argument}\nUsage: npu-smi info [-l | -m]\n"),
    ),
    "hl-smi": Tool(
        "hpu",
        {
            "": _HL_TABLE,
            **dict.fromkeys(("-L", "--list-aips", "-q", "--query"), _HL_LIST),
            **dict.fromkeys(("-v", "--version"), Answer(f"HL-SMI Version: {_HL_VERSION}\n", "")),
        },
        (1, "hl-smi: invalid option -- '{argument}'\nrun 'hl-smi -h' for its options\n"),
        none=(1, "no AIPs available\n"),
        query=Query(
            dict.fromkeys(("-Q", "--query-aip"), "fields")
            | dict.fromkeys(("-f", "--format"), "format")
            | dict.fromkeys(("-i", "--device"), "device"),
            _HL_FIELDS,
            (1, "{argument} is not a valid query\n"),
        ),
    ),
    "nvidia-smi": Tool(
        "cuda",
        {"": _NVIDIA_TABLE, "-L": _NVIDIA_LIST, "--list-gpus": _NVIDIA_LIST},
        (2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"),
        none=(6, "No devices were found\n"),
        query=Query(
            {"--query-gpu": "fields", "--format": "format", "-i": "device", "--id": "device"},
            _NVIDIA_FIELDS,
            (2, 'Field "{argument}" is not a valid field to query.\n'),
        ),
    ),
    "xpu-smi": Tool(
        "xpu",
        {"discovery": _XPU_TABLE, **dict.fromkeys(("discovery -j", "discovery --json"), _XPU_JSON)},
        (109, "The following argument was not expected: {argument}\nRun with --help for more information.\n"),
    ),
    "clinfo": Tool(
        "xpu",
        {"": _CLINFO, "-l": _CLINFO_LIST, "--list": _CLINFO_LIST},
        (0, "ignoring unknown command-line parameter {argument}\n"),
        none=(0, "Number of platforms                               0\n"),
    ),
    "cnmon": Tool("mlu", {"": _CNMON}, (1, "cnmon: unknown argument {argument}\n")),
    "teco-smi": Tool("sdaa", {"": _TECO}, (1, "teco-smi: unknown argument {argument}\n")),
}


def scripts(vendor: SimVendor) -> dict[str, str]:
    """Return the text of each script for the tools that this vendor's machine has."""
    run = f'exec "{sys.executable}" -m {__name__}'
    return {
        name: f'#!/bin/sh\n{run} {name} "$@"\n' for name, tool in TOOLS.items() if tool.vendor == vendor.key
    }


def answer(name: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return a tool's exit status and what it writes to standard output and standard error."""
    tool = TOOLS[name]
    devices = _devices(tool)
    text = tool.answers.get(" ".join(arguments))
    if text is None and tool.query is not None:
        found = _asked(tool.query, arguments)
        if found is not None:
            return _table(tool, tool.query, found, devices)
    if text is None:
        status, complaint = tool.unknown
        complaint = complaint.format(argument=next(iter(arguments), ""))
        return (status, "", complaint) if status else (0, _filled(tool.answers[""], devices), complaint)
    if not devices and tool.none:
        return tool.none[0], tool.none[1], ""
    return 0, _filled(text, devices), ""


def _devices(tool: Tool) -> list[dict[str, object]]:
    chosen = settings.read()
    vendor = vendors.find(tool.vendor)
    name = vendor.device_name
    return [
        {
            "index": index,
            "count": chosen.devices,
            "name": name,
            "short": name.removesuffix(" (simulated)"),
            "mib": chosen.memory >> 20,
            "bytes": chosen.memory,
            "bus": f"{0x10 + index:02X}:00.0",
            "number": f"{index + 1:012x}",
            "capability": "{major}.{minor}".format_map({"major": 0, "minor": 0} | vendor.properties),
            "branch": "`" if index == chosen.devices - 1 else "+",
            "comma": "" if index == chosen.devices - 1 else ",",
        }
        for index in range(chosen.devices)
    ]


def _filled(text: Answer, devices: list[dict[str, object]]) -> str:
    head, foot = (part.replace("{count}", str(len(devices))) for part in (text.head, text.foot))
    return head + "".join(text.each.format_map(device) for device in devices) + foot


def _asked(query: Query, arguments: Sequence[str]) -> dict[str, str] | None:
    """Return fields, format and device of a query; None: the arguments are none."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    found: dict[str, str] = {}
    for option, value in zip(words[::2], [*words[1::2], ""], strict=False):
        kind = query.options.get(option)
        if kind is None or not value:
            return None
        found[kind] = value
    return found if {"fields", "format"} <= found.keys() and "csv" in found["format"].split(",") else None


def _table(
    tool: Tool, query: Query, asked: dict[str, str], devices: list[dict[str, object]]
) -> tuple[int, str, str]:
    fields = [name.strip() for name in asked["fields"].split(",")]
    unknown = next((name for name in fields if name not in query.fields), None)
    if unknown is not None:
        return query.unknown[0], query.unknown[1].format(argument=unknown), ""
    only = asked.get("device")
    devices = [d for d in devices if only in (None, str(d["index"])) or str(only).endswith(str(d["bus"]))]
    if not devices:
        return *(tool.none or (0, "")), ""
    plain = "nounits" in asked["format"]
    lines = [] if "noheader" in asked["format"] else [", ".join(map(query.heading, fields))]
    for device in devices:
        lines.append(", ".join(query.value(name, plain).format_map(device) for name in fields))
    return 0, "\n".join(lines) + "\n", ""


def main() -> int:
    """Answer as the tool that the first argument names."""
    status, out, error = answer(sys.argv[1], sys.argv[2:])
    sys.stdout.write(out)
    sys.stderr.write(error)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
