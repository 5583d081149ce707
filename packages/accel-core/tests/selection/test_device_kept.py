# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A package that cannot be used does not cost the user the device: DeepSpeed's own backend, or an error."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, StrictSelection
from accel_core.selection.candidates import State

DEVICE = "return Evidence(True, True, 'its device file exists')"
#: How a package for npu cannot be used, whatever its runtime.
PACKAGES: dict[str, Callable[[Any], Any]] = {
    "another interface": lambda m: m.install("npu", interface=7),
    "a record that fails": lambda m: m.install("npu", vendor="raise OSError('libfoo.so')"),
    "a constructor that fails": lambda m: m.install("npu", evidence=DEVICE, init="raise OSError('no licence')"),
    "a class that is none": lambda m: m.install("npu", evidence=DEVICE, accelerator="Fake_Accelerator = 7"),
    "a probe that fails": lambda m: m.install("npu", evidence="raise OSError('no such file')"),
    "a confirmation that fails": lambda m: m.install("npu", evidence=DEVICE, confirm="raise KeyError('x')"),
    "two packages": lambda m: (m.install("npu"), m.install("npu", package="other-npu")),
}  # fmt: skip
each_package = pytest.mark.parametrize("install", PACKAGES.values(), ids=PACKAGES)


@pytest.fixture
def davinci(machine: Any) -> None:
    """The device file of an npu."""
    (machine.site.parent / "root/dev").mkdir()
    (machine.site.parent / "root/dev/davinci0").touch()


@pytest.fixture
def own(machine: Any, davinci: None, monkeypatch: pytest.MonkeyPatch) -> object:
    """DeepSpeed's own accelerator for npu, with the runtime that it needs."""
    own = object()
    (machine.site / "torch_npu.py").touch()
    monkeypatch.setattr("torch.npu", type("npu", (), _counting(2)), raising=False)
    monkeypatch.setattr(CURRENT.deepspeed, "keys", lambda: frozenset({"npu", "cuda", "cpu"}))
    monkeypatch.setattr(CURRENT.deepspeed, "load", lambda: None)
    monkeypatch.setattr(CURRENT.deepspeed, "accelerator", {"npu": own}.__getitem__)
    monkeypatch.delitem(sys.modules, "deepspeed.ops.op_builder.all_ops", raising=False)
    return own


def _counting(devices: int) -> dict[str, Any]:
    return {"is_available": staticmethod(lambda: devices > 0), "device_count": staticmethod(lambda: devices)}


@each_package
@pytest.mark.parametrize("asked", [None, "npu"])
def test_deepspeeds_own_backend_takes_the_place_with_one_warning(
    machine: Any, own: object, monkeypatch: Any, caplog: Any, install: Any, asked: str | None
) -> None:
    install(machine)
    machine.install("mlu")  # of lower priority
    if asked:
        monkeypatch.setenv("DS_ACCELERATOR", asked)
    assert machine.select() is own
    assert machine.candidate("npu (deepspeed)").state is State.DEFERRED
    (warning,) = caplog.messages
    assert warning.startswith("npu is left to DeepSpeed's own backend, because accel-npu")
    assert machine.candidate("npu").reason in warning
    assert "pip " in warning


@each_package
def test_without_a_backend_that_works_it_is_an_error(machine: Any, davinci: None, install: Any) -> None:
    install(machine)
    error = machine.refused(AcceleratorBroken)
    assert error.what == "npu cannot be used, and the device is in this machine"
    assert error.found == f"npu: broken: {machine.candidate('npu').reason}"
    assert "pip " in error.do + error.found
    assert "DS_ACCELERATOR=cpu" in error.do
    assert "ACCEL_SKIP=npu" in error.do


