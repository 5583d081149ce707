# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Vendors of which something fails: they are broken, never absent; detection goes on, and the device is kept."""

import importlib.metadata
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accel_core
from accel_core import vendor
from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, InterfaceMismatch, NoAccelerator
from accel_core.selection.candidates import State, discover
from accel_core.vendor import INTERFACE_VERSION

from .conftest import whole

FAILURES = {
    "ImportError": "raise ImportError('libfoo.so.1: cannot open shared object file')",
    "OSError": "raise OSError('libfoo.so.1: undefined symbol')",
    "SystemExit": "raise SystemExit('license expired')",
    "KeyError": "raise KeyError('FOO_HOME')",
    "Fatal": "raise type('Fatal', (BaseException,), dict())('no driver')",
}
#: What fails: the module of the record, the two questions of the probe, the constructor.
PARTS = ("vendor", "evidence", "confirm", "init")
each_part = pytest.mark.parametrize("part", PARTS)


@each_part
@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_fails_is_broken_and_detection_goes_on_with_a_warning(
    machine: Any, caplog: pytest.LogCaptureFixture, failure: str, part: str
) -> None:
    machine.install("npu", **{part: FAILURES[failure]})
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    found = machine.candidate("npu")
    assert found.state is State.BROKEN
    assert failure in found.reason
    assert FAILURES[failure] in found.error
    assert caplog.messages == [
        f"npu is broken and was passed over: {found.reason}; run `accel doctor` for every candidate and its reason"
    ]


@each_part
def test_asking_for_it_gives_its_failure(machine: Any, part: str) -> None:
    machine.install("npu", **{part: FAILURES["OSError"]})
    machine.install("mlu", evidence="raise AssertionError('nobody asked for mlu')")
    error = machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu")
    assert isinstance(error, ValueError)
    assert error.message == "DS_ACCELERATOR=npu cannot be used: NPU_Accelerator requires torch_npu"
    assert "OSError: libfoo.so.1: undefined symbol" in str(error)
    assert {candidate.key for candidate in machine.candidates()} == {"npu"}
    reported = {candidate.label: candidate.state for candidate in accel_core.explain().candidates}
    assert reported["mlu"] is State.BROKEN


# -------------------------------------------------------------------------------------------- records


#: A part of the package that is not what it has to be, by its text, and what is said of it.
NO_SUCH_PART = [
    ({"vendor": "VENDOR = None"}, "fake_accel_npu.vendor:VENDOR is a NoneType"),
    ({"vendor": "VENDOR = dict(key='npu')"}, "fake_accel_npu.vendor:VENDOR is a dict"),
    ({"vendor": "from accel_core.vendor import Vendor as VENDOR"}, "fake_accel_npu.vendor:VENDOR is a type"),
    ({"confirm": "return None"}, ""),
    ({"confirm": "return Confirmation('two', 'counts two')"}, ""),
    ({"confirm": "return 2"}, ""),
    (
        {"confirm": "import accel_core; return accel_core.get_accelerator()"},
        "while the accelerator was being selected",
    ),
    ({"accelerator": ""}, "has no attribute 'Fake_Accelerator'"),
    ({"accelerator": "import torch_npu_of_another_world"}, "ModuleNotFoundError"),
    ({"accelerator": "def ("}, "SyntaxError"),
    ({"accelerator": "class Fake_Accelerator: pass"}, "not an accelerator"),
    ({"accelerator": "def Fake_Accelerator(): return None"}, "not an accelerator"),
    ({"accelerator": "Fake_Accelerator = 7"}, "not callable"),
]


@pytest.mark.parametrize(("part", "said"), NO_SUCH_PART, ids=[str(part) for part, _ in NO_SUCH_PART])
def test_a_part_that_is_none_is_broken_and_said_to_be(machine: Any, part: dict[str, str], said: str) -> None:
    machine.install("npu", **part)
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    assert machine.candidate("npu").state is State.BROKEN
    assert said in machine.candidate("npu").reason


@pytest.mark.parametrize("slip", ["priority='high'", "priority=None", "key=''", "key=None"])
def test_vendor_without_a_key_or_a_priority_is_broken_and_stops_nobody(machine: Any, slip: str) -> None:
    machine.install("npu", vendor=f"from accel_core.vendor import Vendor\nVENDOR = {_record(slip)}")
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "a vendor needs a key" in reason or "of the vendor 'npu' has to be an integer" in reason


