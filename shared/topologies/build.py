# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a machine's files below a folder, as ACCEL_SYSROOT wants them.

    python shared/topologies/build.py eight-sockets /tmp/machine

A machine is a file here; README.md has its keys. `build` becomes the files of /sys, `affinity` proc/self/status.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SYSTEM = "sys/devices/system"


def machines() -> list[str]:
    """Return the names of all machines."""
    return sorted(path.stem for path in HERE.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """Return the content of a machine's file."""
    loaded: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def write(name: str, root: Path) -> Path:
    """Write the machine's files below `root`, and return it."""
    machine = load(name)
    for path, text in files(machine["build"]).items():
        _put(root, path, text)
    status = f"Cpus_allowed_list:\t{machine['affinity']}\n"
    if "mems_allowed" in machine:
        status += f"Mems_allowed_list:\t{machine['mems_allowed']}\n"
    _put(root, "proc/self/status", status)
    return root


def files(build: dict[str, Any]) -> dict[str, str]:
    """Return the text of each file by its path."""
    online = _numbers(build["online"])
    made = {
        f"{SYSTEM}/cpu/online": build["online"],
        f"{SYSTEM}/cpu/present": build.get("present", build["online"]),
    }
    nodes: dict[str, dict[str, Any]] = build.get("nodes", {})
    sockets = {}
    for number, node in nodes.items():
        made[f"{SYSTEM}/node/node{number}/cpulist"] = node["cpus"]
        sockets.update(dict.fromkeys(_numbers(node["cpus"]), node.get("socket", number)))
        if "bandwidth" in node:
            made[f"{SYSTEM}/node/node{number}/access0/initiators/read_bandwidth"] = str(node["bandwidth"])
        if "distance" in node:
            made[f"{SYSTEM}/node/node{number}/distance"] = node["distance"]
    if nodes:
        made[f"{SYSTEM}/node/online"] = ",".join(nodes)
        made[f"{SYSTEM}/node/has_memory"] = build.get("has_memory", ",".join(nodes))
    for cpu in online:
        folder = f"{SYSTEM}/cpu/cpu{cpu}/topology"
        made[f"{folder}/physical_package_id"] = str(sockets.get(cpu, 0))
        if build.get("threads") == "unknown":
            continue
        siblings = _siblings(cpu, build.get("threads", "1"), max(online)) & set(online)
        made[f"{folder}/thread_siblings_list"] = ",".join(map(str, sorted(siblings)))
    for cpus, capacity in build.get("capacity", {}).items():
        made.update({f"{SYSTEM}/cpu/cpu{cpu}/cpu_capacity": str(capacity) for cpu in _numbers(cpus)})
    return made | build.get("files", {})


def _siblings(cpu: int, threads: str, last: int) -> set[int]:
    """Return the threads of a CPU's core: `1`, `2 adjacent`, `2 apart 8` (CPU n and n + 8), `2 adjacent up to 7`."""
    words = threads.split()
    count = int(words[0])
    if count == 1 or ("up" in words and cpu > int(words[-1])):
        return {cpu}
    if words[1] == "adjacent":
        first = cpu - cpu % count
        return set(range(first, first + count))
    distance = int(words[2])
    return set(range(cpu % distance, last + 1, distance))


def _numbers(text: str) -> list[int]:
    ranges = [item.partition("-") for item in text.split(",") if item]
    return [number for low, _, high in ranges for number in range(int(low), int(high or low) + 1)]


def _put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
