# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Vendors of which something fails: they are broken, never absent; detection goes on, and the device is kept."""

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accel_core
from accel_core import vendor
from accel_core.api import CURRENT
from accel_core.errors import AcceleratorBroken, InterfaceMismatch, NoAccelerator
from accel_core.selection.candidates import State, discover
from accel_core.vendor import INTERFACE_VERSION

from ..site_packages import VENDOR
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
    machine: Any, caplog: Any, failure: str, part: str
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
def test_broken_vendor_asked_for(machine: Any, part: str) -> None:
    machine.install("npu", **{part: FAILURES["OSError"]})
    machine.install("mlu", evidence="raise AssertionError('nobody asked for mlu')")
    error = machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu")
    assert isinstance(error, ValueError)
    assert error.message == "DS_ACCELERATOR=npu cannot be used: NPU_Accelerator requires torch_npu"
    assert "OSError: libfoo.so.1: undefined symbol" in str(error)
    assert {candidate.key for candidate in machine.candidates()} == {"npu"}
    reported = {candidate.label: candidate.state for candidate in accel_core.explain().candidates}
    assert reported["mlu"] is State.BROKEN


_LACKS_METHODS = """
from accel_core import DeepSpeedAccelerator
class Fake_Accelerator(DeepSpeedAccelerator):
    def is_available(self): return True
"""
_ANOTHER_KIND = "priority of the vendor 'npu' has to be int, not"
#: A part of the package that is not what it has to be, by its text, and what is said of it.
NO_SUCH_PART: list[tuple[dict[str, Any], str]] = [
    ({"vendor": "VENDOR = None"}, "fake_accel_npu.vendor:VENDOR is a NoneType"),
    ({"vendor": "VENDOR = dict(key='npu')"}, "fake_accel_npu.vendor:VENDOR is a dict"),
    ({"vendor": "from accel_core.vendor import Vendor as VENDOR"}, "fake_accel_npu.vendor:VENDOR is a type"),
    ({"vendor": VENDOR.replace("{key!r}", "''")}, "a vendor needs a key"),
    ({"vendor": VENDOR.replace("{key!r}", "None")}, "a vendor needs a key"),
    ({"priority": "'high'"}, _ANOTHER_KIND),
    ({"priority": "None"}, _ANOTHER_KIND),
    ({"record": "install=None"}, "install of the vendor 'npu' has to be str, not None"),
    ({"record": "variables=('XYZ',)"}, "variables of the vendor 'npu' has to be tuple[Variable, ...]"),
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
    ({"accelerator": _LACKS_METHODS}, "TypeError: Can't instantiate abstract class Fake_Accelerator"),
]


@pytest.mark.parametrize(("part", "said"), NO_SUCH_PART, ids=[str(part) for part, _ in NO_SUCH_PART])
def test_unusable_part_is_broken(machine: Any, part: dict[str, Any], said: str) -> None:
    machine.install("npu", **part)
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    assert machine.candidate("npu").state is State.BROKEN
    assert said in machine.candidate("npu").reason


_OTHER_FIELDS = "an interface whose Vendor record has other fields"
_LACKS = "an interface that has what this one lacks"
#: What makes a package one of another interface, and how it is named.
OTHER_INTERFACES: dict[str, tuple[dict[str, Any], str]] = {
    "a number above": ({"interface": 7}, "interface 7"),
    "no number": ({"vendor": VENDOR.replace("interface={interface}, ", "")}, _OTHER_FIELDS),
    "a field that is gone": ({"record": "road='ipex'"}, _OTHER_FIELDS),
    "a module that is gone": ({"vendor": f"from accel_core import known\n{VENDOR}"}, _LACKS),
    "a name that is not there yet": ({"vendor": "from accel_core.vendor import Vendor, Later\n"}, _LACKS),
}


@pytest.mark.parametrize(("package", "written_for"), OTHER_INTERFACES.values(), ids=OTHER_INTERFACES)
def test_vendor_of_another_interface(machine: Any, package: dict[str, Any], written_for: str) -> None:
    machine.install("npu", **package)
    machine.install("mlu")
    assert machine.select().device_name() == "mlu"
    reason = machine.candidate("npu").reason
    assert "ACC-102" in reason
    assert f"accel-npu 1.2 is written for {written_for}" in reason
    assert "pip install --upgrade ./packages/accel-core ./packages/" in reason
    assert f"has interface {INTERFACE_VERSION}" in reason
    asked_for = machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu")
    assert f"accel-npu 1.2 is written for {written_for}" in asked_for.details


def test_faulty_record_is_not_another_interface(machine: Any) -> None:
    machine.install("npu", vendor="import accel_corp\n")
    machine.install("mlu", vendor="int(None)\n")
    machine.select()
    for key in ("npu", "mlu"):
        assert "ACC-101" in machine.candidate(key).reason


