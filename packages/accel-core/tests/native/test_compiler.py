# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compilers as machines have them: behind other programs, without OpenMP, with words in another alphabet."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from users import answer

from accel_core.errors import BuildFailed
from accel_core.native import Source, build, compiler


@pytest.mark.parametrize("number", [7, 8])
def test_every_word_of_cxx_is_obeyed(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    source.units[0].write_text('extern "C" int answer() { return GIVEN; }\n')
    monkeypatch.setenv("CXX", f"env LANG=C c++ -DGIVEN={number}")
    assert answer(build.library(source)) == number


def test_another_word_is_another_compiler_and_so_is_another_program(
    source: Source, cache: Path, compiler_that: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiler_that("true")
    commands = [str(program), f"{program} -g", f"env {program}", f"env {program} -g"]
    found = []
    for command in commands:
        monkeypatch.setenv("CXX", command)
        found.append(compiler.identity(compiler.find()))
    os.utime(program, ns=(1, 1))
    for command in commands:
        monkeypatch.setenv("CXX", command)
        found.append(compiler.identity(compiler.find()))
    assert len(set(found)) == 8


def test_a_cxx_that_is_no_command_is_an_error_of_ours(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", 'g++ "x')
    with pytest.raises(BuildFailed, match="No closing quotation"):
        build.library(source)


def test_an_empty_cxx_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    usual = compiler.find()
    monkeypatch.setenv("CXX", " ")
    assert compiler.find() == usual


@pytest.mark.parametrize(
    "said",
    ["cannot find -lomp", "error: unsupported option '-fopenmp'", "fatal error: libgomp.spec: No such file"],
)
def test_whatever_a_compiler_without_openmp_says_the_library_is_built_without(
    source: Source, cache: Path, compiler_that: Callable[[str], Path], said: str
) -> None:
    compiler_that(f'case " $* " in *" -fopenmp "*) echo "{said}" >&2; exit 1;; esac')
    assert answer(build.library(source)) == 42


def test_the_first_errors_are_reported_when_it_fails_both_ways(
    source: Source, cache: Path, compiler_that: Callable[[str], Path]
) -> None:
    compiler_that(
        'case " $* " in *" -fopenmp "*) echo "error: first" >&2;; *) echo "error: second" >&2;; esac; exit 1'
    )
    with pytest.raises(BuildFailed, match="error: first"):
        build.library(source)


def test_words_that_are_no_utf_8_are_reported_as_well_as_can_be(
    source: Source, cache: Path, compiler_that: Callable[[str], Path]
) -> None:
    compiler_that(r"printf 'answer.cpp: error: gew\366hnlich\n' >&2; exit 1")
    with pytest.raises(BuildFailed, match="error: gew"):
        build.library(source)
