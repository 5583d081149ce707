# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import copier
import pytest

from ci import check_skeleton
from ci.tests.repository import Repository

ROOT = Path(__file__).parents[2]
PACKAGE, MODULE = "packages/accel-newcard", "packages/accel-newcard/src/accel_newcard"


@pytest.fixture
def card(tmp_path: Path) -> Repository:
    """A workspace with the template, its answers for one vendor, and that vendor's package as the template gives it."""
    repo = Repository(tmp_path)
    repo.package("accel-core")
    shutil.copytree(ROOT / "shared/template", repo.root / "shared/template")
    data = {"key": "newcard", "hardware": "Acme Card", "author": check_skeleton.AUTHOR}
    copier.run_copy(str(ROOT / "shared/template"), repo.root / PACKAGE, data=data, defaults=True, quiet=True)
    answers(repo)
    return repo


def answers(repo: Repository, deviations: str = "") -> None:
    repo.write(
        check_skeleton.ANSWERS, f'[newcard]\nhardware = "Acme Card"\n[newcard.deviations]\n{deviations}\n'
    )


def replace(repo: Repository, path: str, old: str, new: str) -> None:
    text = (repo.root / path).read_text(encoding="utf-8")
    assert old in text
    repo.write(path, text.replace(old, new))


def found(repo: Repository) -> list[str]:
    """What differs, as file or file and key."""
    problems = list(check_skeleton.check(repo.root))
    return [problem.what.removeprefix("accel-newcard differs from the template: ") for problem in problems]


@pytest.mark.parametrize(
    "name",
    [
        *("LICENSE", "README.md", "CHANGELOG.md", "changelog.d/.gitkeep"),
        *(f"src/accel_newcard/{stem}.py" for stem in ("__init__", "vendor", "probe", "traits")),
        *("src/accel_newcard/accelerator.py", "src/accel_newcard/py.typed"),
        *(f"src/accel_newcard/op_builder/{stem}.py" for stem in ("__init__", "host")),
        *(f"tests/test_{stem}.py" for stem in ("vendor", "probe", "simulated")),
        *("tests/conftest.py", "tests/device/test_accelerator.py", "tests/device/test_fused.py"),
    ],
)
def test_a_file_that_is_missing_is_named(card: Repository, name: str) -> None:
    assert found(card) == []
    card.remove(f"{PACKAGE}/{name}")
    assert found(card) == [name]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("LICENSE", "Apache", "Another"),
        ("CHANGELOG.md", "Changelog of", "Changes in"),
        ("src/accel_newcard/__init__.py", '"NEWCARD_Accelerator"', '"Card"'),
        ("src/accel_newcard/__about__.py", "accel contributors", "somebody"),
        ("src/accel_newcard/op_builder/host.py", "CPULionBuilder", "LionBuilder"),
    ],
)
def test_a_file_that_must_be_the_same_and_is_not_is_shown(
    card: Repository, name: str, old: str, new: str
) -> None:
    replace(card, f"{PACKAGE}/{name}", old, new)
    (problem,) = check_skeleton.check(card.root)
    assert problem.what.endswith(f": {name}")
    assert new in problem.found


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("project.requires-python", ">=3.10", ">=3.11"),
        ("project.dependencies", "accel-core>=0.1,<0.3", "accel-core==0.1"),
        ("project.dependencies", '"torch>=2.5",', '"torch>=2.5", "psutil",'),
        ("project.entry-points.accel.vendors.newcard", "accel_newcard.vendor:VENDOR", "accel_newcard:VENDOR"),
        ("project.scripts.x", "[tool.hatch.version]", '[project.scripts]\nx = "c:d"\n\n[tool.hatch.version]'),
    ],
)  # fmt: skip
def test_a_setting_that_differs_is_named_with_both_values(
    card: Repository, key: str, old: str, new: str
) -> None:
    replace(card, f"{PACKAGE}/pyproject.toml", old, new)
    assert found(card) == [f"pyproject.toml {key}"]


def test_what_is_the_packages_own_may_differ(card: Repository) -> None:
    replace(card, f"{PACKAGE}/pyproject.toml", "Acme Card as a DeepSpeed", "Cards of Acme as a")
    replace(card, f"{MODULE}/__about__.py", "0.1.0", "1.2.3")
    card.write(f"{PACKAGE}/CHANGELOG.md", (card.root / PACKAGE / "CHANGELOG.md").read_text() + "\n## 1.2.3\n")
    for stem in ("accelerator", "probe", "traits", "vendor", "op_builder/__init__"):
        card.write(f"{MODULE}/{stem}.py", "# its own\n")
    card.write(f"{MODULE}/op_builder/adam.py", "# its own\n")
    card.remove(f"{MODULE}/op_builder/fused.py")
    card.remove(f"{MODULE}/op_builder/inference.py")
    for name in ("test_probe", "device/test_fused"):
        card.write(f"{PACKAGE}/tests/{name}.py", "# its own\n")
    assert found(card) == []