def _record(slip: str) -> str:
    good = {"key": "'npu'", "priority": "700", "interface": "2"}
    name, _, value = slip.partition("=")
    fields = ", ".join(f"{field}={text}" for field, text in {**good, name: value}.items())
    return f"Vendor({fields}, accelerator='a:A', probe='p', distribution='accel-npu', requires='torch_npu')"


_RECORD = """\
from accel_core.vendor import Vendor

VENDOR = Vendor(key="npu", accelerator="a:A", probe="p", distribution="accel-npu", requires="torch_npu"{more})
"""

#: What makes a package one of another interface, and how it is named.
OTHER_INTERFACES = {
    "a number above": (_RECORD.format(more=", interface=7"), "is written for interface 7"),
    "no number, from before it was required": (
        _RECORD.format(more=""),
        "is written for an interface whose Vendor record has other fields",
    ),
    "a field that is gone": (
        _RECORD.format(more=", interface=1, road='ipex'"),
        "is written for an interface whose Vendor record has other fields",
    ),
    "a module that is gone": (
        "from accel_core import known\n" + _RECORD.format(more=""),
        "is written for an interface that has what this one lacks",
    ),
    "a name that is not there yet": (
        "from accel_core.vendor import Vendor, Later\n",
        "is written for an interface that has what this one lacks",
    ),
}


@pytest.mark.parametrize("case", OTHER_INTERFACES)
def test_vendor_of_another_interface_is_named_with_both_sides(machine: Any, case: str) -> None:
    vendor, written_for = OTHER_INTERFACES[case]
    machine.install("npu", vendor=vendor.replace("{", "{{").replace("}", "}}"))
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "ACC-102" in reason
    assert f"accel-npu 1.2 {written_for}" in reason
    assert "pip install --upgrade ./packages/accel-core ./packages/" in reason
    assert f"has interface {INTERFACE_VERSION}" in reason
    assert f"accel-npu 1.2 {written_for}" in machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu").details


def test_record_that_fails_by_a_mistake_of_its_own_is_not_taken_for_another_interface(machine: Any) -> None:
    machine.install("npu", vendor="import accel_corp\n")
    machine.install("mlu", vendor="int(None)\n")
    machine.select()
    for key in ("npu", "mlu"):
        assert "ACC-101" in machine.candidate(key).reason


_EXPORTS = (
    "from accel_core.vendor import lazy_exports\n__getattr__ = lazy_exports(__name__, {'New': 'part'})\n"
)


@pytest.mark.parametrize("wanted", ["from accel_core.vendor import Later", "import accel_core.later"])
def test_program_imports_package_for_newer_core(machine: Any, wanted: str) -> None:
    machine.distribution("accel-newer")
    machine.module("accel_newer/__init__.py", _EXPORTS)
    machine.module("accel_newer/part.py", wanted)
    with pytest.raises(InterfaceMismatch, match=r"(?i)later") as error:
        from accel_newer import New  # noqa: F401
    assert "pip install --upgrade ./packages/accel-core" in whole(error.value).do


def test_two_packages_for_one_key_are_both_named_and_neither_is_used(machine: Any) -> None:
    machine.install("npu")
    machine.install("npu", package="other-npu")
    assert machine.select().device_name() == "cpu"
    reason = machine.candidate("npu").reason
    assert "ACC-101" in reason
    assert "accel-npu and other-npu" in reason
    error = machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu")
    assert "accel-npu and other-npu" in str(error)
    assert "requires torch_npu" in error.message


def test_one_entry_point_listed_twice_is_one_vendor(machine: Any) -> None:
    module = machine.install("npu")
    point = importlib.metadata.EntryPoint("npu", f"{module}.vendor:VENDOR", "accel.vendors")
    discovery = discover([point, point])
    assert [vendor.key for vendor in discovery.vendors] == ["npu"]
    assert not discovery.broken


# ------------------------------------------------------------------------------------------- runtimes


