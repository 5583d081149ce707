# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Port many files: read, find out what they define together, port each in its own process."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from accel_port.files import Text
from accel_port.notebook import Notebook
from accel_port.porting import port
from accel_port.rules.base import Finding, ProjectFacts, Unstable
from accel_port.syntax import SourceLines

_IMPORT = re.compile(
    r"^[ \t]*from[ \t]+(?P<module>[.\w]+)[ \t]+import\b(?P<names>[ \t]*\([^)]*\)|(?:\\\r?\n|[^\r\n;])*)",
    re.MULTILINE,
)
_PARALLEL_FROM = 40  # files; below, starting processes costs more


@dataclass(frozen=True)
class FindingRow:
    """One finding with its place: the line (from 1) and column of the file's text, in a notebook of its code."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    finding: Finding


@dataclass(frozen=True)
class FileResult:
    """Result of one file. `before` and `after` are its bytes; `failure` says why it was not read."""

    path: Path
    before: bytes = b""
    after: bytes = b""
    rows: tuple[FindingRow, ...] = ()
    failure: str = ""
    lines: int = 0

    @property
    def changed(self) -> bool:
        """True if the port changes the file."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = (
            Text.decode(data, self.path.suffix != ".ipynb").text for data in (self.before, self.after)
        )
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{self.path}",
            f"b/{self.path}",
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


def port_files(
    files: list[Path],
    target: str = "deepspeed",
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FileResult]:
    """Port files; nothing is written. The results are in the order of the files."""
    modules = frozenset(name for file in files for name in (file.stem, file.parent.name))
    facts = replace(_facts(files), modules=modules)
    work = partial(port_file, target=target, facts=facts)
    jobs = min(jobs or os.cpu_count() or 1, max(1, len(files) // _PARALLEL_FROM + 1))
    results: list[FileResult] = []
    for result in _mapped(work, files, jobs):
        results.append(result)
        progress(len(results), len(files))
    return results


def _mapped(work: Callable[[Path], FileResult], files: list[Path], jobs: int) -> Iterator[FileResult]:
    if jobs == 1:
        yield from map(work, files)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, files, chunksize=8)


def _facts(files: list[Path]) -> ProjectFacts:
    texts = dict(_texts(files))
    own_names = frozenset().union(*(ProjectFacts.of(text, str(file.parent)) for file, text in texts.items()))
    return ProjectFacts(own_names, shared=_shared(texts))


def _texts(files: list[Path]) -> Iterator[tuple[Path, str]]:
    for file in files:
        with suppress(OSError):
            yield file, file.read_bytes().decode("utf-8", "replace")


def _shared(texts: dict[Path, str]) -> frozenset[str]:
    """Return the names that a file imports from torch.cuda, and another from that file."""
    offered = {
        (file.parent.name if file.stem == "__init__" else file.stem, name)
        for file, text in texts.items()
        if "torch.cuda" in text
        for module, names in _imports(text)
        if module.startswith("torch.cuda")
        for _, name in names
    }
    found = re.compile(rf"\b({'|'.join({name for _, name in offered})})\b|import +\*")
    stems = {stem for stem, _ in offered}
    whole = re.compile(rf"\b(?P<module>[.\w]*\b({'|'.join(stems)}))\b(?:[ \t]+as[ \t]+(?P<bound>\w+))?")
    taken = set[tuple[str, str]]()
    for text in texts.values() if offered else ():
        if not found.search(text):
            continue
        for statement in re.findall(r"^[ \t]*import[ \t]+([^\r\n;#]+)", text, re.MULTILINE):
            for match in whole.finditer(statement):
                bound, stem = match["bound"] or match["module"], match["module"].rpartition(".")[2]
                taken |= {(stem, use) for use in re.findall(rf"\b{re.escape(bound)}\.(\w+)", text)}
        for module, names in _imports(text):
            taken |= {(module.rpartition(".")[2], name) for name, _ in names}
            # An attribute of a module that is imported itself.
            taken |= {
                (name, use)
                for name, bound in names
                if name in stems
                for use in re.findall(rf"\b{bound}\.(\w+)", text)
            }
    return frozenset(name for stem, name in offered if taken & {(stem, name), (stem, "*")})


def _imports(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the module of each `from module import name as bound`, with names and bound names."""
    for match in _IMPORT.finditer(text):
        names = re.sub(r"#.*", "", match["names"])
        parts = (re.findall(r"\*|\w+", part) for part in names.split(","))
        yield match["module"], [(part[0], part[-1]) for part in parts if part]


def port_file(path: Path, target: str, facts: ProjectFacts) -> FileResult:
    """Port one file; what cannot be read, parsed or ported safely is a failure and stays as it is."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return FileResult(path, failure=f"it cannot be read: {error.strerror}")
    try:
        return _ported(path, data, target, facts)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return FileResult(path, data, data, failure=f"it does not parse: {where}{error.msg}")
    except UnicodeError as error:
        return FileResult(path, data, data, failure=f"its encoding is not what it says: {error}")
    except (ValueError, RecursionError, MemoryError) as error:
        return FileResult(path, data, data, failure=f"it does not parse: {error}")
    except Unstable as error:
        return FileResult(path, data, data, failure=f"it is left, by a fault of accel-port: {error}")


def _ported(path: Path, data: bytes, target: str, facts: ProjectFacts) -> FileResult:
    if path.suffix == ".ipynb":
        file = Text.decode(data, python=False)
        notebook = Notebook(file.text)
        ported = port(notebook.source, target, facts, str(path.parent))
        new = notebook.edited(ported.edits)
        source = notebook.source
        if ported.edits and Notebook(new).source != ported.text:
            raise Unstable("the cells of the notebook are not the ported code")
    else:
        file = Text.decode(data)
        source = file.text
        ported = port(source, target, facts, str(path.parent))
        new = ported.text
    rows = tuple(_rows(path, source, ported.findings))
    return FileResult(
        path, data, file.encode(new) if new != file.text else data, rows, lines=source.count("\n")
    )


def _rows(path: Path, source: str, findings: Iterable[Finding]) -> Iterator[FindingRow]:
    lines = SourceLines(source)
    for finding in findings:
        code = " ".join(source[finding.start : finding.end].split())
        yield FindingRow(str(path), *lines.place(finding.start), *lines.place(finding.end), code, finding)