@pytest.mark.parametrize("wanted", ["from accel_core.vendor import Later", "import accel_core.later"])
def test_program_imports_package_for_newer_core(machine: Any, wanted: str) -> None:
    exports = "lazy_exports(__name__, {'New': 'part'})"
    source = f"from accel_core.vendor import lazy_exports\n__getattr__ = {exports}\n"
    machine.module("accel_newer/__init__.py", source)
    machine.module("accel_newer/part.py", wanted)
    with pytest.raises(InterfaceMismatch, match=r"(?i)later") as error:
        from accel_newer import New  # noqa: F401
    assert "pip install --upgrade ./packages/accel-core" in whole(error.value).do


def test_two_packages_for_one_key(machine: Any) -> None:
    machine.install("npu")
    machine.install("npu", package="other-npu")
    assert machine.select().device_name() == "cpu"
    reason = machine.candidate("npu").reason
    assert "ACC-101" in reason
    assert "accel-npu and other-npu" in reason
    error = machine.refused(AcceleratorBroken, DS_ACCELERATOR="npu")
    assert "accel-npu and other-npu" in str(error)
    assert "requires torch_npu" in error.message


def test_entry_point_listed_twice_is_one_vendor(machine: Any) -> None:
    module = machine.install("npu")
    point = importlib.metadata.EntryPoint("npu", f"{module}.vendor:VENDOR", "accel.vendors")
    discovery = discover([point, point])
    assert [vendor.key for vendor in discovery.vendors] == ["npu"]
    assert not discovery.broken


@pytest.mark.parametrize("devices", [0, 2])
def test_broken_variant_gives_way_to_next(machine: Any, caplog: Any, devices: int) -> None:
    ipex, native = "variant='ipex'", "variant='native'"
    counts = f"return Confirmation({devices}, 'counts {devices}')"
    machine.install("xpu", package="xpu-ipex", priority=900, record=ipex, confirm=FAILURES["OSError"])
    machine.install("xpu", package="xpu-native", priority=800, record=native, confirm=counts)
    assert machine.select(DS_ACCELERATOR="xpu").device_name() == "xpu"
    assert machine.candidate("xpu (native)").state is State.CHOSEN
    assert caplog.messages[0].startswith("xpu (ipex) is broken and was passed over: ")
    no_device = "DS_ACCELERATOR=xpu is chosen though no device is present: counts 0; "
    assert [text.startswith(no_device) for text in caplog.messages[1:]] == [True] * (not devices)


