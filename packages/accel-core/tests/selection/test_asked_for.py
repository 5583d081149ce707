# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What users write into DS_ACCELERATOR and the ACCEL_* variables, what they read for it, and that advice works."""

import importlib.metadata
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_core
from accel_core import devices, install, processes
from accel_core.api import CURRENT
from accel_core.errors import AcceleratorUnavailable, UnknownAccelerator
from accel_core.selection.candidates import State

REQUIRES = {
    "xpu.external": "XPU_Accelerator requires intel_extension_for_deepspeed",
    "xpu": "XPU_Accelerator requires intel_extension_for_pytorch (or torch >= 2.8 with XPU)",
    "npu": "NPU_Accelerator requires torch_npu",
    "sdaa": "SDAA_Accelerator requires torch_sdaa",
    "mps": "MPS_Accelerator requires torch.mps",
    "hpu": "HPU_Accelerator requires habana_frameworks.torch.hpu",
    "mlu": "MLU_Accelerator requires torch_mlu",
    "supa": "SUPA_Accelerator requires torch_supa",
    "klxpu": "KLXPU_Accelerator requires torch_xmlir",
    "cuda": "CUDA_Accelerator requires a torch build with CUDA or ROCm",
}


@pytest.mark.parametrize(
    ("value", "near"),
    [
        ("cpux", "cpu"),
        ("xpu.extern", "xpu.external"),
        ("ncpu", "npu or cpu"),
        *((value, "one of these") for value in ("gpu", "nvidia", "tpu", "None")),  # no guess
        *((value, "") for value in (" npu", "npu,cuda", "xpu (native)")),
    ],
)
def test_unknown_name_lists_valid_and_nearest(machine: Any, value: str, near: str) -> None:
    machine.install("toy", priority=750)
    error = machine.refused(UnknownAccelerator, DS_ACCELERATOR=value)
    assert isinstance(error, ValueError)
    assert repr(value) in str(error)
    for valid in (*devices.SUPPORTED_ACCELERATOR_LIST, "toy"):
        assert repr(valid) in error.message
    assert error.do.endswith(f"or set it to {near}" if near else "")


