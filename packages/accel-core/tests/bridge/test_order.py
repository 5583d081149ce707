# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Order matrix: whoever comes first, DeepSpeed and accel_core have one accelerator and its op builders."""

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


# --- accelerators and builders written against DeepSpeed's own classes keep working, through every door

_HOLD_OP = "import agreement; agreement.hold('accel_classic')"
_FIRST = {
    "core asks first": "import accel_core; accel_core.get_accelerator()",
    "deepspeed asks first": "import deepspeed",
    "deepspeed's base class first": "import deepspeed.accelerator.abstract_accelerator",
}


@pytest.mark.parametrize("first", _FIRST.values(), ids=_FIRST)
@pytest.mark.parametrize(
    "variables",
    [{"DS_ACCELERATOR": "classic"}, {"CLASSIC_PRIORITY": "3000", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}],
    ids=["asked for", "by priority, autoload off"],
)
def test_it_is_chosen_whoever_is_imported_first(
    children: Any, classic: Path, first: str, variables: dict[str, str]
) -> None:
    children.run(f"{first}\n{_HOLD_OP}", [classic], **variables)


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
        f"import deepspeed, accel_classic.classic_accelerator\n{_HOLD_OP}",
        [classic],
        DS_ACCELERATOR="classic",
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
        {_HOLD_OP}
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


# --- a selection that failed and was caught fails again, the same way; nobody ends on the CPU silently

#: Calls each step twice, and prints the kinds and texts of what they raised.
_TWICE = """
import json

def deepspeed_again():
    import deepspeed
    deepspeed.accelerator.get_accelerator()

def its_accelerator_again():
    from deepspeed.accelerator import get_accelerator
    get_accelerator()

def core_again():
    import accel_core
    accel_core.get_accelerator()

raised = []
for step in steps * 2:
    try:
        step()
        raised.append(f"{step.__name__} succeeded")
    except Exception as error:
        raised.append(f"{type(error).__name__}: {error}")
print(json.dumps(raised))
"""
_STEPS = {
    "deepspeed first": "[deepspeed_again, its_accelerator_again, core_again]",
    "its accelerator first": "[its_accelerator_again, core_again, deepspeed_again]",
    "core first": "[core_again, deepspeed_again, its_accelerator_again]",
    "deepspeed's alone": "[deepspeed_again, its_accelerator_again]",
}


_UNREADABLE = "InvalidEnvironment: [ACC-104] cannot read the switch"


@pytest.mark.parametrize(
    ("steps", "variables", "kind"),
    [
        ("deepspeed first", {"DS_ACCELERATOR": "tpu"}, "UnknownAccelerator: [ACC-201]"),
        ("its accelerator first", {"DS_ACCELERATOR": ""}, "UnknownAccelerator: [ACC-201]"),
        ("core first", {"DS_ACCELERATOR": "npu"}, "AcceleratorUnavailable: [ACC-202]"),
        ("deepspeed first", {"ACCEL_STRICT": "1", "TOY_DEVICES": "-1"}, "StrictSelection: [ACC-205]"),
        ("deepspeed's alone", {"ACCEL_BRIDGE": "perhaps"}, f"{_UNREADABLE} ACCEL_BRIDGE"),
        ("deepspeed's alone", {"ACCEL_STRICT": "perhaps"}, f"{_UNREADABLE} ACCEL_STRICT"),
    ],
)
def test_a_refusal_is_the_same_error_every_time(
    children: Any, toy: Path, steps: str, variables: dict[str, str], kind: str
) -> None:
    raised = children.run(_TWICE.replace("steps * 2", f"{_STEPS[steps]} * 2"), [toy], **variables).report
    assert len(set(raised)) == 1, raised
    assert raised[0].startswith(kind)


def test_setting_an_accelerator_ends_the_refusal_and_deepspeed_can_be_imported_then(
    children: Any, toy: Path
) -> None:
    children.run(
        """
        try:
            import deepspeed
        except ValueError:
            import accel_core, accel_toy
            accel_core.set_accelerator(accel_toy.Toy_Accelerator())
        import agreement
        agreement.hold("accel_toy")
        """,
        [toy],
        DS_ACCELERATOR="tpu",
    )


def test_what_is_no_accelerator_is_refused_by_both_doors_and_changes_nothing(
    children: Any, toy: Path
) -> None:
    refused = children.run(
        """
        import json, accel_core, accel_toy, deepspeed
        texts = []
        for door in (deepspeed.accelerator, accel_core):
            for wrong in (object(), accel_toy.Toy_Accelerator, "toy"):
                for kind in (AssertionError, TypeError):
                    try:
                        door.set_accelerator(wrong)
                    except kind as error:
                        texts.append(str(error))
        import agreement
        agreement.hold("accel_toy")
        print(json.dumps(texts))
        """,
        [toy],
    ).report
    assert len(refused) == 12
    assert refused[:6] == refused[6:]
    assert "[ACC-206]" in refused[0]
    assert "methods of an accelerator (available_memory, " in refused[0]
    assert "an instance, not the class: add ()" in refused[2]


def test_clearing_the_choice_selects_again(children: Any, toy: Path, classic: Path) -> None:
    children.run(
        """
        import os, accel_core, deepspeed, agreement
        agreement.hold("accel_toy")
        os.environ["DS_ACCELERATOR"] = "classic"
        deepspeed.accelerator.set_accelerator(None)
        agreement.hold("accel_classic")
        """,
        [toy, classic],
    )
