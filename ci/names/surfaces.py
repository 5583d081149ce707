# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the real vendor modules offer: shared/surfaces/*.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.problem import CheckError, Problem

FOLDER = "shared/surfaces"


@dataclass(frozen=True)
class Surfaces:
    """Every surface together.

    names:   full name -> what is known of it (`kind`, `condition`, …).
    modules: every proper prefix of a name.
    roots:   the modules that are a vendor's own: what is not in `names` below them does not exist.
    same:    `torch_npu.npu` is `torch.npu`, `torch.hpu` is `habana_frameworks.torch.hpu`.
    """

    names: Mapping[str, Mapping[str, Any]]
    modules: frozenset[str]
    roots: frozenset[str]
    same: Mapping[str, str]

    def root(self, name: str) -> str:
        """The vendor's module that the name belongs to; empty for names of anything else."""
        return next((prefix for prefix in _prefixes(name) if prefix in self.roots), "")

    def fault(self, name: str) -> str:
        """Why the name can not be relied on; empty when it can, or when it is not a vendor's."""
        name = self._canonical(name)
        root = self.root(name)
        if not root or name in self.modules:
            return ""
        known = next((prefix for prefix in _prefixes(name) if prefix in self.names), "")
        if not known or (known != name and known in self.modules):
            return f"{name} is in no surface of {root}"
        condition = self.names[known].get("condition", "")
        return f"{name} is there only sometimes: {condition}" if condition else ""

    def _canonical(self, name: str) -> str:
        old = next((prefix for prefix in _prefixes(name) if prefix in self.same), "")
        return self.same[old] + name[len(old) :] if old else name


def load(root: Path) -> Surfaces:
    """All surfaces of a checkout. Raises CheckError when there are none."""
    files = sorted((root / FOLDER).glob("*.json"))
    if not files:
        raise CheckError(
            Problem(
                what="the vendors' names can not be checked",
                found=f"no file {FOLDER}/*.json below {root}",
                expected="one file for each vendor's module",
                do="run this from the root of a checkout",
            )
        )
    names: dict[str, Mapping[str, Any]] = {}
    roots: set[str] = set()
    same: dict[str, str] = {}
    for file in files:
        data = json.loads(file.read_text(encoding="utf-8"))
        # `torch.npu (torch_npu)`; a module after `+` is torch's own, of which a few names are listed.
        own = re.findall(r"(?<![\w.+])[A-Za-z_]\w*(?:\.\w+)*", data["module"])
        roots |= set(own)
        same |= {f"{module}.{own[0].removeprefix('torch.')}": own[0] for module in own[1:]}
        if ".torch." in own[0]:
            same[own[0].partition(".")[2]] = own[0]
        roots |= {".".join(name.split(".")[:3]) for name in data["names"] if name.startswith("torch.ops.")}
        # Of a name that two releases offer, the one without a condition counts.
        names |= {
            n: about for n, about in data["names"].items() if n not in names or names[n].get("condition")
        }
    modules = {prefix for name in names for prefix in _prefixes(name) if prefix != name}
    return Surfaces(names, frozenset(modules), frozenset(_widest(roots)), same)


def _widest(roots: set[str]) -> Iterator[str]:
    """A vendor's whole distribution is its own, not only the module below which its names are."""
    for root in roots:
        first = root.partition(".")[0]
        yield root if first == "torch" else first


def _prefixes(name: str) -> Iterator[str]:
    """The name itself, then each shorter prefix."""
    while name:
        yield name
        name = name.rpartition(".")[0]
