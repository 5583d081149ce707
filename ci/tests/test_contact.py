# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

from ci import contact, workspace
from ci.tests.repository import EMAIL, HOME, Repository, origin

ROOT = Path(__file__).parents[2]
SETTINGS = '[tool.accel.contact]\nrepository = "{}"\nemail = "{}"\n'
AUTHOR, _, URLS = origin("accel-alone").partition("[project.urls]")
URLS = "[project.urls]" + URLS


def wrong(repository: Repository, name: str = "accel-alone") -> list[str]:
    package = workspace.load(repository.root)[name]
    return [problem.expected for problem in contact.problems(repository.root, [package])]


def state(repository: Repository, author: str = "", urls: str = "") -> None:
    """Give accel-alone these lines."""
    file = repository.root / "packages/accel-alone/pyproject.toml"
    project = '[project]\nname = "accel-alone"\nrequires-python = ">=3.10"\ndynamic = ["version"]\n'
    file.write_text(project + author + urls, encoding="utf-8")


def test_every_package_here_says_what_the_settings_say() -> None:
    assert [str(problem) for problem in contact.problems(ROOT, workspace.load(ROOT).values())] == []


def test_a_package_with_the_address_and_the_e_mail_of_the_settings_passes(repository: Repository) -> None:
    repository.write("pyproject.toml", SETTINGS.format(HOME + "/", EMAIL))
    state(repository, AUTHOR, URLS)
    assert wrong(repository) == []
    assert list(contact.load(repository.root).undecided()) == []


@pytest.mark.parametrize(
    ("author", "urls", "key"),
    [
        (AUTHOR, "", "urls"),
        (AUTHOR, URLS.replace("example.com/accel/issues", "elsewhere.example"), "urls"),
        (AUTHOR.replace("accel@", "other@"), URLS, "authors"),
        ("", URLS, "authors"),
    ],
)
def test_another_origin_than_the_settings_is_told_with_what_to_write(
    repository: Repository, author: str, urls: str, key: str
) -> None:
    repository.write("pyproject.toml", SETTINGS.format(HOME, EMAIL))
    state(repository, author, urls)
    (expected,) = wrong(repository)
    assert expected.startswith(f"[project] {key} = ")


def test_an_address_that_is_not_decided_may_be_stated_by_no_package(repository: Repository) -> None:
    repository.write("pyproject.toml", SETTINGS.format("", ""))
    state(repository, 'authors = [{ name = "accel contributors" }]\n', URLS)
    assert wrong(repository) == ["[project] urls = None"]
    undecided = [problem.what for problem in contact.load(repository.root).undecided()]
    assert [what.rpartition(" ")[2] for what in undecided] == ["repository", "email"]


def test_every_test_that_the_security_page_names_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", text)
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "packages" / file).read_text(encoding="utf-8"), f"{file}::{name}"