def test_what_this_repository_has_once_for_all_is_not_asked_of_each_package(card: Repository) -> None:
    for name in ("tox.ini", ".gitignore", "CONTRIBUTING.md", "changelog.d/+first.feature.md"):
        card.remove(f"{PACKAGE}/{name}")
    shutil.rmtree(card.root / PACKAGE / ".github")
    path = card.root / PACKAGE / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index("[tool.ruff.lint]")], encoding="utf-8")
    assert found(card) == []
    replace(card, f"{PACKAGE}/pyproject.toml", 'directory = "changelog.d"', 'directory = "news"')
    assert found(card) == ["pyproject.toml tool.towncrier.directory"]


@pytest.mark.parametrize("module", ["op_builder/inference", "accelerator"])
def test_inference_functions_of_its_own_have_tests_of_their_own(card: Repository, module: str) -> None:
    card.write(f"{MODULE}/{module}.py", '"""Its own."""\n\nVALUE = 1\n')
    assert found(card) == (["tests/device/test_inference.py"] if "inference" in module else [])
    card.write(f"{PACKAGE}/tests/device/test_inference.py", "# its own\n")
    assert found(card) == []


def test_another_layout_and_docstring_are_still_the_template_s_module(card: Repository) -> None:
    path = card.root / MODULE / "op_builder/inference.py"
    body = (
        path.read_text(encoding="utf-8").rpartition('"""')[2].replace("import ", "import (", 1).split("\n\n")
    )
    path.write_text('"""Another."""\n' + body[1] + "\n)\n" + body[2], encoding="utf-8")
    assert found(card) == []


@pytest.mark.parametrize(
    ("name", "planned"),
    [
        ("tests/test_accelerator.py", True),
        ("tests/device/test_accelerator_tensors.py", True),
        ("tests/test_op_builder.py", True),
        ("tests/test_op_builder_kernels.py", True),
        ("tests/device/test_host.py", True),
        ("tests/test_simulated_twice.py", True),
        ("tests/helpers.py", True),
        ("tests/test_it.py", False),
        ("tests/device/test_on_device.py", False),
        ("tests/device/test_my_accelerator.py", False),
        ("tests/test_probes.py", False),
    ],
)
def test_a_test_file_begins_with_the_name_of_a_module(card: Repository, name: str, planned: bool) -> None:
    card.write(f"{PACKAGE}/{name}", "# its own\n")
    assert found(card) == ([] if planned else [f"accel-newcard has a test file outside the plan: {name}"])
    answers(card, "" if planned else f'"{name}" = "why"')
    assert found(card) == []


def test_a_reason_excuses_a_deviation(card: Repository) -> None:
    replace(card, f"{PACKAGE}/pyproject.toml", '"torch>=2.5",', '"torch>=2.5", "psutil",')
    replace(card, f"{MODULE}/__init__.py", '"NEWCARD_Accelerator"', '"Card"')
    answers(card, '"pyproject.toml project.dependencies" = "why"\n"src/accel_newcard/__init__.py" = "why"')
    assert found(card) == []


def test_no_reason_excuses_a_dependency_that_is_left_out(card: Repository) -> None:
    replace(card, f"{PACKAGE}/pyproject.toml", '    "accel-core>=0.1,<0.3",\n', "")
    answers(card, '"pyproject.toml project.dependencies" = "why"')
    assert "pyproject.toml project.dependencies" in found(card)


def test_an_excuse_that_nothing_needs_is_named(card: Repository) -> None:
    answers(card, '"LICENSE" = "why"')
    card.remove(f"{PACKAGE}/LICENSE")
    assert found(card) == []
    shutil.copy(ROOT / "LICENSE", card.root / PACKAGE / "LICENSE")
    answers(card, '"src/accel_newcard/setup.py" = "why"')
    assert found(card) == ["ci/vendors.toml excuses a deviation that accel-newcard does not have"]


def test_packages_and_answers_belong_together(card: Repository) -> None:
    card.write(check_skeleton.ANSWERS, '[other]\nhardware = "Other"\n')
    assert found(card) == [
        f"{check_skeleton.ANSWERS} and packages/ do not agree on {key}" for key in ("newcard", "other")
    ]


def test_it_exits_with_1_and_says_what_to_do(card: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_skeleton.main([], card.root) == 0
    card.remove(f"{PACKAGE}/LICENSE")
    assert check_skeleton.main([], card.root) == 1
    assert '[newcard.deviations] "LICENSE" = "…"' in capsys.readouterr().err


def test_the_packages_of_this_repository_have_the_skeleton(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_skeleton.main([], ROOT) == 0, capsys.readouterr().err
