# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the bridge changes in DeepSpeed, what it leaves to it, and what an import may not do because of us."""

from pathlib import Path
from typing import Any

import pytest

from accel_core.vendor import deepspeed_folder
from shared.children import Children

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
    # A distribution is found once: this one hides an installed accel-zero and its entry points.
    record = tmp_path / "accel_zero-0.9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: accel-zero\nVersion: 0.9\n")
    if text:
        names = (
            ["zero"] if "MODULES" in text else ["deepspeed.runtime.engine", "deepspeed.runtime.zero.stage3"]
        )
        lines = [f"{name} = other_table{':join' * ('join' in text)}" for name in names]
        (record / "entry_points.txt").write_text("\n".join(["[accel.deepspeed_patches]", *lines, ""]))
        (tmp_path / "other_table.py").write_text(text)
    ended = children.run(_STOCK, [tmp_path], DS_ACCELERATOR="cpu")
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
tensor = torch.arange(6.0).reshape(2, 3)
pinned = accel.pin_memory(tensor)
native = pin_memory.get_active_native_pinned_memory()
assert type(native) is pin_memory.NativePinnedMemory
assert torch.equal(pinned, tensor)
assert native.is_pinned(pinned) and accel.is_pinned(pinned)
assert accel.reported == [24]
assert accel.is_pinned(accel.pin_memory(tensor, make_copy=False, match_shape=False))
assert accel.is_pinned(accel.pin_empty(2, 2, dtype=torch.int8))
assert accel.is_pinned(accel.pin_empty_like(tensor))
assert not accel.is_pinned(tensor)
assert accel.unpin_memory(pinned) is True
"""


@pytest.mark.upstream
@pytest.mark.skipif(not _HAS_PINS, reason="this DeepSpeed has no allocator of its own")
def test_deepspeeds_own_allocator_is_reached_when_it_is_chosen(toy: Any) -> None:
    toy.run(_NATIVE, DS_PIN_MEMORY_BACKEND="native")
    assert toy.compiled() == []


# --- a device that no package here serves is left to DeepSpeed's own backend; a third party's is found


#: As a vendor's runtime does: claims torch's PrivateUse1 slot and registers torch.supa.
_TORCH_SUPA = """
import sys, types, torch

supa = types.ModuleType("torch.supa")
supa.is_available = lambda: True
supa.device_count = lambda: {devices}
supa.Event = supa.Stream = type("Event", (), {{}})
torch.utils.rename_privateuse1_backend("supa")
torch._register_device_module("supa", supa)
"""
_AGREE = """
    import accel_core
    from deepspeed.accelerator import get_accelerator
    from deepspeed.accelerator.{key}_accelerator import {name} as Upstream
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
    assert said.chosen == "{key}"
    assert "DeepSpeed's own backend" in said.how
    state = next(f.state.value for f in said.candidates if f.key == "{key}")
    assert state == "deferred", state
