# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`pytest --accel-sim` in projects that are not ours: it simulates where it is asked to, and is not there elsewhere."""

import os
import subprocess
import sys

import pytest

from accel_core import processes

TESTS = """
import os, subprocess, sys

def test_device(simulated_device):
    import torch
    assert simulated_device.type == {key!r}
    assert torch.ones(2, device=simulated_device).sum().item() == 2

def test_child_processes_have_it():
    device = os.environ["ACCEL_SIM"]
    code = "import accel_sim, torch; accel_sim.activate({key!r}); assert torch.ones(1, device={key!r}).is_cpu is False"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest with its entry points in a folder with these tests; no device of this run is in its way."""

    def start(tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_project.py").write_text(tests, encoding="utf-8")
        ours = ("ACCEL_SIM", "PYTEST")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        # The workspace is installed without entry points for pytest: the module is named, as they would.
        command = [
            sys.executable,
            *["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"],
            *NAMED,
            *arguments,
        ]
        return processes.run(command, 600, cwd=tmp_path, env=clean)

    return start


def _has_entry_point() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "accel_sim.pytest_plugin" for point in entry_points(group="pytest11"))


NAMED = () if _has_entry_point() else ("-p", "accel_sim.pytest_plugin")


@pytest.mark.more
@pytest.mark.parametrize(("key", "options"), [("npu", ()), ("hpu", ("-n", "2")), ("xpu", ())])
@pytest.mark.sample("xpu*")
def test_tests_of_a_project_have_the_device(run, key, options):
    done = run(TESTS.format(key=key), "--accel-sim", key, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_without_the_option_torch_is_not_imported_and_what_needs_a_device_is_skipped(run):
    tests = "import sys\n\ndef test_none():\n    assert not {'torch', 'accel_core'} & sys.modules.keys()\n"
    done = run(tests + "\ndef test_device(simulated_device):\n    pass\n", "-p", "no:accel_testkit")
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "no simulated device: pytest --accel-sim npu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--accel-sim", "abacus"), "[ACC-701]"),
        (("-p", "torch", "--accel-sim", "npu"), "accel sim npu -- pytest"),
    ],
)
@pytest.mark.sample("arguments0*")
def test_what_cannot_be_simulated_ends_the_run_with_the_reason(run, arguments, said):
    done = run("def test_nothing():\n    pass\n", *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
    assert "Traceback" not in done.stderr
