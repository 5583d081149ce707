# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the ops, made by rule: change one thing in a source, and see whether the suite fails.

    python packages/accel-testkit/tests/mutate.py --seed 1 --count 50 OUT

OUT gets a line for each mutant: killed or alive, file, line, old and new source. Messages are left alone.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = {
    "accel-ops/src/accel_ops/torch_fallbacks.py": ("", "RandomLTD or Spatial or Packbits or Evoformer"),
    "accel-ops/src/accel_ops/inference.py": ("", "Inference or attention"),
    "accel-ops/src/accel_ops/quantizers/quantizer.py": ("", "Quantizer or quantizer"),
    "accel-ops/src/accel_ops/quantizers/fp_quantizer.py": ("", "FPQuantizer or fp_quantizer"),
    "accel-ops/src/accel_ops/optimizers/fused.py": ("npu", "Fused"),
    "accel-npu/src/accel_npu/op_builder/quantizer.py": ("npu", "Quantizer or quantizer"),
    "accel-npu/src/accel_npu/op_builder/inference.py": ("npu", "Inference or attention"),
    "accel-npu/src/accel_npu/op_builder/fused.py": ("npu", "Fused"),
    "accel-hpu/src/accel_hpu/op_builder/inference.py": ("hpu", "Inference or attention"),
    "accel-sdaa/src/accel_sdaa/op_builder/fused.py": ("sdaa", "Fused"),
    "accel-ops/csrc/kernels.inc": ("", "CPUAdam or CPULion or CPUAdagrad"),
    "accel-ops/csrc/optimizers.cpp": ("", "CPUAdam or CPULion or CPUAdagrad"),
}
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_TOKENS = (
    (" < ", " <= "), (" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), ("1.0f", "2.0f"), ("0.0f", "1.0f"),
)  # fmt: skip


def _skipped(node: ast.AST) -> bool:
    message = isinstance(node, ast.Call) and "invalid" in ast.unparse(node.func).lower()
    return message or isinstance(node, ast.Raise | ast.AnnAssign | ast.arguments | ast.JoinedStr)


def _nodes(tree: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes in functions, without messages, defaults and annotations."""
    for child in ast.iter_child_nodes(tree):
        if not _skipped(child):
            within = inside or isinstance(child, ast.FunctionDef)
            if inside:
                yield child
            yield from _nodes(child, within)


def of_python(source: str) -> list[tuple[int, int]]:
    """Return the places of mutants: which node, and how it is changed."""
    nodes = [*_nodes(ast.parse(source))]
    return [
        (at, how) for at in range(len(nodes)) for how in range(3) if _changed(copy.deepcopy(nodes[at]), how)
    ]


def python_mutant(source: str, place: tuple[int, int]) -> tuple[int, str, str, str]:
    """Return line, old and new text, and the whole new source."""
    tree = ast.parse(source)
    node = [*_nodes(tree)][place[0]]
    old = ast.unparse(node)
    _changed(node, place[1])
    mark, text = "from __future__ import annotations\n", ast.unparse(ast.fix_missing_locations(tree))
    at = text.find(mark) + len(mark) if mark in text else 0
    text = f"{text[:at]}def _same(x):\n    return x\n\n\n{text[at:]}"
    return getattr(node, "lineno", 0), old, ast.unparse(node), text


def _changed(node: ast.AST, how: int) -> bool:
    """Change a node in place, if there is a way of this number."""
    match how, node:
        case 0, ast.BinOp() | ast.BoolOp() if type(node.op) in _SWAPS:
            node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
        case 0, ast.Compare() if type(node.ops[0]) in _SWAPS:
            node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        case 0, ast.Constant(value=bool(value)):
            node.value = not value
        case 0, ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
        case 0, ast.IfExp():
            node.body, node.orelse = node.orelse, node.body
        case 1, ast.Call(args=[first, second, *_]) if "transpose" not in ast.unparse(node.func):
            node.args[:2] = second, first
        case 1, ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case 2, ast.Call(func=ast.Attribute(value=changed, attr=name)) if name.endswith("_"):
            node.func, node.args, node.keywords = ast.Name("_same"), [changed], []
        case _:
            return False
    return True


def of_cpp(source: str) -> list[tuple[int, str, str]]:
    """Return the same of C++: where, and which text takes the place of which."""
    code = re.sub(r"//[^\n]*|^#[^\n]*", lambda match: " " * len(match[0]), source, flags=re.M)
    return [(match.start(), old, new) for old, new in _TOKENS for match in re.finditer(re.escape(old), code)]


def cpp_mutant(source: str, place: tuple[int, str, str]) -> tuple[int, str, str, str]:
    """Return line, old and new text, and the whole new source."""
    at, old, new = place
    line = source[source.rfind("\n", 0, at) + 1 : source.find("\n", at)].strip()
    return source.count("\n", 0, at) + 1, f"{old} in {line}", new, source[:at] + new + source[at + len(old) :]


def killed(package: str, path: str, text: str, vendor: str, checks: str) -> bool:
    """Run the checks on a copy of the package with this source. A kernel that does not compile is killed."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "packages", package)
        Path(folder, "shared").symlink_to(ROOT / "shared")  # headers
        ignored = shutil.ignore_patterns("tests", "__pycache__", "build", "dist")
        shutil.copytree(ROOT / "packages" / package, place, ignore=ignored)
        Path(folder, "packages", path).write_text(text, encoding="utf-8")
        cache = {} if vendor else {"ACCEL_CACHE_DIR": str(Path(folder, "cache"))}  # keeps the built simulator
        own = {"PYTHONPATH": str(place / "src"), **cache}
        environment = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}
        compiled = "from accel_ops.host import library; raise SystemExit(library.load().functions is None)"
        if subprocess.run(
            [sys.executable, "-c", compiled], env=environment, capture_output=True, check=False
        ).returncode:
            return True
        suite = (
            f"pytest --pyargs accel_testkit.suite --accel {vendor or 'cpu'} -x -q -p no:cacheprovider -n 0 -k"
        )
        command = [sys.executable, "-m", *suite.split(), f"(test_ops or test_op_) and ({checks})"]
        simulated = [sys.executable, "-m", "accel_core.cli", "sim", vendor, "--"] if vendor else []
        done = subprocess.run(
            [*simulated, *command], env=environment, capture_output=True, timeout=900, check=False
        )
        return done.returncode != 0


def main() -> None:
    """Draw mutants, and write what became of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    texts = {path: (ROOT / "packages" / path).read_text(encoding="utf-8") for path in SOURCES}
    left = {path: (of_python if path.endswith(".py") else of_cpp)(text) for path, text in texts.items()}
    sound: set[str] = set()
    for _ in range(options.count):
        path = draw.choice([path for path in left if left[path]])
        place = left[path].pop(draw.randrange(len(left[path])))
        make = python_mutant if path.endswith(".py") else cpp_mutant
        line, old, new, text = make(texts[path], place)  # type: ignore[arg-type]
        if path not in sound and killed(path.partition("/")[0], path, texts[path], *SOURCES[path]):
            raise SystemExit(f"the checks fail, or there are none, without a mutant in {path}")
        sound.add(path)
        alive = not killed(path.partition("/")[0], path, text, *SOURCES[path])
        with options.out.open("a", encoding="utf-8") as out:
            out.write(f"{'alive ' if alive else 'killed'} {path}:{line}: {old[:90]!r} -> {new[:90]!r}\n")


if __name__ == "__main__":
    main()
