# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The patch of docs/proposal.md: with it DeepSpeed finds another package's accelerator, without our bridge."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = [pytest.mark.more, pytest.mark.upstream]

ROOT = Path(__file__).resolve().parents[2]
PATCH = ROOT / "docs/proposal/entry-points.patch"
#: Releases of DeepSpeed to which the patch applies without an offset in its text.
RELEASES = ("0.19.8",)

ACME = """
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    class Acme_Accelerator(CPU_Accelerator):
        def __init__(self):
            super().__init__()
            self._name = "cpu"

    def detect(name):
        print("asked for", name)
        return Acme_Accelerator() if name in (None, "acme") else None
"""
NAME_IT = "import deepspeed; print('got', type(deepspeed.accelerator.get_accelerator()).__name__)"


@pytest.fixture(scope="module")
def stock() -> Path:
    found = importlib.util.find_spec("deepspeed")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("not installed: deepspeed")
    if importlib.metadata.version("deepspeed") not in RELEASES:
        pytest.skip(f"the patch is for deepspeed {', '.join(RELEASES)}")
    return Path(next(iter(found.submodule_search_locations)))


@pytest.fixture(scope="module")
def patched(stock: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a patched copy of DeepSpeed."""
    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(stock, folder / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    applied = subprocess.run(
        ["git", "apply", "--verbose", "-p1", "--directory", "deepspeed", str(PATCH)],
        cwd=folder,
        env={**os.environ, "GIT_DIR": str(folder / "no-repository")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    assert "offset" not in applied.stderr
    return folder


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """An installed package with an accelerator."""
    return package(tmp_path, "acme", ACME)


def package(folder: Path, name: str, source: str) -> Path:
    about = folder / f"deepspeed_{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: deepspeed_{name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        f"[deepspeed.accelerators]\n{name} = deepspeed_{name}:detect\n", encoding="utf-8"
    )
    (folder / f"deepspeed_{name}.py").write_text(dedent(source), encoding="utf-8")
    return folder


def run(program: str, *path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DS_", "ACCEL_"))}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-c", dedent(program)], env=environment, capture_output=True, text=True, check=False
    )


def test_stock_deepspeed_neither_finds_the_package_nor_takes_its_name(stock: Path, acme: Path) -> None:
    assert "got CPU_Accelerator" in run(NAME_IT, acme).stdout
    refused = run(NAME_IT, acme, DS_ACCELERATOR="acme")
    assert refused.returncode != 0
    assert 'Value "acme" is not supported' in refused.stderr


@pytest.mark.parametrize("variables", [{}, {"DS_ACCELERATOR": "acme"}], ids=["detected", "by name"])
def test_the_package_is_found_by_its_entry_point(
    patched: Path, acme: Path, variables: dict[str, str]
) -> None:
    done = run(NAME_IT, patched, acme, **variables)
    assert "got Acme_Accelerator" in done.stdout, done.stderr


def test_a_built_in_name_is_answered_by_deepspeed(patched: Path, acme: Path) -> None:
    done = run(NAME_IT, patched, acme, DS_ACCELERATOR="cpu")
    assert "asked for cpu" in done.stdout
    assert "got CPU_Accelerator" in done.stdout, done.stderr


def test_without_such_a_package_nothing_changes(patched: Path) -> None:
    done = run(NAME_IT, patched)
    assert "got CPU_Accelerator" in done.stdout, done.stderr
    refused = run(NAME_IT, patched, DS_ACCELERATOR="acme")
    assert 'Value "acme" is not supported' in refused.stderr


def test_a_broken_package_is_a_warning_and_an_error_for_whoever_names_it(
    patched: Path, tmp_path: Path
) -> None:
    broken = package(tmp_path, "broken", "raise OSError('libacme.so: cannot open shared object file')")
    done = run(NAME_IT, patched, broken)
    assert "got CPU_Accelerator" in done.stdout, done.stderr
    assert "libacme.so" in done.stdout + done.stderr
    named = run(NAME_IT, patched, broken, DS_ACCELERATOR="broken")
    assert named.returncode != 0
    assert "OSError: libacme.so" in named.stderr


def test_what_is_no_accelerator_is_refused(patched: Path, tmp_path: Path) -> None:
    wrong = package(tmp_path, "wrong", "def detect(name): return 'cuda'")
    done = run(NAME_IT, patched, wrong)
    assert "str accelerator is not subclass of DeepSpeedAccelerator" in done.stderr


def test_it_trains_through_the_entry_point(patched: Path, acme: Path) -> None:
    done = run(
        """
        import os, torch, deepspeed
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        model = torch.nn.Linear(4, 1)
        engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=torch.optim.AdamW(model.parameters()),
            config={"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1},
                    "zero_allow_untested_optimizer": True},
        )
        for _ in range(2):
            engine.backward(engine(torch.ones(2, 4)).square().mean())
            engine.step()
        print("trained on", type(deepspeed.accelerator.get_accelerator()).__name__)
        """,
        patched,
        acme,
    )
    assert "trained on Acme_Accelerator" in done.stdout, done.stdout + done.stderr


def test_this_project_needs_no_hook_for_the_choice(patched: Path, tmp_path: Path) -> None:
    """With the patch, `accel-core` as it is serves a vendor's device through one function, its import hooks off."""
    if importlib.util.find_spec("accel_cpu") is None:
        pytest.skip("not installed: accel-cpu")
    source = """
        def detect(name):
            import accel_core
            from accel_core.upstream import contract
            return accel_core.get_accelerator() if contract.register_interface() else None
    """
    glue = package(tmp_path, "accel", source)
    program = NAME_IT + "; print(deepspeed.accelerator.get_accelerator().__module__)"
    done = run(program, patched, glue, ACCEL_BRIDGE="0", DS_ACCELERATOR="cpu")
    assert "accel_cpu.accelerator" in done.stdout, done.stdout + done.stderr


def test_the_page_says_how_large_the_patch_is() -> None:
    lines = PATCH.read_text(encoding="utf-8").splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    assert not [line for line in lines if line.startswith("-") and not line.startswith("---")]
    page = (ROOT / "docs/proposal.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{added} lines, nothing removed", page)