@pytest.mark.parametrize("devices", [0, 2])
def test_a_variant_that_fails_gives_way_to_the_next_and_is_reported(
    machine: Any, caplog: pytest.LogCaptureFixture, devices: int
) -> None:
    ipex, native = "variant='ipex'", "variant='native'"
    counts = f"return Confirmation({devices}, 'counts {devices}')"
    machine.install("xpu", package="xpu-ipex", priority=900, record=ipex, confirm=FAILURES["OSError"])
    machine.install("xpu", package="xpu-native", priority=800, record=native, confirm=counts)
    assert machine.select(DS_ACCELERATOR="xpu").device_name() == "xpu"
    assert machine.candidate("xpu (native)").state is State.CHOSEN
    assert caplog.messages[0].startswith("xpu (ipex) is broken and was passed over: ")
    no_device = "DS_ACCELERATOR=xpu is chosen though no device is present: counts 0; "
    assert [text.startswith(no_device) for text in caplog.messages[1:]] == [True] * (not devices)


# -------------------------------------------------------------------------------- hanging, interrupted


class _GoOn(logging.Handler):
    """Lets the hanging runtime go on as soon as the first warning is out."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.set()


def test_hanging_runtime_is_named_with_the_variable_that_skips_it_while_the_run_waits(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("accel_core.selection.candidates.SLOW", 0.05)
    handler = _GoOn()
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers, handler])  # after caplog's
    monkeypatch.setattr("builtins.told_while_waiting", handler.reported, raising=False)
    machine.install("npu", confirm="return Confirmation(int(told_while_waiting.wait(60)), 'at last')")
    assert machine.select().device_name() == "npu"
    (warning,) = caplog.messages
    assert warning.startswith("still waiting for the runtime of npu after 0.05 s")
    assert "ACCEL_SKIP=npu" in warning


def test_interrupt_passes_through_says_what_it_interrupted_and_the_next_call_selects_again(
    machine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = machine.install("npu", confirm="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        machine.select()
    assert caplog.messages == ["interrupted while it was about to import the runtime of npu (accel-npu 1.2)"]
    assert CURRENT.state() == (None, None)
    probe = sys.modules[f"{module}.probe"]
    probe.confirm = lambda: probe.Confirmation(2, "counts 2")
    assert machine.select().device_name() == "npu"


# ---------------------------------------------------------------------------------- accelerators

_LACKS_METHODS = """
from accel_core import DeepSpeedAccelerator
class Fake_Accelerator(DeepSpeedAccelerator):
    def is_available(self): return True
"""


def test_missing_methods_are_named_and_detection_goes_on(machine: Any) -> None:
    machine.install("npu", accelerator=_LACKS_METHODS)
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "methods are missing: " in reason
    assert {"device_count", "memory_allocated", "create_op_builder"} <= set(reason.replace(",", "").split())
    assert "is_available" not in reason


def test_cpu_that_can_not_be_made_leaves_nothing(machine: Any) -> None:
    machine.install("npu", confirm="raise OSError('libhccl.so')")
    (machine.path / "fake_accel_cpu" / "accelerator.py").write_text("raise ImportError('libgomp.so.1')")
    error = machine.refused(NoAccelerator)
    assert "libgomp.so.1" in str(error)
    assert "libhccl.so" in str(error)


# ------------------------------------------------------------------------- left to DeepSpeed's own backend


@pytest.fixture
def deepspeed(machine: Any, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The machine has a device that no package of ours serves, and a DeepSpeed that has a backend for it."""
    (machine.path / "torch_supa.py").touch()
    monkeypatch.setattr("torch.supa", torch.cpu, raising=False)
    monkeypatch.setattr(CURRENT.deepspeed, "keys", lambda: frozenset({"cuda", "supa"}))
    monkeypatch.setattr(CURRENT.deepspeed, "load", lambda: None)
    # Where another test has imported DeepSpeed its op tables would be filled from the objects of these tests.
    monkeypatch.delitem(sys.modules, "deepspeed.ops.op_builder.all_ops", raising=False)
    return monkeypatch


def test_backend_of_deepspeed_that_can_not_be_made_is_broken_and_its_failure_that_of_who_asks_for_it(
    machine: Any, deepspeed: pytest.MonkeyPatch
) -> None:
    deepspeed.setattr(CURRENT.deepspeed, "accelerator", _failing)
    assert "no such backend: supa" in machine.refused(AcceleratorBroken).details
    assert "no such backend: supa" in machine.candidate("supa").reason
    assert "no such backend: supa" in machine.refused(AcceleratorBroken, DS_ACCELERATOR="supa").details


