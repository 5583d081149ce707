# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tests of `device/`, in a process of each simulated device."""

from pathlib import Path

import pytest

from accel_sim import ops, surface, vendors

from .conftest import TORCHRUN, simulate

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[2] / "docs/simulated-devices.md"
KEYS = [vendor.key for vendor in vendors.VENDORS]
#: torch has no kernels of its collectives for mps, and its gloo takes no mps tensors.
WITH_COLLECTIVES = [key for key in KEYS if key != "mps"]
QUICK = ("npu",)


def run(key: str, *files: str, launcher: tuple[object, ...] = (), **variables: str) -> None:
    """Run files of `device/`; none of their tests fails, but for the gaps in their conftest."""
    paths = (HERE / "device" / file for file in files)
    done = simulate(key, *launcher, "-m", "pytest", "-q", "-x", *paths, env=variables)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def marked(keys: list[str]) -> list[object]:
    return [key if key in QUICK else pytest.param(key, marks=pytest.mark.slow) for key in keys]


@pytest.mark.parametrize("key", marked(KEYS))
def test_features_are_those_of_the_cpu(key: str) -> None:
    run(key, "test_tensors.py", "test_training.py")


@pytest.mark.parametrize("key", marked(["npu", "mlu", "supa", "xpu", "cuda"]))
def test_graphs_work_as_on_hardware(key: str) -> None:
    run(key, "test_graphs.py")


@pytest.mark.parametrize("key", marked(WITH_COLLECTIVES))
def test_collectives_give_the_right_numbers(key: str) -> None:
    run(key, "test_collectives.py", launcher=(*TORCHRUN, 2))


@pytest.mark.parametrize(
    ("key", "lazy"), [(key, lazy) for key in ops.VENDORS for lazy in (("1", "0") if key == "hpu" else ("1",))]
)
@pytest.mark.sample("mlu*")
def test_fused_ops_equal_float64_and_refuse_host_tensors(key: str, lazy: str) -> None:
    run(key, f"test_fused_{key}.py", PT_HPU_LAZY_MODE=lazy)


@pytest.mark.parametrize("key", ops.VENDORS)
def test_every_fused_op_is_tested_and_documented(key: str) -> None:
    tests = (HERE / f"device/test_fused_{key}.py").read_text(encoding="utf-8")
    page = DOCUMENT.read_text(encoding="utf-8")
    for name in {op.name.partition(".")[0] for op in ops.of(key).table}:
        assert f"def test_{name}(" in tests
        assert f"`{name}`" in page


@pytest.mark.parametrize("key", ops.VENDORS)
def test_schemas_are_the_surfaces_and_those_of_closed_packages_are_unconfirmed(key: str) -> None:
    names = surface.load(key).names
    for op in ops.of(key).table:
        known = names[f"torch.ops.{ops.of(key).namespace}.{op.name.partition('.')[0]}"]
        assert op.schema in known.signature
        assert known.note.startswith("schema unconfirmed") == (key in ("sdaa", "supa", "klxpu"))
