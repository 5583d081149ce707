# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from byte_lm.corpus import SEPARATOR, VALIDATION_SHARE, load_corpus, unigram_entropy

PLENTY = 10**9


def test_the_split_is_by_file_and_covers_all_text(texts: Path) -> None:
    corpus = load_corpus(texts, PLENTY)
    names = {path.name for path in texts.iterdir()}
    assert set(corpus.train_files) | set(corpus.validation_files) == names
    assert not set(corpus.train_files) & set(corpus.validation_files)
    for side, files in ((corpus.train, corpus.train_files), (corpus.validation, corpus.validation_files)):
        assert side == b"".join(SEPARATOR + (texts / name).read_bytes() for name in files)
    assert 0 < len(corpus.validation) <= 1.01 * VALIDATION_SHARE * len(corpus.train + corpus.validation)


def test_the_order_does_not_depend_on_the_file_system(texts: Path, tmp_path: Path) -> None:
    for path in sorted(texts.iterdir(), reverse=True):
        shutil.copy(path, tmp_path)
    first, again = load_corpus(texts, PLENTY), load_corpus(tmp_path, PLENTY)
    assert (first.train, first.validation) == (again.train, again.validation)
    assert first.fingerprint == again.fingerprint


def test_a_copy_of_a_file_does_not_leak_into_the_other_side(texts: Path, tmp_path: Path) -> None:
    shutil.copytree(texts, tmp_path, dirs_exist_ok=True)
    shutil.copytree(texts, tmp_path / "copies")
    corpus = load_corpus(tmp_path, PLENTY)
    for number in range(40):
        line = f"file {number:02d} line".encode()
        assert (line in corpus.train) != (line in corpus.validation)


def test_files_that_are_hidden_or_binary_are_not_text(texts: Path, tmp_path: Path) -> None:
    shutil.copytree(texts, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "picture").write_bytes(b"\x89PNG\0\0")
    assert load_corpus(tmp_path, PLENTY).fingerprint == load_corpus(texts, PLENTY).fingerprint


def test_the_end_of_a_single_file_is_held_out(tmp_path: Path) -> None:
    text = b"".join(b"line %06d\n" % number for number in range(9000))
    (tmp_path / "book.txt").write_bytes(text)
    corpus = load_corpus(tmp_path, PLENTY)
    assert corpus.train[1:] + corpus.validation[1:] == text
    assert len(corpus.validation) == pytest.approx(VALIDATION_SHARE * len(text), rel=0.01)


def test_no_more_is_read_than_asked_for(texts: Path) -> None:
    corpus = load_corpus(texts, 70_000)
    files = len(corpus.train_files) + len(corpus.validation_files)
    assert len(corpus.train) + len(corpus.validation) - files == 70_000


def test_the_default_text_is_the_standard_library_without_installed_packages() -> None:
    corpus = load_corpus(None, PLENTY)
    names = {*corpus.train_files, *corpus.validation_files}
    assert {"argparse.py", "json/decoder.py"} <= names
    assert not [name for name in names if "site-packages" in name or not name.endswith(".py")]


@pytest.mark.parametrize(
    ("text", "bits"), [(b"aaaa", 0), (b"abab", 1), (bytes(range(256)), 8), (b"aaab", 0.811278)]
)
def test_known_values(text: bytes, bits: float) -> None:
    assert unigram_entropy(text) == pytest.approx(bits, abs=1e-6)
