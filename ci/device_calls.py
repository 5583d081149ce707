# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls of torch whose default device is CUDA, or that have a state for each device, in DeepSpeed and in our packages.

`python -m ci.device_calls` prints those without a decision in ci/device_calls.toml, and decisions without a call;
`python -m ci.device_calls write` writes docs/results/device-calls.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path

from accel_core.vendor import deepspeed_folder
from ci.printed import table
from ci.workspace import read_toml

HERE = Path(__file__).parent
DECISIONS, PAGE = HERE / "device_calls.toml", HERE.parent / "docs/results/device-calls.md"
VERDICTS = ("right", "fixed", "named", "not reached")
#: Names of torch: modules with a device type of their own, states, and settings.
_TORCH = re.compile(
    r"torch\.(cuda|xpu|mps|amp|autocast|backends|random|accelerator|profiler|Stream|Event|Generator|compile"
    r"|utils\.checkpoint\.checkpoint|version\.cuda|seed|initial_seed|manual_seed|use_deterministic_algorithms"
    r"|is_deterministic_\w+|_C\._\w*cuda\w*|\w*(rng_state|autocast|default_device|matmul_precision)\w*)\b"
)
#: Methods and functions that take no device, or one with a default.
_CALLED = re.compile(
    r"(.*\.)?(cuda|pin_memory|is_pinned|record_stream|fork_rng|autocast|GradScaler|custom_fwd|custom_bwd|barrier"
    r"|init_device_mesh|DeviceMesh|profile|(all_gather|gather|scatter|broadcast|send|recv)_object(_list)?)"
)
#: Called through the interface, which the conformance suite checks on each device.
_INTERFACE = re.compile(
    r"(get_accelerator\(\)|(self\.)?_?accelerator|accel|dist|self\.\w*handle|\w*handle|pins)\.\w+"
)
#: DeepSpeed's accelerator classes and op builders are replaced; the others are compiled for CUDA.
_SKIPPED = (
    "accelerator/*",
    "ops/op_builder/*",
    "inference/v2/*",
    "ops/triton_ops/*",
    "ops/transformer/inference/*",
)


@dataclass(frozen=True)
class Call:
    """A call, without its line number, which changes with every commit."""

    file: str
    function: str
    text: str


def calls(root: Path, skipped: tuple[str, ...] = ()) -> Counter[Call]:
    """Return the calls in the sources below a folder, and how often each is there."""
    found: Counter[Call] = Counter()
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if not any(fnmatchcase(file, pattern) for pattern in skipped):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.update(Call(file, function, text) for function, text in _in(tree, ""))
    return found


def _in(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if text := _text(child):
            yield function, text
            if isinstance(child, ast.Attribute):
                continue  # its parts are shorter names of the same
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _in(child, f"{function}.{child.name}".lstrip("."))
        else:
            yield from _in(child, function)


def _text(node: ast.AST) -> str:
    """Return the call as the page shows it, empty for any other node."""
    if isinstance(node, ast.Attribute) and _TORCH.match(name := ast.unparse(node)):
        return name
    if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
        return ".is_cuda"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if _CALLED.fullmatch(name) and not _INTERFACE.fullmatch(name) and not _TORCH.match(name):
            return f"{name}()"
        pins = [
            each for each in node.keywords if each.arg == "pin_memory" and ast.unparse(each.value) != "False"
        ]
        if pins and re.search(r"DataLoader|torch\.\w+$|new_\w+$", name):
            return f"{name}(pin_memory=…)"
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"cuda(:|$)", node.value):
        return repr(node.value)
    return ""


def sources() -> dict[str, Counter[Call]]:
    """Return the calls of DeepSpeed and of our packages."""
    found = {f"DeepSpeed {metadata.version('deepspeed')}": calls(deepspeed_folder() or HERE, _SKIPPED)}
    ours: Counter[Call] = Counter()
    for package in sorted((HERE.parent / "packages").glob("accel-*/src")):
        # accel-sim and accel-rehearse implement devices, and accel-port has such calls as text to rewrite.
        ours.update(calls(package, ("accel_rehearse/*", "accel_sim/*", "accel_port/*")))
    return found | {"accel": ours}


def decided(found: dict[str, Counter[Call]]) -> tuple[list[str], dict[str, list[list[str]]]]:
    """Return what is wrong with the decisions, and the rows of each source."""
    decisions = read_toml(DECISIONS)["decision"]
    problems = [
        f"no such verdict: {each['verdict']}" for each in decisions if each["verdict"] not in VERDICTS
    ]
    used, rows = set(), dict[str, list[list[str]]]()
    for source, counted in found.items():
        for call, count in counted.items():
            place = f"{call.file}:{call.function}"
            which = next((i for i, each in enumerate(decisions) if _matches(each, place, call.text)), None)
            if which is None:
                problems.append(f"no decision: {source}: {place}: {call.text}")
                continue
            used.add(which)
            times = f" ({count} times)" if count > 1 else ""
            why = decisions[which]["why"]
            row = [f"`{place}`", f"`{call.text}`{times}", decisions[which]["verdict"], why]
            rows.setdefault(source, []).append(row)
    stale = [f"no call: {each}" for i, each in enumerate(decisions) if i not in used]
    return problems + stale, rows


def _matches(decision: dict[str, str], place: str, text: str) -> bool:
    return fnmatchcase(place, decision["where"]) and fnmatchcase(text, decision.get("call", "*"))


def page(rows: dict[str, list[list[str]]]) -> str:
    """Return the page."""
    text = (__doc__ or "").splitlines()[0]
    lines = [
        "# Calls of torch with a device",
        "",
        text,
        "`python -m ci.device_calls write` writes this page.",
        "",
    ]
    for source, each in rows.items():
        counted = Counter(row[2] for row in each)
        summary = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
        lines += [
            f"## {source}",
            "",
            f"{summary}.",
            "",
            *table(["where", "call", "verdict", "why"], each),
            "",
        ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the problems, or write the page; return 1 if there are problems."""
    problems, rows = decided(sources())
    if arguments == ["write"] and not problems:
        PAGE.write_text(page(rows), encoding="utf-8")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
