# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the real vendor modules offer (shared/surfaces/*.json), as a tree of names."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.problem import CheckError, Problem

FOLDER = "shared/surfaces"
_MODULE = re.compile(r"<module ([\w.]+)>")


@dataclass
class Name:
    """A name of a surface, and the names below it.

    kind:      `function`, `class`, `method`, `property`, `attr`; empty for what is only part of longer names.
    signature: Python's, an operator's schema, an attribute's type, `<module …>`, or empty.
    condition: when the name is there, where that is not always.
    """

    kind: str = ""
    signature: str = ""
    condition: str = ""
    unconfirmed: bool = False
    below: dict[str, Name] = field(default_factory=dict)

    @property
    def is_module(self) -> bool:
        """Whether it is a module whose names are known."""
        if self.kind not in ("", "attr") or not self.below:
            return False
        kinds = {name.kind for name in self.below.values()}
        # Where the surface does not say what it is: a class has members, and an enumeration nothing but values.
        is_class = kinds <= {"method", "property", "attr"} and (kinds != {"attr"} or self.kind == "attr")
        return bool(self.module) or not is_class

    @property
    def module(self) -> str:
        """The full name of the module that an attribute is; empty where it is no module."""
        match = _MODULE.fullmatch(self.signature)
        return match[1] if match else ""

    def at(self, path: str) -> Name | None:
        """The name at a dotted path below this one."""
        first, _, rest = path.partition(".")
        found = self.below.get(first)
        return found.at(rest) if found and rest else found

    def add(self, path: str, entry: Mapping[str, Any]) -> None:
        """Put a surface's entry at a dotted path below this name; an entry that is there already stays."""
        first, _, rest = path.partition(".")
        child = self.below.setdefault(first, Name())
        if rest:
            child.add(rest, entry)
        elif not child.kind:
            child.kind, child.signature = entry["kind"], entry.get("signature", "")
            child.condition, child.unconfirmed = entry.get("condition", ""), "unconfirmed" in entry


@dataclass(frozen=True)
class Runtime:
    """A vendor's modules.

    files:      its surfaces. What an earlier one says of its module, a later one does not add to.
    registered: the name under which torch has a module -> the module's own.
    """

    files: tuple[str, ...]
    registered: Mapping[str, str] = field(default_factory=dict)


RUNTIMES = (
    Runtime(("npu.json",), {"torch.npu": "torch_npu.npu"}),
    Runtime(("mlu.json",), {"torch.mlu": "torch_mlu.mlu"}),
    Runtime(("sdaa.json",), {"torch.sdaa": "torch_sdaa.sdaa"}),
    Runtime(("hpu.json",), {"torch.hpu": "habana_frameworks.torch.hpu"}),
    # Of the wheel for CPUs only what the branch for GPUs does not speak of.
    Runtime(("ipex_xpu_branch.json", "ipex_cpu_wheel.json")),
)
#: Every device module that a vendor registers with torch: torch's name for it, and its own.
REGISTERED = {name: own for runtime in RUNTIMES for name, own in runtime.registered.items()}
#: The packages that stubs are made of: torch's own names are torch's to type.
PACKAGES = ("torch_npu", "torch_mlu", "torch_sdaa", "habana_frameworks", "intel_extension_for_pytorch")


def runtimes(root: Path) -> Name:
    """The vendors' packages of a checkout in one tree. Raises CheckError where a surface is missing."""
    tree = Name()
    for runtime in RUNTIMES:
        spoken_for: list[str] = []
        for file in runtime.files:
            surface = _read(root / FOLDER / file)
            for full, entry in surface["names"].items():
                name = _own_name(full, runtime.registered)
                covered = any(name.startswith(f"{module}.") for module in spoken_for)
                if _is_dotted(name) and name.partition(".")[0] in PACKAGES and not covered:
                    tree.add(name, entry)
            spoken_for.append(surface["module"])
    return tree


def operators(root: Path) -> dict[str, set[str]]:
    """Namespace of torch.ops -> the operators that the surfaces have in it. Raises CheckError without surfaces."""
    found: dict[str, set[str]] = {}
    for runtime in RUNTIMES:
        for file in runtime.files:
            for name in _read(root / FOLDER / file)["names"]:
                if name.startswith("torch.ops."):
                    namespace, _, operator = name.removeprefix("torch.ops.").partition(".")
                    found.setdefault(namespace, set()).add(operator)
    return found


def _own_name(name: str, registered: Mapping[str, str]) -> str:
    for known, own in registered.items():
        if name.startswith(f"{known}."):
            return own + name.removeprefix(known)
    return name


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))


def _read(file: Path) -> dict[str, Any]:
    try:
        surface: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckError(
            Problem(
                what="the vendors' names cannot be read",
                found=f"no file {FOLDER}/{file.name}",
                expected="one file for each vendor's module",
                do="run this from the root of a checkout",
            )
        ) from None
    return surface


def modules(tree: Name, path: str = "") -> Iterator[tuple[str, Name]]:
    """Every module of the tree by its full name, packages before what is in them."""
    for name, child in sorted(tree.below.items()):
        if child.is_module:
            full = f"{path}.{name}" if path else name
            yield full, child
            yield from modules(child, full)
