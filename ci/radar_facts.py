# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a DeepSpeed defines that concerns this project, read from its sources without importing them.

The facts of a tree are a flat {module:name: how it is defined}, by which two commits are compared. A file is read once
for all commits in which it is the same.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accel_core.upstream.contract import TRIED
from accel_core.vendor import in_range
from accel_ops.offload import fast_writer, fixes, patches, speedups
from ci.workspace import git

Facts = dict[str, str]
ABSTRACT, CALL = " abstract", "get_accelerator:"
#: DeepSpeed's folders in its repository, by their place in the package: two of them are links there.
FOLDERS = {"deepspeed": "", "accelerator": "deepspeed/", "op_builder": "deepspeed/ops/"}
#: Modules whose definitions concern every user.
_PUBLIC = re.compile(r"deepspeed\.(accelerator|ops\.op_builder|runtime\.engine$|.*config|.*constants$)")


class Tree(NamedTuple):
    """The Python files of one DeepSpeed: the identity of each content, by the file's path in the package."""

    files: Mapping[str, str]
    read: Callable[[str], str]


def of_commit(checkout: Path, commit: str) -> Tree:
    """Return the tree of a commit."""
    files = {}
    for line in git(checkout, "ls-tree", "-r", commit, "--", *(f"{each}/" for each in FOLDERS)).splitlines():
        about, path = line.split("\t")
        if path.endswith(".py"):
            files[FOLDERS[path.partition("/")[0]] + path] = about.split()[2]
    return Tree(files, lambda path: git(checkout, "cat-file", "blob", files[path]))


def of_folder(folder: Path) -> Tree:
    """Return the tree of an installed DeepSpeed."""
    texts = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob("deepspeed/**/*.py")
    }
    identities = {path: hashlib.sha256(text).hexdigest() for path, text in texts.items()}
    return Tree(identities, lambda path: texts[path].decode(errors="replace"))


class Reader:
    """Reads facts; keeps those of each content."""

    def __init__(self, root: Path) -> None:
        """Find out what the sources below `root` use."""
        self.used = used_names(root)
        self._modules = {name.partition(":")[0] for name in self.used}
        self._kept: dict[tuple[str, str], Facts] = {}

    def facts(self, tree: Tree) -> Facts:
        """Return the facts of a tree."""
        found: Facts = {}
        for each in tree.files.items():
            if each not in self._kept:
                self._kept[each] = self._of_file(each[0], tree.read(each[0]))
            found |= self._kept[each]
        return found

    def _of_file(self, path: str, text: str) -> Facts:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found = dict.fromkeys(
            (CALL + name for name in re.findall(r"get_accelerator\(\)\.(\w+)", text)), "called"
        )
        found[f"{module}:"] = "module"
        if module in self._modules or _PUBLIC.match(module):
            try:
                found |= {f"{module}:{name}": how for name, how in _definitions(ast.parse(text).body)}
            except SyntaxError:
                return found
            lines = text.splitlines(keepends=True)
            for name in watched().keys() & found.keys():
                source = patches.written_source(lines, *name.partition(":")[2].split("."))
                found[name] = patches.fingerprint(source)
        return found


@functools.cache
def watched() -> dict[str, dict[str, str]]:
    """Return the methods that are replaced or relied upon: {known fingerprint: the replacement} for each."""
    found: dict[str, dict[str, str]] = {}
    newest = next(each.version for each in TRIED if each.operator == "<=")
    for change in (*speedups.SPEEDUPS, *fast_writer.CHANGES, *fixes.FIXES):
        if not in_range(newest, change.releases):
            continue  # an older series, which gets no commits
        for method, known, _ in change.methods:
            found.setdefault(f"{change.target}.{method}", {}).update(
                dict.fromkeys(known.split(), change.name)
            )
    return found


def used_names(root: Path) -> set[str]:
    """Return `module:name` for what our sources import of DeepSpeed or have in a text.

    Also what docs/upstream-hooks.md lists, as "`module`: `name`, `name`" or as "`module.name`".
    """
    found = {name.rpartition(".")[0] for name in watched()}
    for file in (*root.glob("packages/*/src/**/*.py"), *root.glob("examples/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "deepspeed":
                # What is imported may be a module.
                found |= {
                    f"{node.module}{mark}"
                    for each in node.names
                    for mark in (f":{each.name}", f".{each.name}:")
                }
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                dotted = re.fullmatch(r"(deepspeed\.[\w.]+):?(\w*)", node.value)
                found |= {f"{dotted[1]}:{dotted[2]}"} if dotted else set()
    hooks = root / "docs/upstream-hooks.md"
    rows = re.findall(
        r"^\| (`deepspeed\..+?) \|", hooks.read_text(encoding="utf-8") if hooks.is_file() else "", re.M
    )
    for names in (re.findall(r"`([\w.]+)`", row) for row in rows):
        found |= {f"{names[0]}:{name}" for name in names[1:] if "." not in name}
        found |= {":".join(name.rsplit(".", 1)) for name in names if "." in name}
    return found


def _definitions(body: Sequence[ast.AST], owner: str = "") -> Iterator[tuple[str, str]]:
    """Return the public names that statements define; of a function its signature."""
    for node in body:
        names: list[str] = []
        how = "defined"
        if isinstance(node, ast.FunctionDef):
            names = [node.name]
            abstract = any("abstractmethod" in ast.unparse(each) for each in node.decorator_list)
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
            how = f"({ast.unparse(node.args)}){ABSTRACT if abstract else ''}"
            if owner:
                stored = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
                names += [
                    e.attr for e in stored if isinstance(e.ctx, ast.Store) and ast.unparse(e.value) == "self"
                ]
        elif isinstance(node, ast.ClassDef):
            names = [node.name]
            yield from _definitions(node.body, f"{node.name}.")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            how = (
                "key" if isinstance(node, ast.AnnAssign) or names == [name.upper() for name in names] else how
            )
        elif isinstance(node, (ast.If, ast.Try, ast.ExceptHandler)):
            yield from _definitions(
                [*node.body, *getattr(node, "orelse", ()), *getattr(node, "handlers", ())], owner
            )
        for name in names:
            yield owner + name, how if name == names[0] else "defined"
