# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection learns of Gaudi: from metadata and device files, and from the import of Habana's runtime."""

import sys
from pathlib import Path

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_hpu import probe
from accel_hpu.vendor import VENDOR
from accel_testkit.fake_runtime import FakeRuntime


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """A machine without any runtime or device."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "habana_frameworks"]:
        monkeypatch.delitem(sys.modules, name)
    return FakeRuntime(tmp_path, monkeypatch)


def runtime(machine: FakeRuntime, top: str, hpu: str = "") -> None:
    """Habana's packages, with these lines in the runtime's own file and in its device module's."""
    folder = machine.site / "habana_frameworks" / "torch" / "hpu"
    folder.mkdir(parents=True)
    (folder.parents[1] / "__init__.py").touch()
    (folder.parent / "__init__.py").write_text(top)
    (folder / "__init__.py").write_text(hpu)


def test_a_machine_without_habana_s_plugin_has_no_runtime(machine: FakeRuntime) -> None:
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (False, False)
    assert evidence.reason == "habana-torch-plugin is not installed"


@pytest.mark.parametrize("version", ["1.18.0.524", "2.0.0"])
def test_another_release_of_the_plugin_is_used_and_named_with_those_that_were_tested(
    machine: FakeRuntime, version: str
) -> None:
    machine.install("habana_torch_plugin", version)
    evidence = probe.evidence()
    assert evidence.runtime
    assert evidence.untested == f"habana-torch-plugin {version} was not tested; {probe.RELEASES} was"
    assert evidence.untested in evidence.reason


@pytest.mark.parametrize("path", ["accel/accel0", "hl0"])
def test_device_files_of_both_drivers_are_hardware(machine: FakeRuntime, path: str) -> None:
    machine.install("habana_torch_plugin", "1.22.1.6")
    machine.device(f"dev/{path}")
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, True)
    assert f"dev/{path} exists" in evidence.reason


def test_a_login_node_has_the_runtime_and_no_hardware(machine: FakeRuntime) -> None:
    machine.install("habana_torch_plugin", "1.19.0.561")
    machine.device("dev/accel/accel_controlD0")
    evidence = probe.evidence()
    assert (evidence.runtime, evidence.hardware) == (True, False)


def test_evidence_imports_nothing_of_habana_s(machine: FakeRuntime) -> None:
    machine.install("habana_torch_plugin", "1.19.0")
    runtime(machine, "raise AssertionError('imported')")
    probe.evidence()
    assert "habana_frameworks" not in sys.modules


@pytest.mark.parametrize(("devices", "counted"), [(0, 0), (8, 8)])
def test_the_runtime_s_own_count_confirms(machine: FakeRuntime, devices: int, counted: int) -> None:
    runtime(
        machine,
        "",
        f"def device_count():\n    return {devices}\ndef is_available():\n    return {devices} > 0\n",
    )
    confirmation = probe.confirm()
    assert confirmation.devices == counted
    assert confirmation.reason == f"torch.hpu counts {counted}"


#: What the real runtime's own files do when something is missing or does not fit.
FAILURES = {
    "FileNotFoundError": "open('/nowhere/required_version.txt')",
    "AttributeError": "None.startswith('git')",
    "AssertionError": "assert False, 'Compile-time major/minor PyTorch version 2.5 differs from run-time 2.13.0'",
    "OSError": "import ctypes; ctypes.CDLL('/nowhere/libhabana_pytorch_plugin.so')",
    "RuntimeError": "raise RuntimeError('synapse failed to open the device')",
    "SystemExit": "raise SystemExit(1)",
    "ModuleNotFoundError": "import habana_frameworks.missing",
}


@pytest.mark.parametrize("error", FAILURES)
def test_a_runtime_that_fails_is_broken_and_says_how(machine: FakeRuntime, error: str) -> None:
    machine.install("habana_torch_plugin", "1.19.0")
    machine.device("dev/accel/accel0")
    runtime(machine, FAILURES[error] + "\n")
    candidate = candidates.confirmed(candidates.of_vendor(VENDOR), VENDOR)
    assert candidate.state is State.BROKEN
    assert f"its runtime fails with {error}" in candidate.reason
