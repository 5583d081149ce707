# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Put a mutant into this process, and into the processes that it starts.

Here the code of the function objects is replaced, so that every reference, closure and table sees the mutant.
Started processes import the package from a folder in which one file is the mutant's and all others are links.
"""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

from accel_testkit.mutation import tables
from accel_testkit.mutation.source import FunctionNode, Mutant, Source

#: (file, name, first line) of a code object -> the functions that run it.
Live = Mapping[tuple[str, str, int], Sequence[FunctionType]]
_Path = tuple[tuple[str, int], ...]


def live_functions(places: Sequence[str]) -> Live:
    """Return the functions of this process that are defined in files whose paths begin so."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(tuple(places)):
            found.setdefault(_key(thing.__code__), []).append(thing)
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_name, code.co_firstlineno


def differs(mutant: Mutant) -> bool:
    """Return whether a mutant is another program than its source."""
    return mutant.table or bool(changes(mutant))


def changes(mutant: Mutant) -> list[tuple[CodeType, CodeType]]:
    """Return pairs of code that differ, the source's and the mutant's; none if the mutant is the same program."""
    name = str(mutant.source.path)
    before = dict(_codes(compile(mutant.source.text, name, "exec", dont_inherit=True)))
    tree = ast.parse(mutant.text)
    for path, node in _functions(tree):
        if path in before:
            _keep_free_variables(node, before[path].co_freevars)
    after = dict(_codes(compile(tree, name, "exec", dont_inherit=True)))
    wanted = tuple(part for part in mutant.function.split(".") if part != "<locals>")
    return [
        (code, after[path])
        for path, code in before.items()
        if _around(tuple(part for part, _ in path), wanted)
        and path in after
        and _program(code) != _program(after[path])
    ]


def _around(names: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Return whether a function is the wanted one, in it, or around it: that makes it anew at each call."""
    shorter = min(len(names), len(wanted))
    return names[:shorter] == wanted[:shorter]


def _program(code: CodeType) -> tuple[object, ...]:
    constants = tuple(
        _program(constant) if isinstance(constant, CodeType) else (type(constant), repr(constant))
        for constant in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, constants


def _keep_free_variables(node: FunctionNode, names: Sequence[str]) -> None:
    """Mention them in code that never runs: a function's code cannot be replaced by one with fewer."""
    if names:
        mentioned: list[ast.expr] = [ast.Name(id=name, ctx=ast.Load()) for name in names]
        never = ast.If(
            test=ast.Constant(value=False),
            body=[ast.Expr(value=ast.Tuple(elts=mentioned, ctx=ast.Load()))],
            orelse=[],
        )
        node.body.append(ast.fix_missing_locations(ast.copy_location(never, node.body[-1])))


def _codes(code: CodeType, path: _Path = ()) -> Iterator[tuple[_Path, CodeType]]:
    """Yield the functions and classes in a code object, by their names from the module on."""
    seen: dict[str, int] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and not constant.co_name.startswith("<"):
            number = seen[constant.co_name] = seen.get(constant.co_name, -1) + 1
            here = (*path, (constant.co_name, number))
            yield here, constant
            yield from _codes(constant, here)


def _functions(tree: ast.AST, path: _Path = ()) -> Iterator[tuple[_Path, FunctionNode]]:
    seen: dict[str, int] = {}
    for node in _scope(tree):
        number = seen[node.name] = seen.get(node.name, -1) + 1
        here = (*path, (node.name, number))
        if not isinstance(node, ast.ClassDef):
            yield here, node
        yield from _functions(node, here)


def _scope(node: ast.AST) -> Iterator[FunctionNode | ast.ClassDef]:
    """Yield the functions and classes that a scope defines, in the order of the source."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        else:
            yield from _scope(child)


def install(mutant: Mutant, live: Live) -> int:
    """Replace the code of the functions of this process, or a table; returns how many there were."""
    if mutant.table:
        return tables.install(mutant)
    count = 0
    for before, after in changes(mutant):
        for function in live.get(_key(before), ()):
            if function.__code__.co_freevars == after.co_freevars:
                function.__code__ = after
                count += 1
    return count


def overlay(mutant: Mutant, folder: Path) -> None:
    """Make processes that this one starts import the mutant, from a package built in the folder."""
    root = _root(mutant.source)
    relative = mutant.source.path.relative_to(root)
    here, there = folder, root
    for part in relative.parts[:-1]:
        here, there = here / part, there / part
        here.mkdir()
        for entry in there.iterdir():
            if entry.name != "__pycache__":
                (here / entry.name).symlink_to(entry)
        following = relative.parts[len(here.relative_to(folder).parts)]
        (here / following).unlink()
    (folder / relative).write_text(mutant.text, encoding="utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # links lead to the folders of the real package


def _root(source: Source) -> Path:
    depth = source.module.count(".") + (2 if source.path.name == "__init__.py" else 1)
    return source.path.parents[depth - 1]
