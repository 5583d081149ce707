# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the bridge changes in DeepSpeed, what it leaves to it, and what an import may not do because of us."""

from pathlib import Path
from typing import Any

import pytest

from accel_core.vendor import deepspeed_folder
from shared.children import Children

from ..site_packages import SitePackages

_STOCK = """
    import json, sys, torch, deepspeed
    from deepspeed.launcher import runner
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    functions = [runner.parse_args, DeepSpeedEngine.load_checkpoint, DeepSpeedZeroOptimizer_Stage3.has_overflow]
    stock = all(each.__code__.co_filename.startswith(deepspeed.__path__[0]) for each in functions)
    print(json.dumps([stock, "accel_zero.table" in sys.modules, DeepSpeedEngine.load_checkpoint.__module__]))
"""
_TABLES = {
    "hidden": "",
    "older table": "INTERFACE, MODULES = 1, ['deepspeed.runtime.engine']",
    "table for newer core": "from accel_core.vendor import to_come",
    "table without number": "def join(module): raise AssertionError",
}


@pytest.mark.upstream
@pytest.mark.parametrize("text", _TABLES.values(), ids=_TABLES)
def test_stock_methods_without_fitting_table(children: Any, tmp_path: Path, text: str) -> None:
    names = ["zero"] if "MODULES" in text else ["deepspeed.runtime.engine", "deepspeed.runtime.zero.stage3"]
    target = f"other_table{':join' * ('join' in text)}"
    points = {"accel.deepspeed_patches": dict.fromkeys(names, target)} if text else {}
    site = SitePackages(tmp_path)
    # A distribution is found once: this one hides an installed accel-zero and its entry points.
    site.distribution("accel-zero", "0.9", points)
    site.module("other_table.py", text)
    ended = children.on(tmp_path).run(_STOCK, DS_ACCELERATOR="cpu")
    assert ended.report == [True, False, "deepspeed.runtime.engine"]
    said = [line for line in ended.err.splitlines() if "stock methods of DeepSpeed" in line]
    assert len(said) == bool(text)
    assert all("of accel-zero 0.9: " in line and "--upgrade" in line for line in said)


_HAS_PINS = ((deepspeed_folder() or Path()) / "utils/pin_memory.py").is_file()
_NATIVE = """
import deepspeed, torch
from accel_core import OpBuilder
from accel_toy import Toy_Accelerator
from deepspeed.utils import pin_memory

class Handle:  # stands in for the op behind upstream's allocator, which is compiled
    def new_cpu_locked_tensor(self, numel, example):
        return torch.empty(numel, dtype=example.dtype)
    def free_cpu_locked_tensor_by_ptr(self, address):
        return True

class Builder(OpBuilder):
    NAME = "pin_memory"
    pin_handle = Handle
    def compatibility(self):
        return True, "pretended"
    def load(self, verbose=True):
        return self

class Pinning(Toy_Accelerator):
    reported = []
    def get_op_builder(self, class_name):
        return Builder if class_name == "PinMemoryBuilder" else super().get_op_builder(class_name)
    def register_host_memory(self, address, num_bytes):
        self.reported.append(num_bytes)
        return True

deepspeed.accelerator.set_accelerator(Pinning())
accel = deepspeed.accelerator.get_accelerator()
pinned = accel.pin_memory(torch.arange(6.0))
native = pin_memory.get_active_native_pinned_memory()
assert type(native) is pin_memory.NativePinnedMemory
assert native.is_pinned(pinned) and accel.is_pinned(pinned)
assert accel.reported == [24]
assert accel.unpin_memory(pinned) is True
"""


@pytest.mark.upstream
@pytest.mark.skipif(not _HAS_PINS, reason="this DeepSpeed has no allocator of its own")
def test_deepspeeds_allocator_serves_accelerator(toy: Any) -> None:
    """The forms of memory that it gives are in the conformance suite (test_active_allocator_is_used)."""
    toy.run(_NATIVE, DS_PIN_MEMORY_BACKEND="native")
    assert toy.compiled() == []


# --- a device whose package is not installed is left to DeepSpeed's own backend; a third party's is found


#: As a vendor's runtime does: claims torch's PrivateUse1 slot and registers torch.supa.
_TORCH_SUPA = """
import sys, types, torch

supa = types.ModuleType("torch.supa")
supa.is_available = lambda: True
supa.device_count = lambda: 2
supa.Event = supa.Stream = type("Event", (), {})
torch.utils.rename_privateuse1_backend("supa")
torch._register_device_module("supa", supa)
"""
_AGREE = """
    import accel_core
    from deepspeed.accelerator import get_accelerator
    from deepspeed.accelerator.supa_accelerator import SUPA_Accelerator as Upstream
    accel = accel_core.get_accelerator()
    assert type(accel) is Upstream
    assert get_accelerator() is accel
    from deepspeed.ops.op_builder import FusedAdamBuilder
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    builder = FusedAdamBuilder()
    assert type(builder) is accel.get_op_builder("FusedAdamBuilder")
    assert type(builder).__module__.startswith("deepspeed.ops.op_builder.")
    assert type(ALL_OPS["fused_adam"]) is type(builder)
    said = accel_core.explain()
    assert said.chosen == "supa"
    assert "DeepSpeed's own backend" in said.how
    state = next(f.state.value for f in said.candidates if f.key == "supa")
    assert state == "deferred", state
"""


