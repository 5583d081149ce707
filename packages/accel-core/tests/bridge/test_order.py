# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Order matrix: whoever comes first, DeepSpeed and accel_core have one accelerator and its op builders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

_HOLD = "import agreement; agreement.hold('accel_toy')"

_ORDERS = {
    "vendor first": "import accel_toy.accelerator",
    "core first": "import accel_core",
    "core's selection first": "import accel_core; accel_core.get_accelerator()",
    "torch first": "import torch",
    "deepspeed first": "import deepspeed",
    "deepspeed's builders first": "from deepspeed.ops.op_builder import CPUAdamBuilder",
    "launcher's import first": "import deepspeed.launcher.launch",
}


@pytest.mark.parametrize("first", _ORDERS.values(), ids=_ORDERS)
def test_accelerator_and_builders_agree_whoever_is_imported_first(
    children: Any, toy: Path, first: str
) -> None:
    children.run(f"{first}\n{_HOLD}", [toy])


_WITHOUT_AUTOLOAD = {
    "core first": "import accel_core",
    "vendor first": "import accel_toy.accelerator",
    "vendor's package first": "import accel_toy",
    "torch, then core": "import torch, accel_core",
    "deepspeed, then core": "import deepspeed; import accel_core",
    "deepspeed's whole ops, then core": "import deepspeed.ops.op_builder.all_ops; import accel_core",
    "deepspeed's compatible ops, then core": "import deepspeed; deepspeed.ops.__compatible_ops__; import accel_core",
}


@pytest.mark.parametrize("first", _WITHOUT_AUTOLOAD.values(), ids=_WITHOUT_AUTOLOAD)
def test_they_agree_with_torch_autoload_switched_off(children: Any, toy: Path, first: str) -> None:
    children.run(f"{first}\n{_HOLD}", [toy], TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_they_agree_after_a_runtime_that_imports_torch_without_its_autoload(children: Any, toy: Path) -> None:
    # As torch_npu does when a script imports it first; the variable is restored, for child processes.
    children.run(
        f"""
        import os
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
        import accel_toy
        {_HOLD}
        """,
        [toy],
    )


def test_names_taken_from_upstream_before_a_late_bridge_lead_to_the_new_accelerator(
    children: Any, toy: Path
) -> None:
    children.run(
        """
        from deepspeed.accelerator import get_accelerator
        before = get_accelerator()
        import accel_core
        assert accel_core.get_accelerator() is get_accelerator()
        assert get_accelerator() is not before
        """,
        [toy],
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


_LATE = {
    "deepspeed's door": "from deepspeed.accelerator import set_accelerator",
    "deepspeed's door, taken before": "set_accelerator = early",
    "core's door": "from accel_core import set_accelerator",
}


@pytest.mark.parametrize("door", _LATE.values(), ids=_LATE)
def test_they_agree_after_a_late_set_accelerator(children: Any, toy: Path, classic: Path, door: str) -> None:
    children.run(
        f"""
        import deepspeed
        from deepspeed.accelerator import set_accelerator as early
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        from accel_toy import Toy_Accelerator
        import agreement
        agreement.hold("accel_classic")
        {door}
        set_accelerator(Toy_Accelerator())
        agreement.hold("accel_toy")
        assert set(ALL_OPS) == {{"fused_adam", "deepspeed_not_implemented"}}
        assert ALL_OPS["fused_adam"].load().__name__ == "accel_toy.ops.fused_adam"
        """,
        [toy, classic],
        DS_ACCELERATOR="classic",
    )


def test_a_spawned_child_selects_as_its_parent_did(children: Any, toy: Path) -> None:
    children.run(
        f"""
        import multiprocessing, agreement
        if __name__ == "__main__":
            {_HOLD}
            child = multiprocessing.get_context("spawn").Process(target=agreement.hold, args=("accel_toy",))
            child.start()
            child.join()
            assert child.exitcode == 0
        """,
        [toy],
    )


_FORKS = {
    "before any use": "import accel_core, torch, deepspeed.accelerator",
    "after the selection": "import deepspeed, accel_core; accel_core.get_accelerator()",
    "after use": "import agreement; agreement.hold('accel_toy')",
}


@pytest.mark.parametrize("before", _FORKS.values(), ids=_FORKS)
def test_a_forked_child_has_what_its_parent_has(children: Any, toy: Path, before: str) -> None:
    children.run(
        f"""
        import os
        {before}
        if (child := os.fork()) == 0:
            status = 1
            try:
                import agreement
                agreement.hold("accel_toy")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        import agreement
        agreement.hold("accel_toy")
        """,
        [toy],
    )


@pytest.mark.parametrize("first", ["import deepspeed", "import accel_core", "import accel_core, deepspeed"])
def test_with_the_bridge_switched_off_deepspeed_stays_as_it_is(children: Any, toy: Path, first: str) -> None:
    children.run(
        f"""
        {first}
        import agreement
        agreement.untouched()
        import accel_core
        assert type(accel_core.get_accelerator()).__module__ == "accel_toy.accelerator"
        agreement.untouched()
        """,
        [toy],
        ACCEL_BRIDGE="0",
    )
