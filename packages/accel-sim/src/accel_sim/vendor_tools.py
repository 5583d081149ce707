# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' command-line tools of a simulated machine: `npu-smi`, `hl-smi`, `nvidia-smi`, ….

`stub_packages` puts a script of each tool's name first on PATH, which runs this module. What they print is in
`vendor_tools.txt`. Like the real tools they show all devices of the machine, whatever a process may see of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from accel_sim import settings, vendors
from accel_sim.vendors import SimVendor


@dataclass(frozen=True)
class Tool:
    """One program.

    unknown: exit status and text for arguments that it does not know; status 0: it warns and ignores them.
    none:    exit status and text on a machine without a device, where these differ.
    options: of a query, each with what its value is: fields, format, device.
    wrong:   exit status and text for a field that a query does not know.
    """

    vendor: str
    unknown: tuple[int, str]
    none: tuple[int, str] | None = None
    options: dict[str, str] = field(default_factory=dict)
    wrong: tuple[int, str] = (0, "")


TOOLS = {
    "npu-smi": Tool("npu", (1, "Error parameter of {argument}\nUsage: npu-smi info [-l | -m]\n")),
    "hl-smi": Tool(
        "hpu",
        (1, "hl-smi: invalid option -- '{argument}'\nrun 'hl-smi -h' for its options\n"),
        none=(1, "no AIPs available\n"),
        options={"-Q": "fields", "--query-aip": "fields", "-f": "format", "--format": "format",
                 "-i": "device", "--device": "device"},
        wrong=(1, "{argument} is not a valid query\n"),
    ),
    "nvidia-smi": Tool(
        "cuda",
        (2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"),
        none=(6, "No devices were found\n"),
        options={"--query-gpu": "fields", "--format": "format", "-i": "device", "--id": "device"},
        wrong=(2, 'Field "{argument}" is not a valid field to query.\n'),
    ),
    "xpu-smi": Tool(
        "xpu",
        (109, "The following argument was not expected: {argument}\nRun with --help for more information.\n"),
    ),
    "clinfo": Tool(
        "xpu",
        (0, "ignoring unknown command-line parameter {argument}\n"),
        none=(0, "Number of platforms                               0\n"),
    ),
    "cnmon": Tool("mlu", (1, "cnmon: unknown argument {argument}\n")),
    "teco-smi": Tool("sdaa", (1, "teco-smi: unknown argument {argument}\n")),
}  # fmt: skip

_ANSWER, _PART = "===== ", "----- "


@cache
def _answers() -> dict[str, dict[str, str]]:
    """Return head, each and foot of what is printed, by the command line."""
    found: dict[str, dict[str, str]] = {}
    parts, part = {"": ""}, ""
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith(_ANSWER):
            parts, part = {"head": "", "each": "", "foot": ""}, "head"
            found.update(dict.fromkeys(line.removeprefix(_ANSWER).strip().split(" | "), parts))
        elif line.startswith(_PART):
            part = line.removeprefix(_PART).strip()
        else:
            parts[part] += line
    return found


def scripts(vendor: SimVendor) -> dict[str, str]:
    """Return the text of each script for the tools that this vendor's machine has."""
    run = f'exec "{sys.executable}" -m {__name__}'
    return {
        name: f'#!/bin/sh\n{run} {name} "$@"\n' for name, tool in TOOLS.items() if tool.vendor == vendor.key
    }


def answer(name: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return a tool's exit status and what it writes to standard output and standard error."""
    tool, devices = TOOLS[name], _devices(TOOLS[name])
    text = _answers().get(" ".join([name, *arguments]))
    if text is None and (asked := _asked(tool, arguments)):
        return *_table(name, asked, devices), ""
    if text is None:
        status, complaint = tool.unknown
        complaint = complaint.format(argument=next(iter(arguments), ""))
        return (status, "", complaint) if status else (0, _filled(_answers()[name], devices), complaint)
    if not devices and tool.none:
        return *tool.none, ""
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


def _filled(text: dict[str, str], devices: list[dict[str, object]]) -> str:
    head, foot = (text[part].replace("{count}", str(len(devices))) for part in ("head", "foot"))
    return head + "".join(text["each"].format_map(device) for device in devices) + foot


def _asked(tool: Tool, arguments: Sequence[str]) -> dict[str, str] | None:
    """Return fields, format and device of a query; None where the arguments are not a query."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    found: dict[str, str] = {}
    for option, value in zip(words[::2], [*words[1::2], ""], strict=False):
        kind = tool.options.get(option)
        if kind is None or not value:
            return None
        found[kind] = value
    return found if {"fields", "format"} <= found.keys() and "csv" in found["format"].split(",") else None


def _table(name: str, asked: dict[str, str], devices: list[dict[str, object]]) -> tuple[int, str]:
    tool = TOOLS[name]
    lines = (line.partition(": ") for line in _answers()[f"{name} fields"]["head"].splitlines())
    known = {key: value.split(" ") for key, _, value in lines}  # a value, and its unit where it has one
    fields = [each.strip() for each in asked["fields"].split(",")]
    if wrong := [each for each in fields if each not in known]:
        return tool.wrong[0], tool.wrong[1].format(argument=wrong[0])
    only = asked.get("device")
    devices = [d for d in devices if only in (None, str(d["index"])) or str(only).endswith(str(d["bus"]))]
    if not devices:
        return tool.none or (0, "")
    shown = 1 if "nounits" in asked["format"] else 2
    rows = [", ".join(" ".join(known[each][:shown]) for each in fields).format_map(d) for d in devices]
    if "noheader" not in asked["format"]:
        rows.insert(
            0, ", ".join(f"{each} [{unit[0]}]" if (unit := known[each][1:]) else each for each in fields)
        )
    return 0, "\n".join(rows) + "\n"


def main() -> int:
    """Answer as the tool that the first argument names."""
    status, out, error = answer(sys.argv[1], sys.argv[2:])
    sys.stdout.write(out)
    sys.stderr.write(error)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