def _failing(key: str) -> Any:
    raise ImportError(f"no such backend: {key}")


# --- what a probe sees without imports: versions as versions, the build of torch


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("2.10.0", ">=2.6", True),  # as text it would be smaller
        ("2.5.10+xpu", "<2.6", True),
        ("2.8.0.dev20250601", ">=2.5,<2.9", True),
        ("2.13.0+cpu", ">=2.1,<2.13", False),
        ("nightly", ">=2.1", False),
    ],
)
def test_versions_are_compared_as_versions(version: str, specifier: str, inside: bool) -> None:
    assert vendor.in_range(version, specifier) is inside


BUILD = {"cuda": "12.8", "hip": None}


def test_build_of_torch_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda: str | None = '12.8'\nhip = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert {field: vendor.torch_build(field) for field in BUILD} == BUILD
    assert vendor.torch_build("xpu") is None


def test_build_of_an_imported_torch_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(**BUILD)))
    assert {field: vendor.torch_build(field) for field in BUILD} == BUILD
    assert vendor.torch_build("xpu") is None


# --- a package that cannot be used does not cost the user the device: DeepSpeed's own backend, or an error

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
    (machine.path.parent / "root/dev").mkdir()
    (machine.path.parent / "root/dev/davinci0").touch()


@pytest.fixture
def own(machine: Any, davinci: None, monkeypatch: pytest.MonkeyPatch) -> object:
    """DeepSpeed's own accelerator for npu, with the runtime that it needs."""
    own = object()
    (machine.path / "torch_npu.py").touch()
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


def test_devices_that_the_runtime_counts_are_not_lost_without_a_device_file(machine: Any) -> None:
    machine.install("npu", init="raise OSError('no licence')")
    assert "no licence" in machine.refused(AcceleratorBroken).details
    assert machine.candidate("npu").hardware is True


@each_package
def test_without_a_backend_that_works_it_is_an_error(machine: Any, davinci: None, install: Any) -> None:
    install(machine)
    error = machine.refused(AcceleratorBroken)
    assert error.message == "npu cannot be used, and the device is in this machine"
    assert error.details == f"npu: broken: {machine.candidate('npu').reason}"
    assert "pip " in str(error)
    assert "DS_ACCELERATOR=cpu" in error.do
    assert "ACCEL_SKIP=npu" in error.do


def test_the_device_that_only_the_probe_of_an_unusable_record_knows_is_kept(machine: Any) -> None:
    machine.install("toy", priority=5, interface=7, evidence=DEVICE)
    assert machine.refused(AcceleratorBroken).message.startswith("toy cannot be used")


@pytest.mark.parametrize("answer", ["raise SystemExit(3)", "return None", "return Evidence(True, 'yes', '')"])
def test_a_probe_of_another_interface_may_answer_anything(machine: Any, answer: str) -> None:
    machine.install("toy", priority=5, interface=7, evidence=answer)
    assert machine.select().device_name() == "cpu"


def test_a_device_that_another_runtime_blocks_is_not_exchanged_for_the_cpu(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("npu", evidence=DEVICE, record="privateuse1='npu'")
    monkeypatch.setattr("accel_core.selection.current.privateuse1_holder", lambda: "stale")
    assert "ACCEL_SKIP=stale" in machine.refused(AcceleratorBroken).details


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
    machine.distribution(
        "accel-xpu", entry_points={"accel.vendors": {"xpu.ipex": "fake_accel_xpu.vendor:IPEX"}}
    )
    machine.select()
    assert machine.candidate("xpu (ipex)").priority == 900


def test_a_render_node_of_another_maker_is_no_device(machine: Any) -> None:
    root = machine.path.parent / "root"
    for file, text in {"dev/dri/renderD128": "", "sys/class/drm/renderD128/device/vendor": "0x10de"}.items():
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text(text)
    machine.install("xpu", vendor="raise OSError('libsycl.so')")
    assert machine.select().device_name() == "cpu"
    (root / "sys/class/drm/renderD128/device/vendor").write_text("0x8086")
    machine.forget()
    assert machine.refused(AcceleratorBroken).message.startswith("xpu cannot be used")
