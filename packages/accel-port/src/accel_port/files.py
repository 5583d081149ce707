# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files: which belong to a project, their text with encoding and line ends kept, and writing all or none."""

from __future__ import annotations

import codecs
import io
import os
import stat
import subprocess
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_port.errors import PortError

SUFFIXES = (".py", ".pyi", ".ipynb")
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})


@dataclass(frozen=True)
class Text:
    """The decoded text of a file. `bom` and `encoding` bring back its bytes."""

    text: str
    encoding: str = "utf-8"
    bom: bool = False

    @staticmethod
    def decode(data: bytes, python: bool = True) -> Text:
        """Decode a file as Python would. Raises `SyntaxError`, `UnicodeDecodeError`."""
        bom = data.startswith(codecs.BOM_UTF8)
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0] if python else "utf-8"
        body = data[len(codecs.BOM_UTF8) :] if bom else data
        return Text(body.decode("utf-8" if encoding == "utf-8-sig" else encoding), encoding, bom)

    def encode(self, text: str) -> bytes:
        """Return the bytes of another text in this file's encoding. Raises `UnicodeEncodeError`."""
        encoding = "utf-8" if self.encoding == "utf-8-sig" else self.encoding
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(encoding)


def found_in(paths: Iterable[Path]) -> list[Path]:
    """Return the Python files and notebooks of paths, sorted, each once, without links; or raise `PortError`."""
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for file in _walk(path):
                files.setdefault(file)
        elif path.is_file():
            if path.suffix not in SUFFIXES and not _names_python(path):
                raise PortError(
                    f"{path} cannot be ported",
                    f"a file with the suffix {path.suffix or 'of none'!r}",
                    f"a folder, or a file with one of {' '.join(SUFFIXES)}",
                    "name the Python files",
                )
            files.setdefault(path)
        else:
            raise PortError(
                f"{path} cannot be read", "no such file or folder", "a file or a folder", "check the path"
            )
    return list(files)


def _names_python(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if path.suffix in SUFFIXES and not path.is_symlink():
                yield path


def refuse_dirty(paths: Iterable[Path]) -> None:
    """Refuse to write over changes that git does not have. Raises `PortError`."""
    folders = {path if path.is_dir() else path.parent for path in paths}
    for folder in sorted(folders):
        try:
            asked = ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no", "--", "."]
            status = subprocess.run(asked, capture_output=True, text=True, check=False)
        except OSError:
            return  # no git here: nothing to ask
        if status.returncode == 0 and (lines := status.stdout.splitlines()):
            raise PortError(
                "nothing is written",
                f"{len(lines)} changed file(s) that git has not: {', '.join(line[3:] for line in lines[:3])}",
                "a clean work tree, so that `git diff` shows the port alone",
                "commit or stash them, or add --force",
            )


def write_all(changes: Mapping[Path, tuple[bytes, bytes]], root: Path) -> None:
    """Write every file or none. `changes` has the bytes before and after.

    Raises `PortError` if a file has changed since it was read, is a link or outside of the root, or cannot be written.
    """
    # Each is written to a temporary neighbour and then renamed; renamed files are restored if a later one fails.
    prepared: list[tuple[Path, Path]] = []
    done: list[Path] = []
    current = root
    try:
        for path, (before, after) in changes.items():
            current = path
            _check(path, before, root)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".accel-port", dir=path.parent)
            prepared.append((Path(name), path))
            with os.fdopen(handle, "wb") as file:
                file.write(after)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, stat.S_IMODE(path.stat().st_mode))
        for temporary, path in prepared:
            current = path
            _check(path, changes[path][0], root)
            os.replace(temporary, path)
            done.append(path)
    except BaseException as error:
        for path in done:
            path.write_bytes(changes[path][0])
        if isinstance(error, OSError):
            raise PortError(
                "no file is changed",
                f"{current} cannot be written: {error.strerror or error}",
                "every file can be written",
                "make it writable, or leave it out of the paths",
            ) from error
        raise
    finally:
        for temporary, _ in prepared:
            temporary.unlink(missing_ok=True)


def _check(path: Path, before: bytes, root: Path) -> None:
    what, expected = "no file is changed", "an ordinary file below the given paths, as it was read"
    if path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise PortError(what, f"{path} is a link, or leads out of {root}", expected, "name the file itself")
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "it is read-only", str(path))
    if path.read_bytes() != before:
        raise PortError(what, f"{path} has changed since it was read", expected, "run it again")
