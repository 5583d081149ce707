# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What `accel new-vendor` makes can be checked, built and released by its owner, whatever the answers were."""

import configparser
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from accel_core import processes

from .conftest import attempt, made, run

#: The longest answers; the least that can be answered; a device type of torch's own.
ANSWERS = {
    "abcdefghijklmnop": [
        "--prefix", "Abcdefghijklmnopqrs", "--hardware", "Acme's accelerator card " * 3,
        "--runtime", "acme_frameworks.torch.accelerator", "--collectives", "acme_collectives_library",
        "--visible", "ACME_ACCELERATOR_VISIBLE_DEVICES", "--author", "The hardware team of Acme Incorporated",
    ],
    "bare": ["--collectives", "gloo", "--visible", ""],
    "mtia": ["--no-privateuse1", "--runtime", "torch"],
}  # fmt: skip


@pytest.fixture(scope="module", params=ANSWERS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new vendor's package."""
    return made(request.param, tmp_path_factory.mktemp("made"), *ANSWERS[request.param])


@pytest.mark.sample("abcdefghijklmnop-*-the defaults")
@pytest.mark.parametrize("settings", [[], ["--isolated"]], ids=["its own settings", "the defaults"])
@pytest.mark.parametrize("check", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(check: list[str], settings: list[str], package: Path) -> None:
    run("ruff", *check, *settings, "--no-cache", ".", cwd=package)


@pytest.mark.slow
def test_mypy_strict_has_nothing_to_say(xyz: Path, tmp_path: Path) -> None:
    cache = ["--cache-dir", tmp_path / "mypy"]
    run("mypy", "--strict", *cache, cwd=xyz)
    (xyz / "src/accel_xyz/probe.py").write_text("def confirm(): ...\n", encoding="utf-8")
    assert "[no-untyped-def]" in attempt("mypy", *cache, "src/accel_xyz/probe.py", cwd=xyz).stdout


@pytest.mark.sample("mtia")
def test_sdist_and_wheel_are_built_and_accepted(package: Path, tmp_path: Path) -> None:
    run("build", "--no-isolation", "--outdir", tmp_path, package)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    run("twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as wheel_file:
        names = {Path(name).name for name in wheel_file.namelist()}
        assert names >= {"LICENSE", "entry_points.txt", "py.typed"}
    with tarfile.open(sdist) as sdist_file:
        assert {Path(name).name for name in sdist_file.getnames()} >= {"LICENSE", "CHANGELOG.md", "vendor.py"}


def test_towncrier_moves_the_fragments_into_the_changelog(xyz: Path, tmp_path: Path) -> None:
    # towncrier's own environment has no accel_core.
    (tmp_path / "accel_core.py").write_text("raise ImportError('accel_core')\n", encoding="utf-8")
    run("towncrier", "build", "--yes", cwd=xyz, PYTHONPATH=str(tmp_path))
    text = (xyz / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## 0\.1\.0 \(\d{4}-\d\d-\d\d\)$", text, re.MULTILINE)
    assert "XYZ can be chosen" in text
    assert [path.name for path in (xyz / "changelog.d").iterdir()] == [".gitkeep"]


def ready(package: Path, tag: str) -> processes.Ended:
    """What the release pipeline checks first."""
    text = (package / ".github/workflows/release.yml").read_text(encoding="utf-8")
    (check,) = [step["run"] for step in yaml.safe_load(text)["jobs"]["build"]["steps"] if "name" in step]
    command = ["bash", "-e", "-o", "pipefail", "-c", check]  # as the forge's runner does
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    return processes.run(command, cwd=package, env=environment)


def test_a_release_needs_its_tag_its_changelog_and_no_placeholder(xyz: Path) -> None:
    assert ready(xyz, "v0.1.0").returncode != 0, "no changelog"
    run("towncrier", "build", "--yes", cwd=xyz)
    done = ready(xyz, "v0.1.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ready(xyz, "v0.1.1").returncode != 0, "another version"
    with (xyz / "README.md").open("a", encoding="utf-8") as page:
        page.write("https://forge.example/OWNER/accel-xyz\n")
    assert ready(xyz, "v0.1.0").returncode != 0, "a placeholder"


def test_the_pipeline_runs_every_tox_environment_that_needs_no_hardware(package: Path) -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string((package / "tox.ini").read_text(encoding="utf-8"))
    listed = set(settings["tox"]["env_list"].split(", "))
    named = {name.partition(":")[2] for name in settings.sections() if name.startswith("testenv:")}
    assert listed == {*named, "tests"} - {"hardware"}
    text = (package / ".github/workflows/test.yml").read_text(encoding="utf-8")
    matrix = yaml.safe_load(text)["jobs"]["tox"]["strategy"]["matrix"]
    assert {*matrix["environment"], *(row["environment"] for row in matrix["include"])} == listed
    assert ("conformance" in listed) is (package / "tests/simulated.json").is_file()