def _backends() -> set[str]:
    folder = deepspeed_folder() or Path()
    return {file.stem.removesuffix("_accelerator") for file in folder.glob("accelerator/*_accelerator.py")}


needs_supa = pytest.mark.skipif("supa" not in _backends(), reason="this DeepSpeed has no backend for supa")


@pytest.fixture
def supa(children: Children, tmp_path: Path) -> Children:
    """A machine with two supa devices, without accel-supa."""
    SitePackages(tmp_path).distribution("accel-supa", "0")  # hides one that is installed
    (tmp_path / "torch_supa.py").write_text(_TORCH_SUPA)
    return children.on(tmp_path)


_FIRST = ["import accel_core; accel_core.get_accelerator()", "import deepspeed"]


@pytest.mark.sample("supa-import deepspeed")
@needs_supa
@pytest.mark.upstream
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("asked", ["supa", None])
def test_supa_is_deepspeeds_own_object(supa: Any, first: str, asked: str | None) -> None:
    supa.run(f"{first}\nif True:{_AGREE}", DS_ACCELERATOR=asked)


_UNSERVED = "found a device for 'supa', but nothing installed supports it"


def test_supa_without_deepspeed(supa: Any) -> None:
    without = "import sys; sys.modules['deepspeed'] = None\nimport accel_core; accel_core.get_accelerator()"
    for failed in (supa.attempt(without), supa.attempt(without, DS_ACCELERATOR="supa")):
        assert failed.status == 1
        assert _UNSERVED in failed.err
        assert "accel-supa" in failed.err


def test_supa_with_older_deepspeed(supa: Any) -> None:
    if "supa" in _backends() or not _backends():
        pytest.skip("this is about a DeepSpeed that is older than its backend for supa")
    failed = supa.attempt("import deepspeed", DS_ACCELERATOR="supa")
    assert failed.status == 1
    assert _UNSERVED in failed.err


# --- what `import torch`, `import accel_core` and `import deepspeed` may not do because of us


_MODULES = "import json, sys, torch; print(json.dumps(sorted(sys.modules)))"


def test_import_torch_loads_few_modules(toy: Any) -> None:
    without = toy.run(_MODULES, TORCH_DEVICE_BACKEND_AUTOLOAD="0").report
    further = sorted(set(toy.run(_MODULES).report) - set(without))
    assert "accel_core.activate" in further
    assert len(further) <= 15, further
    assert not [name for name in further if name.startswith(("wrapt", "accel_toy", "accel_core.upstream"))]


def test_import_has_no_effects(toy: Any) -> None:
    # Selection would be heard of: this driver is broken.
    quiet = toy.run(
        """
        import processes, sys, accel_core
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "deepspeed", "wrapt", "numpy", "accel_toy"}, loaded
        import torch
        from accel_core.api import CURRENT
        assert CURRENT.state() == (None, None)
        assert "accel_toy" not in sys.modules
        assert processes.started == [], processes.started
        """,
        TOY_DEVICES="-1",
    )
    assert (quiet.out, quiet.err) == ("", "")


_STARTED = "import processes, json, deepspeed; print(json.dumps(processes.started))"


@pytest.mark.upstream
def test_import_deepspeed_starts_no_further_process(toy: Any) -> None:
    without = toy.run(_STARTED, ACCEL_BRIDGE="0").report
    with_us = toy.run(_STARTED).report
    assert [line for line in with_us if with_us.count(line) > without.count(line)] == []


@pytest.mark.upstream
@pytest.mark.parametrize("device", ["toy", "cpu"])
def test_compatibility_of_ops_starts_no_process(toy: Any, device: str) -> None:
    if device == "cpu":
        pytest.importorskip("accel_cpu", reason="not run: package accel-cpu")
    started = toy.run(
        f"""
        import processes, json, deepspeed, deepspeed.ops
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        assert ("cpu_adam" in ALL_OPS) == ({device!r} == "cpu")
        processes.started.clear()
        found = [op.is_compatible() for op in ALL_OPS.values()] + [dict(deepspeed.ops.__compatible_ops__)]
        print(json.dumps(processes.started))
        """,
        DS_ACCELERATOR=device,
    ).report
    assert started == []
    assert toy.compiled() == []


@pytest.mark.upstream
@pytest.mark.parametrize("breakage", ["raise RuntimeError('wrapt was built for another Python')", ""])
def test_broken_wrapt_is_reported(toy: Any, tmp_path: Path, breakage: str) -> None:
    (tmp_path / "wrapt.py").write_text(breakage)
    reported = toy.on(tmp_path).run("import torch, deepspeed, agreement; agreement.untouched()")
    assert "accel_core is not joined to deepspeed" in reported.err


def test_import_torch_with_broken_dependency(toy: Any, tmp_path: Path) -> None:
    # An import path without accel_core's dependencies, as after a half-done upgrade.
    (tmp_path / "packaging.py").write_text("raise ImportError('half an upgrade')")
    toy.on(tmp_path).run("import torch")
