# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tutorial's PrivateUse1 backend is built from its C++ sources, made a vendor package, tested, and trained on."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from accel_core.native import Source, build
from accel_core.op_builder.names import cuda_only

from .conftest import attempt, conformance, made, own_tests, pip, run

EXAMPLE = Path(__file__).parents[4] / "examples/privateuse1"
OVER = EXAMPLE / "accel-acme"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vendor package of the tutorial."""
    answers = ("--hardware", "Acme card", "--collectives", "gloo")
    folder = made("acme", tmp_path_factory.mktemp("made"), *answers)
    for file in OVER.rglob("*.py"):
        place = folder / file.relative_to(OVER)
        assert place.is_file(), f"{place.name} is not one of the files that accel new-vendor makes"
        shutil.copy(file, place)
    return folder


@pytest.fixture(scope="module")
def machine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine that has the extension and the vendor package."""
    site = tmp_path_factory.mktemp("site")

    def build_wheel(_source: Source, target: Path) -> None:
        sources = tmp_path_factory.mktemp("sources") / "torch-acme"
        shutil.copytree(EXAMPLE / "torch-acme", sources)
        pip("wheel", "--wheel-dir", sources.parent, sources)
        shutil.move(next(sources.parent.glob("*.whl")), target)

    # torch's headers take 20 s to compile: the wheel is kept, as the simulated devices are, until its sources change.
    versions = (torch.__version__, str(sys.implementation.cache_tag))
    source = Source("torch_acme_wheel", (), folders=(EXAMPLE / "torch-acme",), flags=versions)
    with zipfile.ZipFile(build.library(source, build_wheel)) as wheel:
        wheel.extractall(site)
    pip("install", "--target", site, package)
    return {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_the_host_cannot_read_memory_of_the_device(machine: dict[str, str]) -> None:
    read = "import ctypes, torch, torch_acme; ctypes.string_at(torch.ones(4, device='acme').data_ptr(), 4)"
    lines = [f"exec({read!r})", "print('it was read')"]
    done = attempt("timeit", "-n", "1", "-r", "1", "\n".join(lines), **machine)
    assert done.returncode < 0, done.stdout
    assert "it was read" not in done.stdout


@pytest.mark.slow
def test_the_device_passes_the_suite_but_for_what_it_declares(package: Path, machine: dict[str, str]) -> None:
    checks = conformance(package, "--quick", **machine)
    passed = [check for check in checks if check["outcome"] == "passed"]
    assert sum(not check["trait"] for check in checks) > 700
    assert {check["tier"] for check in passed} == {"host", "device", "multi"}
    missing = {check.get("trait") for check in checks if check["outcome"] != "passed"}
    assert missing == {"", "streams", "graphs", "pinned_memory", *cuda_only()}


@pytest.mark.slow
def test_the_package_is_still_clean(package: Path, tmp_path: Path) -> None:
    run("ruff", "check", "--no-cache", ".", cwd=package)
    run("ruff", "format", "--check", "--no-cache", ".", cwd=package)
    run("mypy", "--cache-dir", tmp_path, cwd=package)


@pytest.mark.slow
def test_the_package_s_own_tests_pass_beside_its_runtime(package: Path, machine: dict[str, str]) -> None:
    assert "passed" in own_tests(package, **machine)


def test_two_ranks_train_on_it_with_stock_deepspeed(machine: dict[str, str]) -> None:
    launch = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    output = run(*launch, EXAMPLE / "train.py", **machine)
    losses = re.compile(r"^step +(\d+)  loss (\S+)  on acme:0$", re.MULTILINE)
    shown = dict(losses.findall((EXAMPLE.parents[1] / "docs/tutorial-privateuse1.md").read_text("utf-8")))
    printed = dict(losses.findall(output))
    assert list(printed) == list(shown)
    for step, loss in shown.items():
        assert float(printed[step]) == pytest.approx(float(loss), rel=0.02, abs=0.002)


@pytest.mark.slow
def test_the_suite_s_training_passes(package: Path, machine: dict[str, str]) -> None:
    checks = conformance(package, "-k", "test_training", **machine)
    assert {check["outcome"] for check in checks} == {"passed", "skipped"}
