# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Accelerators and builders written against DeepSpeed's own classes keep working, through every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

_HOLD = "import agreement; agreement.hold('accel_classic')"
_FIRST = {
    "core asks first": "import accel_core; accel_core.get_accelerator()",
    "deepspeed asks first": "import deepspeed",
    "deepspeed's base class first": "import deepspeed.accelerator.abstract_accelerator",
}


@pytest.mark.parametrize("first", _FIRST.values(), ids=_FIRST)
def test_it_is_chosen_through_its_entry_point(children: Any, classic: Path, first: str) -> None:
    children.run(f"{first}\n{_HOLD}", [classic], DS_ACCELERATOR="classic")


@pytest.mark.parametrize("first", _FIRST.values(), ids=_FIRST)
def test_it_is_chosen_with_autoload_switched_off(children: Any, classic: Path, first: str) -> None:
    children.run(f"{first}\n{_HOLD}", [classic], CLASSIC_PRIORITY="3000", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_core_imports_deepspeed_for_it_once_and_makes_one_object(children: Any, classic: Path) -> None:
    children.run(
        """
        import sys, accel_core
        assert "deepspeed" not in sys.modules
        first = accel_core.get_accelerator()
        assert "deepspeed" in sys.modules
        assert accel_core.get_accelerator() is first
        said = accel_core.explain()
        assert (said.chosen, said.error) == ("classic", ""), said
        import gc
        assert [o for o in gc.get_objects() if type(o).__name__ == "Classic_Accelerator"] == [first]
        """,
        [classic],
        DS_ACCELERATOR="classic",
    )


@pytest.mark.parametrize("door", ["deepspeed.accelerator", "accel_core"])
def test_its_object_can_be_set_through_both_doors(children: Any, toy: Path, classic: Path, door: str) -> None:
    children.run(
        f"""
        from {door} import set_accelerator
        from accel_classic.classic_accelerator import Classic_Accelerator
        set_accelerator(Classic_Accelerator())
        {_HOLD}
        """,
        [toy, classic],
    )


def test_its_builder_finds_sources_beside_itself_and_loads_through_upstreams_load(
    children: Any, classic: Path
) -> None:
    children.run(
        """
        from pathlib import Path
        import accel_core
        from deepspeed.ops.op_builder.builder import OpBuilder
        builder = accel_core.get_accelerator().create_op_builder("FusedAdamBuilder")
        assert isinstance(builder, OpBuilder)
        assert [Path(source).is_file() for source in builder.sources()] == [True]
        assert builder.load().multi_tensor_adam() == "accel_classic"
        """,
        [classic],
        DS_ACCELERATOR="classic",
    )


def test_an_op_loaded_for_one_accelerator_is_not_handed_to_another(
    children: Any, toy: Path, classic: Path
) -> None:
    children.run(
        """
        import accel_core
        from accel_classic.classic_accelerator import Classic_Accelerator
        from accel_classic.op_builder.fused_adam import FusedAdamBuilder
        from deepspeed.ops.op_builder import FusedAdamBuilder as bound
        from deepspeed.ops.op_builder.builder import OpBuilder
        import sys, types

        other = types.ModuleType("other_fused_adam")
        sys.modules["other_fused_adam"] = other

        class OtherBuilder(FusedAdamBuilder):
            def absolute_name(self):
                return "other_fused_adam"

        class Other_Accelerator(Classic_Accelerator):
            def get_op_builder(self, class_name):
                return OtherBuilder if class_name == "FusedAdamBuilder" else None

        classic = Classic_Accelerator()
        accel_core.set_accelerator(classic)
        assert bound().load().__name__ == "accel_classic.fused_adam"
        assert OpBuilder._loaded_ops.keys() == {"fused_adam"}
        accel_core.set_accelerator(Other_Accelerator())
        assert bound().load() is other
        with accel_core.using(classic):
            assert bound().load().__name__ == "accel_classic.fused_adam"
        assert bound().load() is other
        """,
        [toy, classic],
    )


def test_its_class_can_not_be_imported_before_deepspeed_when_it_is_the_choice(
    children: Any, classic: Path
) -> None:
    # The import asks for deepspeed, whose import asks for an object of the class that is being imported.
    failed = children.attempt("import accel_classic.classic_accelerator", [classic], DS_ACCELERATOR="classic")
    assert failed.status == 1
    assert "[ACC-203] DS_ACCELERATOR=classic cannot be served" in failed.err
    assert "circular import" in failed.err
    assert "do:       import deepspeed before accel_classic.classic_accelerator" in failed.err
    children.run(
        f"import deepspeed, accel_classic.classic_accelerator\n{_HOLD}", [classic], DS_ACCELERATOR="classic"
    )


@pytest.mark.parametrize("first", ["import deepspeed", "accel_core.get_accelerator()"])
def test_without_the_flag_it_is_chosen_all_the_same_whoever_asks_first(
    children: Any, classic: Path, first: str
) -> None:
    # Asked first, core finds out by trying: importing the class imports deepspeed, which asks for the class.
    children.run(
        f"""
        import dataclasses, accel_classic.vendor as vendor
        vendor.VENDOR = dataclasses.replace(vendor.VENDOR, imports_deepspeed=False)
        import accel_core
        {first}
        {_HOLD}
        """,
        [classic],
        DS_ACCELERATOR="classic",
    )


def test_without_deepspeed_it_is_broken_and_the_cpu_is_not_taken_silently(
    children: Any, classic: Path
) -> None:
    failed = children.attempt(
        """
        import sys
        sys.modules["deepspeed"] = None
        import accel_core
        accel_core.get_accelerator()
        """,
        [classic],
        DS_ACCELERATOR="classic",
    )
    assert failed.status == 1
    assert "[ACC-203] DS_ACCELERATOR=classic cannot be served" in failed.err
    assert "deepspeed" in failed.err
