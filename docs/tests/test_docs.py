# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code, and their links lead somewhere."""

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accel_core import devices, env
from benchmarks.results import cell

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


@pytest.mark.parametrize(
    "readme", sorted(ROOT.glob("packages/*/README.md")), ids=lambda path: path.parent.name
)
def test_a_packages_readme_reads_on_an_index_as_it_does_here(readme: Path) -> None:
    """An index shows the README alone: a relative link leads nowhere there."""
    text = readme.read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https://|#", link)] == []
    assert len(text.splitlines()) <= 45, "what it is, install, links; the rest belongs in docs/"
    assert "not on the index yet" in text
    assert f"pip uninstall {readme.parent.name}" in text
    folders = re.findall(r"\./packages/([\w-]+)", text)
    assert readme.parent.name in folders
    assert {f for f in folders if not (ROOT / "packages" / f).is_dir()} == set()


@pytest.fixture(scope="module")
def files() -> str:
    """The files of this repository, each on a line of its own that begins with a slash."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return "".join(f"/{line}\n" for line in listed.splitlines())


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "results" not in page.parts and "toy_vendors" not in page.parts],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_file_or_module_of_ours_that_a_page_names_exists(page: Path, files: str) -> None:
    text = page.read_text(encoding="utf-8").replace("<vendor>", "npu")
    named = set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|toml|jinja))`", text))
    assert {name for name in named if f"/{name}\n" not in files} == set()
    folders = set(re.findall(r"`((?:packages|shared|ci|docs|tests|accel_\w+)/[\w/-]*)`", text))
    assert {name for name in folders if f"/{name.strip('/')}" not in files} == set()
    modules = set(re.findall(r"`(accel_\w+(?:\.\w+)+)(?:\(\))?`", text))
    modules = {name for name in modules if not name.endswith((".h", ".so"))}
    assert {name for name in modules if not is_ours(name)} == set()


def is_ours(dotted: str) -> bool:
    """Whether a module has the name, or the text of one has what follows the module's name."""
    package, *parts = dotted.split(".")
    place = ROOT / "packages" / package.replace("_", "-") / "src" / package
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place = place / f"{parts.pop(0)}.py"
    source = place if place.is_file() else place / "__init__.py"
    return source.is_file() and (
        not parts or re.search(rf"\b{parts[0]}\b", source.read_text("utf-8")) is not None
    )


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


def test_every_variable_is_described() -> None:
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    assert [variable.name for variable in env.VARIABLES if f"`{variable.name}`" not in page] == []


def test_the_order_in_the_text_is_the_order_of_the_table() -> None:
    page = (ROOT / "docs/selection.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z.]+)[^|]*\| +(\d+) \|", page, re.MULTILINE)
    assert rows == [(row.key, str(row.priority)) for row in devices.DEVICES if row.distribution]


@pytest.mark.parametrize("data", sorted((ROOT / "docs/results").glob("*.json")), ids=lambda path: path.stem)
def test_a_results_page_shows_the_figures_of_its_data(data: Path) -> None:
    page = data.with_suffix(".md").read_text(encoding="utf-8")
    rows = json.loads(data.read_text(encoding="utf-8"))["rows"]
    assert rows
    for row in rows:
        for value in row.values():
            assert cell(value) in page


def test_every_test_that_the_security_page_names_exists() -> None:
    named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "packages" / file).read_text(encoding="utf-8"), f"{file}::{name}"


#: What each hardware page has, whatever else it has.
TEMPLATE = {"What it needs", "Install", "Verify", "Run", "Variables", "Ops", "Known limits", "What was run"}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/vendors").glob("[a-z]*.md")), ids=lambda path: path.stem
)
def test_a_hardware_page_has_what_the_others_have(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert set(headings) >= TEMPLATE
    assert headings[-1] == "What was run"
    install = text.partition("## Install")[2].partition("\n## ")[0]
    assert f"./packages/accel-{page.stem}" in install
    assert "accel doctor" in install
    assert f"DS_ACCELERATOR={page.stem}" in text or f"`{page.stem}`" in text


def rows(page: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / f"docs/results/{page}.json").read_text("utf-8"))["rows"]
    return found


def value(page: str, row: str, column: str) -> float:
    """The number in a column of the row whose first cell has this text."""
    return float(next(each[column] for each in rows(page) if next(iter(each.values())) == row))


