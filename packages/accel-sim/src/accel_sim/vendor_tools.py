# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' command-line tools of a simulated machine: `npu-smi`, `hl-smi`, `nvidia-smi`, ….

`stub_packages` puts a script of each tool's name first on PATH, which runs this module. What they print is in
`vendor_tool_answers`. Like the real tools they show all devices of the machine, whatever a process may see of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from accel_sim import settings, vendors
from accel_sim.vendor_tool_answers import TOOLS, Answer, Query, Tool
from accel_sim.vendors import SimVendor


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
