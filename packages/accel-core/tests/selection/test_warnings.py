# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who is warned, when, and what a process says that may not live to say more."""

from typing import Any

import pytest

import accel_core
from accel_core.api import CURRENT

CPU = "Setting accelerator to CPU"
RANKS = {
    "no launcher": ({}, True),
    "local rank 0": ({"RANK": "8", "LOCAL_RANK": "0"}, True),
    "local rank 1": ({"RANK": "8", "LOCAL_RANK": "1"}, False),
    "rank 3, no local rank": ({"RANK": "3"}, False),
    "Open MPI's local rank 1": ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, False),
    "no number": ({"LOCAL_RANK": "first"}, True),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variables", "warns"), RANKS.values(), ids=RANKS)
def test_one_process_of_a_machine_warns_and_the_others_log_it_for_debugging(
    machine: Any, monkeypatch: Any, caplog: Any, variables: dict[str, str], warns: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level("DEBUG", "accel_core"):
        machine.select()
    (record,) = [record for record in caplog.records if CPU in record.message]
    assert record.levelname == ("WARNING" if warns else "DEBUG")


def test_a_runtime_that_was_not_tested_is_used_with_one_warning(machine: Any, caplog: Any) -> None:
    machine.install(
        "npu", evidence="return Evidence(True, True, 'it is there', 'torch_npu 9 was not tested')"
    )
    assert machine.select() is machine.select()
    (warning,) = caplog.messages
    assert warning.startswith("torch_npu 9 was not tested. If something fails")


def test_a_choice_that_was_covered_for_a_while_warns_when_it_is_used_at_last(
    machine: Any, accelerator: Any, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(CURRENT.deepspeed, "importing", lambda: True)
    machine.select()
    monkeypatch.setattr(CURRENT.deepspeed, "importing", lambda: False)
    with accel_core.using(accelerator):
        machine.select()
        assert caplog.messages == []
    machine.select()
    assert len(caplog.messages) == 1


def test_each_package_is_named_on_stderr_before_it_is_imported(
    machine: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    spoken = "import sys; sys.stderr.write('{}\\n'); "
    machine.install("npu", confirm=spoken.format("runtime imported") + "raise OSError('no driver')")
    monkeypatch.setenv("ACCEL_VERBOSE", "1")
    machine.select()
    lines = capfd.readouterr().err.splitlines()
    imported = lines.index("runtime imported")
    assert lines[imported - 1] == "accel_core: about to import the runtime of npu (accel-npu 1.2)"
    assert lines[-1] == "accel_core: about to import and construct the accelerator of cpu"
    assert "accel_core: about to import fake_accel_npu.vendor, the vendor record of accel-npu" in lines


def test_vendor_packages_without_runtime_and_device_are_named_in_one_line(
    machine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("npu", "mlu", "sdaa"):
        machine.install(key, evidence="return Evidence(False, False, 'its runtime is not installed')")
    machine.select()
    (warning,) = caplog.messages
    assert "(npu, sdaa, mlu)" in warning.splitlines()[0]
    assert len(warning.splitlines()) == 2
    assert str(accel_core.explain()).splitlines()[1:] == ["  neither runtime nor device: npu, sdaa, mlu"]


@pytest.mark.parametrize(
    "evidence", ["(False, True, 'no runtime for the card')", "(True, False, 'no card for the runtime')"]
)
def test_a_runtime_or_a_device_alone_is_reported_with_its_reason(
    machine: Any, caplog: pytest.LogCaptureFixture, evidence: str
) -> None:
    machine.install("npu", evidence=f"return Evidence{evidence}")
    machine.install("mlu", evidence="return Evidence(False, None, 'its runtime is not installed')")
    machine.select()
    (warning,) = caplog.messages
    assert warning.splitlines()[1].startswith("npu: absent: no ")
    assert warning.splitlines()[2] == "neither runtime nor device: mlu"