def test_hanging_runtime_is_named(machine: Any, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr("accel_core.selection.candidates.SLOW", 0.05)
    monkeypatch.setattr("builtins.messages", lambda: caplog.messages, raising=False)
    wait = "[time.sleep(0.02) for _ in range(3000) if not messages()]"
    machine.install("npu", confirm=f"import time; {wait}; return Confirmation(2, 'at last')")
    assert machine.select().device_name() == "npu"
    (warning,) = caplog.messages
    assert warning.startswith("still waiting for the runtime of npu after 0.05 s")
    assert "ACCEL_SKIP=npu" in warning


def test_selection_after_interrupt(machine: Any, caplog: Any) -> None:
    module = machine.install("npu", confirm="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        machine.select()
    assert caplog.messages == ["interrupted while it was about to import the runtime of npu (accel-npu 1.2)"]
    assert CURRENT.state() == (None, None)
    probe = sys.modules[f"{module}.probe"]
    probe.confirm = lambda: probe.Confirmation(2, "counts 2")
    assert machine.select().device_name() == "npu"


def test_cpu_that_cannot_be_constructed(machine: Any) -> None:
    machine.install("npu", confirm="raise OSError('libhccl.so')")
    (machine.path / "fake_accel_cpu" / "accelerator.py").write_text("raise ImportError('libgomp.so.1')")
    error = machine.refused(NoAccelerator)
    assert "libgomp.so.1" in str(error)
    assert "libhccl.so" in str(error)


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


@pytest.mark.parametrize("imported", [False, True])
def test_build_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: bool) -> None:
    """It is read from the file of a torch that is not imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise AssertionError('imported')")
    cuda = "" if imported else "cuda: str | None = '12.8'\nhip = None\n"
    (tmp_path / "torch/version.py").write_text(cuda)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if imported:
        version = SimpleNamespace(cuda="12.8", hip=None)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=version))
    assert [vendor.torch_build(field) for field in ("cuda", "hip", "xpu")] == ["12.8", None, None]


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
    machine.file("dev/davinci0")


@pytest.fixture
def own(machine: Any, davinci: None, monkeypatch: Any) -> object:
    """DeepSpeed's own accelerator for npu, with the runtime that it needs."""
    own = object()
    (machine.path / "torch_npu.py").touch()
    monkeypatch.setattr("torch.npu", type("npu", (), _counting(2)), raising=False)
    monkeypatch.setattr(CURRENT.deepspeed, "keys", lambda: frozenset({"npu", "cuda", "cpu"}))
    monkeypatch.setattr(CURRENT.deepspeed, "load", lambda: None)
    monkeypatch.setattr(CURRENT.deepspeed, "accelerator", {"npu": own}.__getitem__)
    # Where another test has imported DeepSpeed its op tables would be filled from the objects of these tests.
    monkeypatch.delitem(sys.modules, "deepspeed.ops.op_builder.all_ops", raising=False)
    return own


def _counting(devices: int) -> dict[str, Any]:
    return {"is_available": staticmethod(lambda: devices > 0), "device_count": staticmethod(lambda: devices)}


@pytest.mark.parametrize("key", ["supa", "klxpu"])
def test_runtime_without_device_leaves_torch_cuda(machine: Any, key: str) -> None:
    machine.install(key, confirm="raise SystemExit('imported: torch.cuda is replaced')")
    machine.install("cuda", evidence=DEVICE)
    assert machine.select().device_name() == "cuda"
    assert machine.candidate(key).state is State.OUTRANKED


@each_package
@pytest.mark.parametrize("asked", [{}, {"DS_ACCELERATOR": "npu"}], ids=str)
def test_deepspeeds_backend_replaces_unusable_package(
    machine: Any, own: object, caplog: Any, install: Any, asked: dict[str, str]
) -> None:
    install(machine)
    machine.install("mlu")  # of lower priority
    assert machine.select(**asked) is own
    assert machine.candidate("npu (deepspeed)").state is State.DEFERRED
    (warning,) = caplog.messages
    assert warning.startswith("npu is left to DeepSpeed's own backend, because accel-npu")
    assert machine.candidate("npu").reason in warning
    assert "pip " in warning


def test_failing_backend_of_deepspeed(machine: Any, own: object, monkeypatch: Any) -> None:
    def fail(key: str) -> Any:
        raise ImportError(f"no such backend: {key}")

    monkeypatch.setattr(CURRENT.deepspeed, "accelerator", fail)
    for variables in ({}, {"DS_ACCELERATOR": "npu"}):
        assert "no such backend: npu" in machine.refused(AcceleratorBroken, **variables).details
        assert "no such backend: npu" in machine.candidate("npu").reason


def test_counted_device_without_device_file_is_kept(machine: Any) -> None:
    machine.install("npu", init="raise OSError('no licence')")
    assert "no licence" in machine.refused(AcceleratorBroken).details
    assert machine.candidate("npu").hardware is True


@each_package
def test_device_without_usable_backend_is_an_error(machine: Any, davinci: None, install: Any) -> None:
    install(machine)
    error = machine.refused(AcceleratorBroken)
    assert error.message == "npu cannot be used, and the device is in this machine"
    assert error.details == f"npu: broken: {machine.candidate('npu').reason}"
    assert "pip " in str(error)
    assert "DS_ACCELERATOR=cpu" in error.do
    assert "ACCEL_SKIP=npu" in error.do


def test_probe_of_unusable_record_finds_device(machine: Any) -> None:
    machine.install("toy", priority=5, interface=7, evidence=DEVICE)
    assert machine.refused(AcceleratorBroken).message.startswith("toy cannot be used")


@pytest.mark.parametrize("answer", ["raise SystemExit(3)", "return None", "return Evidence(True, 'yes', '')"])
def test_invalid_evidence_of_unusable_record(machine: Any, answer: str) -> None:
    machine.install("toy", priority=5, interface=7, evidence=answer)
    assert machine.select().device_name() == "cpu"


def test_blocked_device_is_an_error(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install("npu", evidence=DEVICE, record="privateuse1='npu'")
    monkeypatch.setattr("accel_core.selection.current.privateuse1_holder", lambda: "stale")
    assert "ACCEL_SKIP=stale" in machine.refused(AcceleratorBroken).details


def test_hidden_devices_are_not_lost(machine: Any, own: object, monkeypatch: Any) -> None:
    PACKAGES["another interface"](machine)
    monkeypatch.setattr("torch.npu", type("npu", (), _counting(0)))
    assert machine.select().device_name() == "cpu"
    assert machine.candidate("npu (deepspeed)").state is State.ABSENT


def test_working_package_precedes_deepspeeds_backend(machine: Any, own: object) -> None:
    machine.install("npu")
    machine.install("npu", package="old-npu", vendor="raise OSError('libfoo.so')")
    assert machine.select().device_name() == "npu"
    assert "npu (deepspeed)" not in {candidate.label for candidate in machine.candidates()}


def test_unimportable_variant_has_its_priority(machine: Any, own: object) -> None:
    machine.install("xpu", vendor="raise OSError('libsycl.so')")
    machine.distribution(
        "accel-xpu", entry_points={"accel.vendors": {"xpu.ipex": "fake_accel_xpu.vendor:IPEX"}}
    )
    machine.select()
    assert machine.candidate("xpu (ipex)").priority == 900


def test_render_node_of_another_vendor_is_ignored(machine: Any) -> None:
    pci_vendor = "sys/class/drm/renderD128/device/vendor"
    machine.file("dev/dri/renderD128")
    machine.file(pci_vendor, "0x10de")
    machine.install("xpu", vendor="raise OSError('libsycl.so')")
    assert machine.select().device_name() == "cpu"
    machine.file(pci_vendor, "0x8086")
    machine.forget()
    assert machine.refused(AcceleratorBroken).message.startswith("xpu cannot be used")
