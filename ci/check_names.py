# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does every operator and module that a vendor package names in a way that mypy cannot follow exist?

    python -m ci.check_names

mypy knows the vendors' modules by their stubs (ci.stubs). To it every name below `torch.ops` is an operator, and a
text is a text. So these are looked up in shared/surfaces: `torch.ops.npu.npu_swiglu`, the same operator as a text
(`"npu.npu_swiglu"`), and the argument of `import_module`. Prints file:line for every fault and exits with 1.
Why: no type checker looks a text up, and torch types every name below torch.ops alike.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ci import git, workspace
from ci.house.source import Source, Violation, tell
from ci.problem import CheckError
from ci.stubs import surfaces
from ci.stubs.surfaces import Name

_RULE = "a vendor's name that is used exists"
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)")
#: Namespaces of torch.ops that torch fills.
_OF_TORCH = ("aten", "c10d", "mkldnn", "prims")


def check(root: Path) -> Iterator[Violation]:
    """Every fault in the sources of the vendor packages. Raises CheckError where a surface is missing."""
    operators, modules = surfaces.operators(root), surfaces.runtimes(root)
    folders = [f"{package.source}/" for package in workspace.load(root).values() if package.vendors]
    for path in git.files(root):
        if path.endswith(".py") and any(path.startswith(folder) for folder in folders):
            source = Source(path, (root / path).read_text(encoding="utf-8"))
            for node in ast.walk(source.tree):
                fault = _operator(node, operators) or _module(node, modules)
                if fault and isinstance(node, ast.expr):
                    yield source.violation(node.lineno, _RULE, fault)


def _operator(node: ast.AST, operators: Mapping[str, set[str]]) -> str:
    """The operator that the node names and no surface has; empty where there is none."""
    if isinstance(node, ast.Attribute):
        match = _OPERATOR.fullmatch(ast.unparse(node))
        if match is None or match[1] in _OF_TORCH:
            return ""
        namespace, name = match.groups()
    elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+\.\w+", str(node.value)):
        namespace, name = str(node.value).split(".")
        if namespace not in operators:
            return ""
    else:
        return ""
    return "" if name in operators.get(namespace, ()) else f"no surface has torch.ops.{namespace}.{name}"


def _module(node: ast.AST, modules: Name) -> str:
    """The vendor's module that the node imports by a text and no surface has; empty where there is none."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args):
        return ""
    name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    if not isinstance(name, str) or name.partition(".")[0] not in surfaces.PACKAGES:
        return ""
    return "" if modules.at(name) else f"no surface has {name}"


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.check_names",
        description="Does every vendor's name exist that mypy cannot look up?",
    )
    parser.parse_args(arguments)
    try:
        return tell((violation, "") for violation in check(root or Path.cwd()))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
