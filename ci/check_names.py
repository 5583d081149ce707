# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does every name that a vendor package uses exist in the vendor's module?

    python -m ci.check_names

The names are those of shared/surfaces/*.json, read from the real modules. Checked are the chains
(`torch.npu.Stream`, `torch_npu.npu.is_available`, `torch.ops.npu.…`) in each vendor package, and what core's
TorchDeviceAccelerator asks of its device module (`self.device_module.…`) unless the vendor overrides the method.
What stands under `hasattr`, or in `getattr` with a default, may be missing. So may a line that says why:
`# names: <reason>`. Prints file:line for every fault and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci import git, workspace
from ci.house.source import Source, Violation, tell
from ci.names import classes, surfaces, uses
from ci.names.classes import DeviceClass
from ci.names.shaped import Shaped
from ci.problem import CheckError

_RULE = "a vendor's name that is used exists"


def check(root: Path) -> Iterator[tuple[Violation, str]]:
    """Every fault, with the reason why it is let through (empty where there is none)."""
    offered = surfaces.load(root)
    packages = workspace.load(root)
    files = [path for path in git.files(root) if path.endswith(".py")]
    core = _read(root, files, packages[workspace.CORE].source) if workspace.CORE in packages else []
    for package in packages.values():
        if package.vendors:
            sources = _read(root, files, package.source)
            found = list(classes.find(sources, core))
            namespaces = {kind.namespace for kind in found}
            shaped = Shaped(sources, namespaces, offered)
            yield from _own(sources, namespaces, shaped)
            for kind in found:
                yield from _inherited(kind, shaped)


def _read(root: Path, files: Sequence[str], room: str) -> list[Source]:
    inside = [path for path in files if path.startswith(f"{room}/")]
    return [Source(path, (root / path).read_text(encoding="utf-8")) for path in inside]


def _own(sources: Sequence[Source], namespaces: set[str], offered: Shaped) -> Iterator[tuple[Violation, str]]:
    """Faults in a vendor's own files; `self.device_module` may be any of the package's device modules."""
    for source in sources:
        seen = set()
        for namespace in namespaces or {""}:
            aliases = {uses.NAMESPACE: namespace} if namespace else {}
            for use in uses.Reader(source, aliases).read():
                fault = offered.fault(use.name)
                if fault and use not in seen:
                    seen.add(use)
                    yield source.violation(use.line, _RULE, fault), use.reason


def _inherited(kind: DeviceClass, offered: Shaped) -> Iterator[tuple[Violation, str]]:
    """Faults of what core's classes ask of this vendor's device module."""
    for source, use in kind.inherited:
        fault = offered.fault(use.name.replace(uses.NAMESPACE, kind.namespace, 1))
        if fault:
            where = f"{source.path}:{use.line}"
            found = f"{fault}, {use.method}() of {where} uses it, and {kind.name} does not override that"
            yield kind.source.violation(kind.line, _RULE, found), use.reason


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.check_names", description="Does every vendor's name that is used exist?"
    )
    parser.parse_args(arguments)
    try:
        return tell(check(root or Path.cwd()))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
