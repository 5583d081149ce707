# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls of torch whose default device is CUDA, or that have a state for each device, in DeepSpeed and in our packages.

`python -m ci.device_calls` prints calls without a decision in ci/device_calls.toml, and decisions without a call. If
there are none, it writes docs/results/device-calls.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path

from accel_core.vendor import deepspeed_folder
from ci.pages import page
from ci.program import Problem, report
from ci.workspace import read_toml

ROOT = Path(__file__).parents[1]
DECISIONS, PAGE = ROOT / "ci/device_calls.toml", ROOT / "docs/results/device-calls.md"
DATA = read_toml(DECISIONS)


def calls(root: Path, skipped: Sequence[str] = ()) -> Counter[tuple[str, str]]:
    """Return the calls below a folder as (file:function, text), and how often each is there.

    Line numbers change with every commit.
    """
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if not any(fnmatchcase(file, pattern) for pattern in skipped):
            found.update(_in(ast.parse(path.read_text(encoding="utf-8")), f"{file}:"))
    return found


def _in(node: ast.AST, place: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if text := _text(child):
            yield place, text
            if isinstance(child, ast.Attribute):
                continue  # its parts are shorter names of the same
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _in(child, f"{place}.{child.name}".replace(":.", ":"))
        else:
            yield from _in(child, place)


def _text(node: ast.AST) -> str:
    """Return the call as the page shows it, empty for any other node."""
    torch, called, interface = (re.compile(DATA[each]) for each in ("torch", "called", "interface"))
    if isinstance(node, ast.Attribute) and torch.match(name := ast.unparse(node)):
        return name
    if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
        return ".is_cuda"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if called.fullmatch(name) and not interface.fullmatch(name) and not torch.match(name):
            return f"{name}()"
        pins = {each.arg for each in node.keywords if ast.unparse(each.value) != "False"}
        if "pin_memory" in pins and re.search(r"DataLoader|torch\.\w+$|new_\w+$", name):
            return f"{name}(pin_memory=…)"
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"cuda(:|$)", node.value):
        return repr(node.value)
    return ""


def sources() -> dict[str, Counter[tuple[str, str]]]:
    """Return the calls of DeepSpeed and of our packages."""
    found = {f"DeepSpeed {metadata.version('deepspeed')}": calls(deepspeed_folder() or ROOT, DATA["skipped"])}
    # accel-sim and accel-rehearse implement devices, and accel-port has such calls as text to rewrite.
    skipped = ("accel_rehearse/*", "accel_sim/*", "accel_port/*")
    ours = [calls(each, skipped) for each in sorted(ROOT.glob("packages/accel-*/src"))]
    return found | {"accel": sum(ours, Counter())}


def decided(
    found: Mapping[str, Counter[tuple[str, str]]],
) -> tuple[list[Problem], dict[str, list[list[str]]]]:
    """Return calls without a decision and decisions without a call, and the rows of each source."""
    problems, rows, unused = [], dict[str, list[list[str]]](), list(DATA["decision"])
    for source, counted in found.items():
        for (place, text), count in counted.items():
            for each in DATA["decision"]:
                if fnmatchcase(place, each["where"]) and fnmatchcase(text, each.get("call", "*")):
                    unused = [other for other in unused if other is not each]
                    times = f" ({count} times)" if count > 1 else ""
                    row = [f"`{place}`", f"`{text}`{times}", each["outcome"], each["why"]]
                    rows.setdefault(source, []).append(row)
                    break
            else:
                problems.append(Problem(f"no decision: {source}: {place}: {text}"))
    return problems + [Problem(f"no call: {each}") for each in unused], rows


def main() -> int:
    """Print the problems, or write the page."""
    problems, rows = decided(sources())
    if not problems:
        PAGE.write_text(page("device-calls", rows=rows), encoding="utf-8")
    return report(problems, "each call has a decision")


if __name__ == "__main__":
    sys.exit(main())