def same_bits() -> str:
    """Configurations that have stock DeepSpeed's bits on every accelerator, and all of them."""
    kept = [
        json.loads(file.read_text("utf-8"))["engine"] for file in ROOT.glob("docs/results/conformance/*.json")
    ]
    names = set.union(*map(set, kept))
    # What an accelerator declares missing was not compared there.
    same = {name: {r[name]["identical"] for r in kept if r[name]["outcome"] == "passed"} for name in names}
    return f"{list(same.values()).count({True})} of {len(names)}"


def right() -> str:
    """Situations in which the doctor is right, and all of them."""
    text = (ROOT / "docs/results/situations.md").read_text(encoding="utf-8")
    answers = re.findall(r"\| (yes|no)[^|]*\|$", text, re.MULTILINE)
    return f"{answers.count('yes')} of {len(answers)}"


def test_a_figure_of_the_readme_is_the_one_of_its_row() -> None:
    rows_of_first_use = ("accel-ops's wheel, no compiler", "DeepSpeed alone")
    wheel, alone = (value("first_use", row, "s") for row in rows_of_first_use)
    ratios = [float(row["stock ÷ ours"]) for row in rows("offload")]
    ours, theirs = (value("launch", row, "start-up, s") for row in ("accel launch", "deepspeed"))
    shm, gloo = (value("generate", row, "tokens/s") for row in ("shm", "gloo"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| \[.+\]\(docs/results/(\w+)\.md[^)]*\)[^|]*\| (.+) \|$", readme, re.MULTILINE)
    assert shown == [
        ("first_use", f"{wheel:.1f} s | {alone:.1f} s"),
        ("offload", f"{min(ratios):.1f} to {max(ratios):.1f} times as fast | 1"),
        ("launch", f"{ours:.1f} s with `accel launch` | {theirs:.1f} s with `deepspeed`"),
        ("generate", f"{shm} tokens/s with `shm` | {gloo} with gloo"),
        ("conformance", f"{same_bits()} |"),
        ("situations", f"{right()} |"),
    ]


# --- the page of symptoms has every known trouble, each with a command and with the test in which it was tried

SYMPTOMS = (ROOT / "docs/symptoms.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+?)\n(.+?)(?=^##|\Z)", SYMPTOMS, re.MULTILINE | re.DOTALL))
#: 30 troubles that users of DeepSpeed reported (P), 25 of users of its accelerators (F), 7 of programs that ran (R).
TROUBLES = {f"P{number:02}" for number in range(1, 31)}
TROUBLES |= {f"F{number:02}" for number in range(1, 26)} | {f"R{number:02}" for number in range(1, 8)}


def test_every_known_trouble_has_a_section() -> None:
    named = {name for line in re.findall(r"^<!-- (.+) -->$", SYMPTOMS, re.MULTILINE) for name in line.split()}
    assert named == TROUBLES


@pytest.mark.parametrize("symptom", SECTIONS)
def test_a_symptom_has_a_command_and_evidence(symptom: str) -> None:
    section = SECTIONS[symptom]
    assert section.startswith("\n<!-- "), "the troubles that it answers"
    assert re.search(r"^```\w*\n.+?^```$", section, re.MULTILINE | re.DOTALL), "a command"
    evidence = re.findall(r"\[[Tt](?:ested|oo)\]\((\S+?)\)", section)
    assert evidence
    assert {path for path in evidence if not (Path(__file__).parents[1] / path).is_file()} == set()


# --- what the tutorial shows is what its sources have; packages/accel-testkit/tests/new_vendor builds and runs those

TUTORIAL = (ROOT / "docs/tutorial-privateuse1.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"^<!-- from: (\S+) -->\n```\w+\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def test_every_part_of_the_sources_is_shown() -> None:
    shown = {(ROOT / path).suffix for path, _ in EXCERPTS}
    assert len(EXCERPTS) == TUTORIAL.count("<!-- from:")
    assert shown == {".cpp", ".h", ".py"}


@pytest.mark.parametrize(("path", "text"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_an_excerpt_is_in_its_file_line_by_line(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")


def test_no_other_source_code_is_shown_than_excerpts() -> None:
    others = re.sub(r"^<!-- from: .*?^```$", "", TUTORIAL, flags=re.MULTILINE | re.DOTALL)
    code = re.findall(r"^```\w+\n(.*?)^```$", others, re.MULTILINE | re.DOTALL)
    assert all(text.startswith(">>> ") for text in code)