@pytest.mark.parametrize("key", REQUIRES)
def test_missing_package_of_known_name(machine: Any, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for field in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(f"torch.version.{field}", None)
    error = machine.refused(AcceleratorUnavailable, DS_ACCELERATOR=key)
    assert isinstance(error, ValueError)
    assert error.message == f"DS_ACCELERATOR={key} cannot be used: {REQUIRES[key]}"
    assert f"pip install ./packages/accel-{key.partition('.')[0]} " in error.do


_PIP = "install='pip install their-torch=={release} torch=={torch}'"


@pytest.mark.parametrize("hardware", [True, None, False])
def test_missing_runtime_is_installed_as_recorded(machine: Any, hardware: bool | None) -> None:
    machine.install("npu", evidence=f"return Evidence(False, {hardware}, 'nothing')", record=_PIP)
    version = importlib.metadata.version("torch")
    command = f"pip install their-torch=={version.partition('+')[0]} torch=={version}"
    first, second = machine.refused(AcceleratorUnavailable, DS_ACCELERATOR="npu").do.split(", or", 1)
    assert command in (second if hardware is False else first)
    assert "unset DS_ACCELERATOR" in (first if hardware is False else second)


def test_missing_runtime_of_third_party(machine: Any) -> None:
    no_runtime = "return Evidence(False, None, 'its runtime is not installed')"
    machine.install("toy", priority=750, evidence=no_runtime)
    error = machine.refused(AcceleratorUnavailable, DS_ACCELERATOR="toy")
    assert "Fake_Accelerator requires torch_toy" in error.message


@pytest.mark.parametrize(
    "how",
    [
        {"evidence": "return Evidence(True, False, 'no device file')"},
        {"confirm": "return Confirmation(0, 'no device file')"},
    ],
    ids=["by evidence", "by its runtime"],
)
def test_device_asked_for_on_login_node(machine: Any, caplog: Any, how: dict[str, str]) -> None:
    machine.install("npu", **how)
    assert machine.select(DS_ACCELERATOR="npu", ACCEL_STRICT="1").device_name() == "npu"
    (warning,) = caplog.messages
    assert warning.startswith("DS_ACCELERATOR=npu is chosen though no device is present: no device file")
    assert "init_distributed" in warning
    assert "DS_ACCELERATOR=cpu" in warning


def test_lower_candidates_are_not_imported(machine: Any) -> None:
    machine.install("npu", accelerator="raise KeyboardInterrupt('made before its turn')",
                    confirm="return Confirmation(0, 'counts 0')")  # fmt: skip
    machine.install("hpu")
    machine.install("mlu", confirm="raise KeyboardInterrupt('asked after the choice')")
    assert machine.select().device_name() == "hpu"
    assert machine.candidate("mlu").state is State.OUTRANKED
    assert machine.candidate("mlu").reason == "its runtime is installed"


REPOSITORY = Path(__file__).resolve().parents[4]


def test_pip_command_names_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    where = "(in a checkout of accel: its packages are on no index yet)"
    assert install.pip_install("accel-core", options="-U") == f"pip install -U ./packages/accel-core {where}"
    assert install.pip_install("torch>=2.14") == "pip install 'torch>=2.14'"
    assert install.pip_install("their-card") == "pip install their-card"
    monkeypatch.setattr(install, "ON_INDEX", True)
    assert install.pip_install("accel-npu") == "pip install accel-npu"
    monkeypatch.undo()
    monkeypatch.setattr(install, "distribution_version", lambda name: None)
    assert install.pip_install("accel-npu").startswith(
        "pip install ./packages/accel-ops ./packages/accel-npu ("
    )


def test_pip_accepts_the_command() -> None:
    command = install.pip_install("accel-mlu").partition(" (")[0]
    dry = ["--dry-run", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    done = processes.run([sys.executable, "-m", *shlex.split(command), *dry], 300, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_get_pip_commands_from_install() -> None:
    ours = re.compile(r"pip install (-\S+ )*accel-(core|cpu|cuda|xpu|npu|hpu|mlu|sdaa|supa|klxpu|mps|ops)\b")
    for file in (REPOSITORY / "packages/accel-core/src/accel_core").rglob("*.py"):
        if file.name != "install.py":
            assert not ours.search(file.read_text(encoding="utf-8")), file


# --- who is warned, when, and what a process says that may not live to say more

CPU = "Setting accelerator to CPU"


@pytest.mark.parametrize(
    ("variables", "warns"),
    [
        ({}, True),
        ({"RANK": "8", "LOCAL_RANK": "0"}, True),
        ({"RANK": "8", "LOCAL_RANK": "1"}, False),
        ({"RANK": "3"}, False),
        ({"LOCAL_RANK": "first"}, True),
    ],
)
def test_only_local_rank_0_warns(machine: Any, caplog: Any, variables: dict[str, str], warns: bool) -> None:
    with caplog.at_level("DEBUG", "accel_core"):
        machine.select(**variables)
    (record,) = [record for record in caplog.records if CPU in record.message]
    assert record.levelname == ("WARNING" if warns else "DEBUG")


def test_untested_runtime_is_one_warning(machine: Any, caplog: Any) -> None:
    untested = "'torch_npu 9 was not tested'"
    machine.install("npu", evidence=f"return Evidence(True, True, 'it is there', {untested})")
    assert machine.select() is machine.select()
    (warning,) = caplog.messages
    assert warning.startswith("torch_npu 9 was not tested. If something fails")


def test_unused_choice_warns_at_first_use(
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


def test_verbose_names_package_before_its_import(machine: Any, capfd: Any) -> None:
    spoken = "import sys; sys.stderr.write('{}\\n'); "
    machine.install("npu", confirm=spoken.format("runtime imported") + "raise OSError('no driver')")
    machine.select(ACCEL_VERBOSE="1")
    lines = capfd.readouterr().err.splitlines()
    imported = lines.index("runtime imported")
    assert lines[imported - 1] == "accel_core: about to import the runtime of npu (accel-npu 1.2)"
    assert lines[-1] == "accel_core: about to import and construct the accelerator of cpu"
    assert "accel_core: about to import fake_accel_npu.vendor, the vendor record of accel-npu" in lines


def test_packages_without_runtime_and_device(machine: Any, caplog: Any) -> None:
    for key in ("npu", "mlu", "sdaa"):
        machine.install(key, evidence="return Evidence(False, False, 'its runtime is not installed')")
    machine.select()
    (warning,) = caplog.messages
    assert "(npu, sdaa, mlu)" in warning.splitlines()[0]
    assert len(warning.splitlines()) == 2
    (line,) = str(accel_core.explain()).splitlines()[1:]
    assert line == "  neither usable runtime nor device: npu, sdaa, mlu"
