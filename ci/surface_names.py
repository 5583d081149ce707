# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Add the names of a vendor's Python sources to its surface, read as syntax trees: nothing of the vendor is imported.

    python -m ci.surface_names npu --sources FOLDER --module torch_npu.npu.amp=torch.npu.amp

--module adds a module's public names; --classes the methods, properties and attributes of those classes that the
surface has there already. Names that the surface has are kept as they are.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

SURFACES = Path(__file__).resolve().parent.parent / "shared" / "surfaces"
Entry = dict[str, str]
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One module's source."""

    name: str
    sources: Path

    @cached_property
    def path(self) -> Path:
        folder = self.sources.joinpath(*self.name.split("."))
        return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")

    @cached_property
    def body(self) -> list[ast.stmt]:
        return ast.parse(self.path.read_text(encoding="utf-8")).body if self.path.is_file() else []

    def listed(self) -> list[str]:
        """Return the public names: those of `__all__`, else what is defined without an underscore."""
        for node in self.body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                return [str(name) for name in ast.literal_eval(node.value)]
        named = [node.name for node in self.body if isinstance(node, (*_Function, ast.ClassDef))]
        return [name for name in named if not name.startswith("_")]

    def find(self, name: str) -> ast.stmt | None:
        """Return the definition of a name, in this module or the one of the package that it is imported from."""
        for node in self.body:
            if isinstance(node, (*_Function, ast.ClassDef)) and node.name == name:
                return node
        for node in self.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*" and (there := self._imported(node).find(name)):
                        return there
                    if (alias.asname or alias.name) == name:
                        return self._imported(node).find(alias.name)
        return None

    def _imported(self, node: ast.ImportFrom) -> Module:
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        base = package[: len(package) - node.level + 1] if node.level else []
        return Module(".".join([*base, *filter(None, [node.module])]), self.sources)


def entry(node: ast.stmt | None) -> Entry:
    """Return what a surface says of a definition."""
    if isinstance(node, _Function):
        return {"kind": "function", "signature": signature(node)}
    if isinstance(node, ast.ClassDef):
        makers = [
            each for each in node.body if isinstance(each, _Function) and each.name in ("__new__", "__init__")
        ]
        return {"kind": "class", "signature": signature(makers[0])} if makers else {"kind": "class"}
    return {"kind": "attr"}


def signature(node: Any) -> str:
    """Return a function's parameters as Python writes them."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}"


def members(node: ast.ClassDef) -> Iterator[tuple[str, Entry]]:
    """Yield the methods, properties and plain attributes of a class; of special methods only `_as_parameter_`."""
    for each in node.body:
        if isinstance(each, _Function) and (not each.name.startswith("_") or each.name == "_as_parameter_"):
            words = {ast.unparse(decorator) for decorator in each.decorator_list}
            if words & {"property", "cached_property"}:
                yield each.name, {"kind": "property"}
            elif not any(word.endswith(".setter") for word in words):
                yield each.name, {"kind": "method", "signature": signature(each)}
        elif isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    yield target.id, {"kind": "attr"}


def found(module: Module, prefix: str, *, classes_only: set[str] | None = None) -> dict[str, Entry]:
    """Return the entries below a prefix: a module's public names, or only the members of its named classes."""
    entries: dict[str, Entry] = {}
    for name in module.listed() if classes_only is None else sorted(classes_only):
        node = module.find(name)
        if classes_only is None:
            entries[f"{prefix}.{name}"] = entry(node)
        if isinstance(node, ast.ClassDef):
            entries |= {f"{prefix}.{name}.{member}": each for member, each in members(node)}
    return entries


def classes(names: dict[str, Any], prefix: str) -> set[str]:
    """Return the classes that a surface has directly below a prefix."""
    start = prefix + "."
    below = (full for full, each in names.items() if full.startswith(start) and each["kind"] == "class")
    return {full[len(start) :] for full in below if "." not in full[len(start) :]}


def main() -> None:
    """Write the surface with the names it lacked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("surface")
    parser.add_argument("--sources", type=Path, required=True, help="folder of the package's sources")
    parser.add_argument("--module", nargs="*", default=[], metavar="MODULE=PREFIX")
    parser.add_argument("--classes", nargs="*", default=[], metavar="MODULE=PREFIX")
    options = parser.parse_args()
    path = SURFACES / f"{options.surface}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = data["names"]
    new: dict[str, Entry] = {}
    for text in options.module:
        module, _, prefix = text.partition("=")
        new |= found(Module(module, options.sources), prefix)
    for text in options.classes:
        module, _, prefix = text.partition("=")
        new |= found(Module(module, options.sources), prefix, classes_only=classes(names, prefix))
    added = {name: each for name, each in new.items() if name not in names}
    data["names"] = dict(sorted({**names, **added}.items()))
    path.write_text(_json(data), encoding="utf-8")
    print(f"{path.name}: {len(added)} names added")


def _json(data: dict[str, Any]) -> str:
    """Return a surface as the files have it: one name a line."""
    names = ",\n".join(f"    {json.dumps(name)}: {json.dumps(each)}" for name, each in data["names"].items())
    head = "".join(
        f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in data.items() if key != "names"
    )
    return f'{{\n{head}  "names": {{\n{names}\n  }}\n}}\n'


if __name__ == "__main__":
    main()
