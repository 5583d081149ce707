# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code, and their links lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/accel-project/accel/blob/main/"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "packages/*/*.md", "examples/*.md", "shared/**/*.md")
    for page in ROOT.glob(pattern)
)


def anchors(page: Path) -> set[str]:
    """The fragment names that a Markdown page offers, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, fragment = target.removeprefix(REPOSITORY).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        file = ((ROOT if target.startswith(REPOSITORY) else page.parent) / path) if path else page
        if not file.exists() or (fragment and fragment not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_that_a_source_file_or_a_message_names_exists() -> None:
    named = re.compile(r"(?:\bdocs|\{DOCUMENTATION\}|%s)/((?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
    places = [
        (source.name, ROOT / "docs" / path, fragment)
        for source in [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
        for path, fragment in named.findall(source.read_text(encoding="utf-8"))
    ]
    assert len(places) > 20
    assert [p for p in places if not p[1].is_file() or (p[2] and p[2] not in anchors(p[1]))] == []


#: The paragraphs of docs/errors.md, by code.
ERRORS = dict(
    re.findall(
        r"^### (ACC-\d+)\n\n(.+?)(?=^##|\Z)", (ROOT / "docs/errors.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)  # fmt: skip


def error_classes() -> dict[str, ast.ClassDef]:
    """Every class in the packages that sets an error code, by its code."""
    found = {}
    for source in ROOT.glob("packages/*/src/**/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                codes = [each.value.value for each in node.keywords if each.arg == "code"]
                assert not set(codes) & found.keys(), f"{codes} twice"
                found.update(dict.fromkeys(codes, node))
    return found


def test_every_error_has_its_paragraph_and_no_paragraph_is_left_over() -> None:
    kinds = error_classes()
    assert ERRORS.keys() == kinds.keys()
    for code, kind in kinds.items():
        bases = {ast.unparse(base) for base in kind.bases} - {"AccelError"}
        assert ERRORS[code].startswith(f"`{kind.name}` (")
        assert set(re.findall(r"`(\w+)`", ERRORS[code].partition(" (")[2].partition(")")[0])) == bases


def texts(node: ast.expr) -> list[str]:
    """The texts that an expression can be, with … for what is not known before the program runs."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(p.value if isinstance(p, ast.Constant) else "…" for p in node.values)]  # type: ignore[misc]
    if isinstance(node, ast.IfExp):
        return texts(node.body) + texts(node.orelse)
    if isinstance(node, ast.BinOp):
        return [left + right for left in texts(node.left) for right in texts(node.right)]
    return ["…"]


def test_the_page_of_errors_has_the_beginning_of_every_error() -> None:
    """So that a search for the text of a message finds it."""
    codes = {kind.name: code for code, kind in error_classes().items()}
    missing = set()
    for source in ROOT.glob("packages/*/src/**/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            code = codes.get(name)
            for message in node.args[:1] if code else []:
                beginnings = {text.partition(": ")[0] for text in texts(message)}
                missing |= {(code, text) for text in beginnings if f"`` {text} ``" not in ERRORS[code]}
    assert {(code, text) for code, text in missing if text.strip("… ")} == set(), "to add to *Messages:*"


def test_every_test_that_the_security_page_names_exists() -> None:
    named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "packages" / file).read_text(encoding="utf-8"), f"{file}::{name}"


# --- what the tutorial shows is what its sources have; packages/accel-testkit/tests/new_vendor builds and runs those

TUTORIAL = (ROOT / "docs/tutorial-privateuse1.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"^<!-- from: (\S+) -->\n```\w+\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("path", "text"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_an_excerpt_is_in_its_file_line_by_line(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")