def test_a_backend_of_deepspeed_that_fails_too_is_named_in_the_error(
    machine: Any, own: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    PACKAGES["another interface"](machine)
    monkeypatch.setattr(CURRENT.deepspeed, "accelerator", _failing)
    error = machine.refused(AcceleratorBroken)
    assert "npu: broken: [ACC-102]" in error.found
    assert "npu (deepspeed): broken: its accelerator cannot be constructed: KeyError" in error.found
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    machine.forget()
    assert "npu (deepspeed): broken" in machine.refused(AcceleratorBroken).found


@pytest.mark.parametrize("install", [*PACKAGES.values()][2:6], ids=[*PACKAGES][2:6])
def test_another_real_device_is_chosen_with_the_warning(
    machine: Any, davinci: None, caplog: Any, install: Any
) -> None:
    install(machine)
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    (warning,) = caplog.messages
    assert warning.startswith("npu is broken and was passed over: ")


@pytest.mark.parametrize(
    "name", ["another interface", "a record that fails", "a probe that fails", "two packages"]
)
def test_without_the_device_a_run_ends_on_the_cpu(machine: Any, name: str) -> None:
    PACKAGES[name](machine)
    assert machine.select().device_name() == "cpu"


def test_the_device_that_only_the_probe_of_an_unusable_record_knows_is_kept(machine: Any) -> None:
    machine.install("toy", priority=5, interface=7, evidence=DEVICE)
    assert machine.refused(AcceleratorBroken).what.startswith("toy cannot be used")


@pytest.mark.parametrize("answer", ["raise SystemExit(3)", "return None", "return Evidence(True, 'yes', '')"])
def test_a_probe_of_another_interface_may_answer_anything(machine: Any, answer: str) -> None:
    machine.install("toy", priority=5, interface=7, evidence=answer)
    assert machine.select().device_name() == "cpu"


def test_a_device_that_another_runtime_blocks_is_not_exchanged_for_the_cpu(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu", evidence=DEVICE, record="privateuse1='npu'")
    monkeypatch.setattr("accel_core.selection.current.privateuse1_holder", lambda: "stale")
    assert "ACCEL_SKIP=stale" in machine.refused(AcceleratorBroken).found


@pytest.mark.parametrize("variables", [{"ACCEL_SKIP": "npu"}, {"DS_ACCELERATOR": "cpu"}])
def test_whoever_wants_the_cpu_gets_it(machine: Any, own: object, monkeypatch: Any, variables: Any) -> None:
    PACKAGES["another interface"](machine)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert machine.select().device_name() == "cpu"


def test_devices_that_the_user_has_hidden_are_not_lost(machine: Any, own: object, monkeypatch: Any) -> None:
    PACKAGES["another interface"](machine)
    monkeypatch.setattr("torch.npu", type("npu", (), _counting(0)))
    assert machine.select().device_name() == "cpu"
    assert machine.candidate("npu (deepspeed)").state is State.ABSENT


def test_a_package_that_works_is_chosen_before_deepspeeds_backend(machine: Any, own: object) -> None:
    machine.install("npu")
    machine.install("npu", package="old-npu", vendor="raise OSError('libfoo.so')")
    assert machine.select().device_name() == "npu"
    assert "npu (deepspeed)" not in {candidate.label for candidate in machine.candidates()}


def test_a_package_whose_variants_cannot_be_imported_is_known_by_its_key(machine: Any, own: object) -> None:
    machine.install("xpu", vendor="raise OSError('libsycl.so')")
    machine.distribution("accel-xpu", "xpu.ipex = fake_accel_xpu.vendor:IPEX")
    machine.select()
    assert machine.candidate("xpu (ipex)").priority == 900


def test_a_render_node_of_another_maker_is_no_device(machine: Any) -> None:
    root = machine.site.parent / "root"
    for file, text in {"dev/dri/renderD128": "", "sys/class/drm/renderD128/device/vendor": "0x10de"}.items():
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text(text)
    machine.install("xpu", vendor="raise OSError('libsycl.so')")
    assert machine.select().device_name() == "cpu"
    (root / "sys/class/drm/renderD128/device/vendor").write_text("0x8086")
    machine.forget()
    assert machine.refused(AcceleratorBroken).what.startswith("xpu cannot be used")


def test_strict_accepts_no_backend_in_the_place_of_a_package(
    machine: Any, own: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    PACKAGES["another interface"](machine)
    monkeypatch.setenv("ACCEL_STRICT", "1")
    assert "ACC-102" in machine.refused(StrictSelection).found


def _failing(key: str) -> Any:
    raise KeyError("ASCEND_HOME_PATH")
