# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A device that no package here serves is left to DeepSpeed's own backend; a third party's is found."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

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
    found = importlib.util.find_spec("deepspeed")
    folder = Path(found.origin).parent / "accelerator" if found and found.origin else Path()
    return {file.stem.removesuffix("_accelerator") for file in folder.glob("*_accelerator.py")}


needs_supa = pytest.mark.skipif("supa" not in _backends(), reason="this DeepSpeed has no backend for supa")


@pytest.fixture
def supa(tmp_path: Path) -> Path:
    """A machine with two supa devices."""
    (tmp_path / "torch_supa.py").write_text(_TORCH_SUPA.format(devices=2))
    return tmp_path


_FIRST = ["import accel_core; accel_core.get_accelerator()", "import deepspeed"]


@needs_supa
@pytest.mark.upstream
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("asked", ["supa", None])
def test_supa_is_upstreams_object_asked_for_or_detected(
    children: Any, supa: Path, first: str, asked: str | None
) -> None:
    children.run(
        f"{first}\nif True:{_AGREE.format(key='supa', name='SUPA_Accelerator')}", [supa], DS_ACCELERATOR=asked
    )


@needs_supa
@pytest.mark.upstream
def test_an_importable_wheel_without_a_device_is_not_detected(children: Any, tmp_path: Path) -> None:
    (tmp_path / "torch_supa.py").write_text(_TORCH_SUPA.format(devices=0))
    children.run(
        """
        import accel_core
        said = accel_core.explain()
        supa = next(candidate for candidate in said.candidates if candidate.key == "supa")
        assert said.chosen != "supa"
        assert (supa.state.value, supa.devices) == ("absent", 0), supa
        """,
        [tmp_path],
    )


@needs_supa
@pytest.mark.upstream
@pytest.mark.parametrize("first", _FIRST)
def test_a_runtime_that_crashes_is_reported_when_asked_for(children: Any, tmp_path: Path, first: str) -> None:
    (tmp_path / "torch_supa.py").write_text("raise OSError('libsupa.so: cannot open shared object file')")
    failed = children.attempt(first, [tmp_path], DS_ACCELERATOR="supa")
    assert failed.status == 1
    assert (
        "[ACC-203] DS_ACCELERATOR=supa cannot be served: SUPA_Accelerator requires torch_supa" in failed.err
    )
    assert "OSError: libsupa.so: cannot open shared object file" in failed.err


@pytest.mark.upstream
@pytest.mark.parametrize("first", _FIRST)
def test_cuda_asked_for_on_a_machine_without_a_card_is_upstreams_object(
    children: Any, tmp_path: Path, first: str
) -> None:
    # A distribution is found once: this one hides an installed accel-cuda and its record.
    (tmp_path / "accel_cuda-0.dist-info").mkdir()
    (tmp_path / "accel_cuda-0.dist-info/METADATA").write_text("Name: accel-cuda\nVersion: 0\n")
    pretended = "import torch; torch.version.cuda = '12.8'"
    agree = _AGREE.format(key="cuda", name="CUDA_Accelerator")
    children.run(f"{pretended}\n{first}\nif True:{agree}", [tmp_path], DS_ACCELERATOR="cuda")


def test_without_deepspeed_the_error_names_what_to_install(children: Any, supa: Path) -> None:
    without = "import sys; sys.modules['deepspeed'] = None\nimport accel_core; accel_core.get_accelerator()"
    detected = children.attempt(without, [supa])
    asked = children.attempt(without, [supa], DS_ACCELERATOR="supa")
    for failed in (detected, asked):
        assert failed.status == 1
        assert "supa is here and nothing installed can drive it" in failed.err
        assert "pip install deepspeed" in failed.err


def test_a_deepspeed_without_that_backend_is_distinguished_from_none(children: Any, supa: Path) -> None:
    if "supa" in _backends() or not _backends():
        pytest.skip("this is about a DeepSpeed that is older than its backend for supa")
    failed = children.attempt("import deepspeed", [supa], DS_ACCELERATOR="supa")
    assert failed.status == 1
    assert "supa is here and nothing installed can drive it" in failed.err


# --- third-party proof: a package that core has never heard of installs, is detected, wins and serves its op


@pytest.mark.upstream
def test_deepspeed_trains_on_it_with_its_op(children: Any, toy: Path) -> None:
    losses = children.run(
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
        [toy],
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
    ).report
    assert losses[-1] < losses[0] / 2
    assert children.compiled() == []