"""


def _backends() -> set[str]:
    folder = deepspeed_folder() or Path()
    return {file.stem.removesuffix("_accelerator") for file in folder.glob("accelerator/*_accelerator.py")}


needs_supa = pytest.mark.skipif("supa" not in _backends(), reason="this DeepSpeed has no backend for supa")


@pytest.fixture
def supa(children: Children, tmp_path: Path) -> Children:
    """A machine with two supa devices."""
    (tmp_path / "torch_supa.py").write_text(_TORCH_SUPA.format(devices=2))
    return children.on(tmp_path)


_FIRST = ["import accel_core; accel_core.get_accelerator()", "import deepspeed"]


@pytest.mark.sample("supa-import deepspeed")
@needs_supa
@pytest.mark.upstream
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("asked", ["supa", None])
def test_supa_is_upstreams_object_asked_for_or_detected(supa: Any, first: str, asked: str | None) -> None:
    supa.run(f"{first}\nif True:{_AGREE.format(key='supa', name='SUPA_Accelerator')}", DS_ACCELERATOR=asked)


def test_without_deepspeed_the_error_names_what_to_install(supa: Any) -> None:
    without = "import sys; sys.modules['deepspeed'] = None\nimport accel_core; accel_core.get_accelerator()"
    for failed in (supa.attempt(without), supa.attempt(without, DS_ACCELERATOR="supa")):
        assert failed.status == 1
        assert "found a device for 'supa', but no package supports it" in failed.err
        assert "pip install deepspeed" in failed.err


def test_a_deepspeed_without_that_backend_is_distinguished_from_none(supa: Any) -> None:
    if "supa" in _backends() or not _backends():
        pytest.skip("this is about a DeepSpeed that is older than its backend for supa")
    failed = supa.attempt("import deepspeed", DS_ACCELERATOR="supa")
    assert failed.status == 1
    assert "found a device for 'supa', but no package supports it" in failed.err


# --- third-party proof: a package that core has never heard of installs, is detected, wins and serves its op


@pytest.mark.upstream
def test_deepspeed_trains_on_it_with_its_op(toy: Any) -> None:
    losses = toy.run(
        """
        import json, deepspeed, torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        config = {"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"lr": 0.02}},
                  "zero_optimization": {"stage": 1}}
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=0, world_size=1,
                                   init_method="tcp://127.0.0.1:0")
        engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
        inner = getattr(optimizer, "optimizer", optimizer)
        assert type(inner).__name__ == "FusedAdam"
        assert inner.multi_tensor_adam.__module__ == "accel_toy.ops.fused_adam"
        batch, losses = torch.randn(4, 8), []
        for _ in range(8):
            loss = engine(batch).square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        print(json.dumps(losses))
        """,
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
    ).report
    assert losses[-1] < losses[0] / 2
    assert toy.compiled() == []


# --- what `import torch`, `import accel_core` and `import deepspeed` may not do because of us


_MODULES = "import json, sys, torch; print(json.dumps(sorted(sys.modules)))"
_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_import_torch_loads_at_most_fifteen_further_modules(toy: Any) -> None:
    without = toy.run(_MODULES, **_OFF).report
    further = sorted(set(toy.run(_MODULES).report) - set(without))
    assert "accel_core.activate" in further
    assert len(further) <= 15, further
    assert not [name for name in further if name.startswith(("wrapt", "accel_toy", "accel_core.upstream"))]


def test_import_torch_and_core_print_nothing_start_no_process_and_select_nothing(toy: Any) -> None:
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
def test_import_deepspeed_starts_no_process_more_with_us(toy: Any) -> None:
    without = toy.run(_STARTED, ACCEL_BRIDGE="0").report
    with_us = toy.run(_STARTED).report
    assert [line for line in with_us if with_us.count(line) > without.count(line)] == []


@pytest.mark.upstream
@pytest.mark.parametrize("device", ["toy", "cpu"])
def test_probing_every_op_starts_no_process_and_compiles_nothing(toy: Any, device: str) -> None:
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


_BREAKAGES = {
    "wrapt raises": "raise RuntimeError('wrapt was built for another Python')",
    "wrapt is another package": "",
}


@pytest.mark.upstream
@pytest.mark.parametrize("breakage", _BREAKAGES.values(), ids=_BREAKAGES)
def test_a_broken_wrapt_is_reported_and_takes_nothing_down(toy: Any, tmp_path: Path, breakage: str) -> None:
    (tmp_path / "wrapt.py").write_text(breakage)
    reported = toy.on(tmp_path).run(
        "import torch, deepspeed, agreement; agreement.untouched(); assert torch.ones(1) == 1",
    )
    assert "accel_core is not joined to deepspeed" in reported.err


def test_a_broken_accel_core_does_not_take_import_torch_down(toy: Any, tmp_path: Path) -> None:
    # An import path without accel_core's dependencies, as after a half-done upgrade.
    (tmp_path / "packaging.py").write_text("raise ImportError('half an upgrade')")
    toy.on(tmp_path).run("import torch; assert torch.ones(1) == 1")
