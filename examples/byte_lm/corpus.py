# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Real text as bytes: which files are read, which are kept for validation, and the entropy that a model must beat."""

from __future__ import annotations

import hashlib
import math
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from byte_lm.errors import BadInput

SEPARATOR = b"\0"  # no text file holds it, so it can mark where a file starts
VALIDATION_SHARE = 0.08
SMALLEST = 64 * 1024
NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test"}


@dataclass(frozen=True)
class Corpus:
    """Training and validation bytes, each file preceded by SEPARATOR, and what they were made of."""

    source: str
    train: bytes
    validation: bytes
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Equal only for equal bytes split alike; a resumed run must see the text it began with."""
        return hashlib.sha256(hashlib.sha256(self.train).digest() + self.validation).hexdigest()[:16]

    def check_length(self, context: int, ranks: int) -> None:
        """Raise BadInput unless each rank gets a window of context + 1 bytes to train on and to validate."""
        room = min(len(self.train) - 1, (len(self.validation) - 1) // ranks)
        if context > room:
            raise BadInput(
                "The text is too short for this context.",
                found=f"--context {context} and {len(self.validation):,} bytes of validation text, {ranks} rank(s)",
                expected=f"a context of at most {room} bytes",
                do="give a smaller --context or a folder with more text",
            )


def load_corpus(folder: Path | None, max_bytes: int) -> Corpus:
    """Read at most `max_bytes` of the folder's text files, or of Python's own library; raises BadInput."""
    root = folder or Path(sysconfig.get_path("stdlib"))
    if not root.is_dir():
        raise BadInput(
            "Cannot read the training text.",
            found=f"{root} is {'not a folder' if root.exists() else 'missing'}",
            expected="a folder that holds text files",
            do="name an existing folder with --data, or leave --data out to train on Python's own library",
        )
    files = read_texts(root, max_bytes, library=folder is None)
    size = sum(map(len, files.values()))
    if size < SMALLEST:
        raise BadInput(
            "There is too little text to train on.",
            found=f"{len(files)} text file(s) with {size:,} bytes in {root}",
            expected=f"at least {SMALLEST:,} bytes of text (files with a zero byte do not count as text)",
            do="add text files to the folder, or name another one with --data",
        )
    held_out = choose_validation({name: len(text) for name, text in files.items()})
    if not held_out:  # a single file: its end is held out
        files, held_out = cut_last_part(files), {"(end)"}
    return Corpus(
        source=str(folder) if folder else "the Python standard library's sources",
        train=b"".join(SEPARATOR + text for name, text in files.items() if name not in held_out),
        validation=b"".join(SEPARATOR + text for name, text in files.items() if name in held_out),
        train_files=tuple(name for name in files if name not in held_out),
        validation_files=tuple(name for name in files if name in held_out),
    )


def read_texts(root: Path, max_bytes: int, *, library: bool) -> dict[str, bytes]:
    """Distinct text files by relative name, in an order that the names alone decide."""
    texts: dict[str, bytes] = {}
    seen: set[bytes] = set()
    room = max_bytes
    for name in sorted(walk(root, library=library), key=lambda name: hashlib.sha256(name.encode()).digest()):
        if room <= 0:
            break
        text = read_start(root / name, room)
        digest = hashlib.sha256(text).digest()
        if text and SEPARATOR not in text and digest not in seen:  # a copy could stand on both sides
            seen.add(digest)
            texts[name] = text
            room -= len(text)
    return texts


def read_start(path: Path, size: int) -> bytes:
    """The first `size` bytes of the file; raises BadInput: a text with silent gaps is another text."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise BadInput(
            "Cannot read the training text.",
            found=f"{path}: {error.strerror}",
            expected="files that this user may read",
            do="make the file readable, move it away, or name another folder with --data",
        ) from error


def walk(root: Path, *, library: bool) -> Iterator[str]:
    """Relative names of the visible regular files below `root`; of a library only its own sources."""
    for folder, folders, names in os.walk(root):
        folders[:] = [d for d in folders if not d.startswith(".") and not (library and d in NOT_LIBRARY)]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and (name.endswith(".py") or not library) and path.is_file():
                yield path.relative_to(root).as_posix()


def choose_validation(sizes: dict[str, int]) -> set[str]:
    """Whole files up to VALIDATION_SHARE of the bytes, the smallest file if none fits; none of a single file."""
    if len(sizes) == 1:
        return set()
    room = VALIDATION_SHARE * sum(sizes.values())
    for longest in (room / 8, room):  # many short files stand for the text better than one long one
        chosen = fill(sizes, room, longest)
        if chosen:
            return chosen
    return {min(sizes, key=lambda name: (sizes[name], name))}


def fill(sizes: dict[str, int], room: float, longest: float) -> set[str]:
    """The first files that fit into the room, none above the longest size."""
    chosen: set[str] = set()
    for name, size in sizes.items():
        if size <= min(room, longest):
            chosen.add(name)
            room -= size
    return chosen


def cut_last_part(files: dict[str, bytes]) -> dict[str, bytes]:
    """Split the single file in two, the second part VALIDATION_SHARE of it."""
    ((name, text),) = files.items()
    cut = int(len(text) * (1 - VALIDATION_SHARE))
    return {name: text[:cut], "(end)": text[cut:]}


def unigram_entropy(text: bytes) -> float:
    """Entropy of the byte frequencies of `text` in bits per byte; raises ValueError for empty text."""
    if not text:
        raise ValueError("the entropy of no bytes is not defined")
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
