# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whoever comes first, DeepSpeed and accel_core have one accelerator and its builders; what a terminal shows of it."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

_HOLD = "import agreement; agreement.hold('accel_toy')"

_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
_ORDERS: dict[str, tuple[str, dict[str, str]]] = {
    "vendor first": ("import accel_toy.accelerator", {}),
    "core first": ("import accel_core", {}),
    "core's selection first": ("import accel_core; accel_core.get_accelerator()", {}),
    "torch first": ("import torch", {}),
    "deepspeed first": ("import deepspeed", {}),
    "deepspeed's builders first": ("from deepspeed.ops.op_builder import CPUAdamBuilder", {}),
    "launcher's import first": ("import deepspeed.launcher.launch", {}),
    "off, core first": ("import accel_core", _OFF),
    "off, vendor first": ("import accel_toy.accelerator", _OFF),
    "off, vendor's package first": ("import accel_toy", _OFF),
    "off, torch, then core": ("import torch, accel_core", _OFF),
    "off, deepspeed, then core": ("import deepspeed; import accel_core", _OFF),
    "off, deepspeed's whole ops, then core": (
        "import deepspeed.ops.op_builder.all_ops; import accel_core",
        _OFF,
    ),
    "off, deepspeed's compatible ops, then core": (
        "import deepspeed; deepspeed.ops.__compatible_ops__; import accel_core",
        _OFF,
    ),
    # As torch_npu does when a script imports it first; the variable is restored, for child processes.
    "off while a runtime imports torch": (
        "import os, torch; del os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD']; import accel_toy",
        _OFF,
    ),
}


@pytest.mark.sample("torch first", "deepspeed's builders first", "off, torch, then core", "off while*")
@pytest.mark.parametrize(("first", "variables"), _ORDERS.values(), ids=_ORDERS)
def test_any_import_order(toy: Any, first: str, variables: dict[str, str]) -> None:
    toy.run(f"{first}\n{_HOLD}", **variables)


_LATE = {
    "deepspeed's door": "from deepspeed.accelerator import set_accelerator",
    "deepspeed's door, taken before": "set_accelerator = early",
    "core's door": "from accel_core import set_accelerator",
}


@pytest.mark.sample("deepspeed's door, taken before")
@pytest.mark.parametrize("door", _LATE.values(), ids=_LATE)
def test_late_set_accelerator(both: Any, door: str) -> None:
    both.run(
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
        **_CLASSIC,
    )


def test_spawned_child_selects(toy: Any) -> None:
    toy.run(
        f"""
        import multiprocessing, agreement
        if __name__ == "__main__":
            {_HOLD}
            child = multiprocessing.get_context("spawn").Process(target=agreement.hold, args=("accel_toy",))
            child.start()
            child.join()
            assert child.exitcode == 0
        """
    )


_FORKS = {
    "before any use": "import accel_core, torch, deepspeed.accelerator",
    "after the selection": "import deepspeed, accel_core; accel_core.get_accelerator()",
    "after use": "import agreement; agreement.hold('accel_toy')",
}


@pytest.mark.sample("after use")
@pytest.mark.parametrize("before", _FORKS.values(), ids=_FORKS)
def test_forked_child_has_parents_accelerator(toy: Any, before: str) -> None:
    toy.run(
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
        """
    )


@pytest.mark.sample("import deepspeed")
@pytest.mark.parametrize("first", ["import deepspeed", "import accel_core", "import accel_core, deepspeed"])
def test_bridge_switched_off(toy: Any, first: str) -> None:
    toy.run(
        f"""
        {first}
        import agreement
        agreement.untouched()
        import accel_core
        assert type(accel_core.get_accelerator()).__module__ == "accel_toy.accelerator"
        agreement.untouched()
        """,
        ACCEL_BRIDGE="0",
    )


@pytest.mark.parametrize("first", ["import deepspeed", "import torch"])
def test_failing_torch_npu_is_left_to_npu(toy: Any, first: str, tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("raise OSError('libhccl.so: cannot open shared object file')")
    toy.run(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{first}\n{_HOLD}", DS_ACCELERATOR="toy")


# --- accelerators and builders written against DeepSpeed's own classes keep working, through every door

_HOLD_CLASSIC = "import agreement; agreement.hold('accel_classic')"
_CLASSIC = {"DS_ACCELERATOR": "classic"}
_FIRST = {
    "core asks first": "import accel_core; accel_core.get_accelerator()",
    "deepspeed asks first": "import deepspeed",
    "deepspeed's base class first": "import deepspeed.accelerator.abstract_accelerator",
}


@pytest.mark.sample("asked for-deepspeed asks first")
@pytest.mark.parametrize("first", _FIRST.values(), ids=_FIRST)
@pytest.mark.parametrize(
    "variables", [_CLASSIC, {"CLASSIC_PRIORITY": "3000", **_OFF}], ids=["asked for", "by priority, off"]
)
def test_class_derived_from_deepspeeds(classic: Any, first: str, variables: dict[str, str]) -> None:
    classic.run(f"{first}\n{_HOLD_CLASSIC}", **variables)


def test_core_constructs_derived_class_once(classic: Any) -> None:
    classic.run(
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
        **_CLASSIC,
    )


def test_loaded_ops_are_kept_per_builder(both: Any) -> None:
    both.run(
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
        """
    )


def test_derived_class_imported_before_deepspeed(classic: Any) -> None:
    # The import asks for deepspeed, whose import asks for an object of the class that is being imported.
    failed = classic.attempt("import accel_classic.classic_accelerator", **_CLASSIC)
    assert failed.status == 1
    assert "DS_ACCELERATOR=classic cannot be used" in failed.err
    assert "circular import" in failed.err
    assert "; import deepspeed before accel_classic.classic_accelerator" in failed.err
    classic.run(f"import deepspeed, accel_classic.classic_accelerator\n{_HOLD_CLASSIC}", **_CLASSIC)


@pytest.mark.sample("import deepspeed")
@pytest.mark.parametrize("first", ["import deepspeed", "accel_core.get_accelerator()"])
def test_derived_class_without_record_of_it(classic: Any, first: str) -> None:
    # Asked first, core finds out by trying: importing the class imports deepspeed, which asks for the class.
    classic.run(
        f"""
        import dataclasses, accel_classic.vendor as vendor
        vendor.VENDOR = dataclasses.replace(vendor.VENDOR, imports_deepspeed=False)
        import accel_core
        {first}
        {_HOLD_CLASSIC}
        """,
        **_CLASSIC,
    )


# --- a selection that failed and was caught fails again, the same way; nobody ends on the CPU silently

#: Calls each step twice, and prints the kinds and texts of what they raised.
_TWICE = """
import json

def deepspeed():
    import deepspeed
    deepspeed.accelerator.get_accelerator()

def accelerator():
    from deepspeed.accelerator import get_accelerator
    get_accelerator()

def core():
    import accel_core
    accel_core.get_accelerator()

raised = []
for step in [{steps}] * 2:
    try:
        step()
        raised.append(step.__name__ + " succeeded")
    except Exception as error:
        raised.append(type(error).__name__ + ": " + str(error))
print(json.dumps(raised))
"""
_UNKNOWN = "UnknownAccelerator: DS_ACCELERATOR must be"
_UNREADABLE = "InvalidEnvironment: cannot read the switch"


@pytest.mark.sample("deepspeed, accelerator, core-*")
@pytest.mark.parametrize(
    ("steps", "variables", "kind"),
    [
        ("deepspeed, accelerator, core", {"DS_ACCELERATOR": "tpu"}, _UNKNOWN),
        ("accelerator, core, deepspeed", {"DS_ACCELERATOR": ""}, _UNKNOWN),
        (
            "core, deepspeed, accelerator",
            {"DS_ACCELERATOR": "npu"},
            "AcceleratorUnavailable: DS_ACCELERATOR=npu",
        ),
        (
            "deepspeed, accelerator, core",
            {"ACCEL_STRICT": "1", "TOY_DEVICES": "-1"},
            "StrictSelection: ACCEL_STRICT=1, but",
        ),
        ("deepspeed, accelerator", {"ACCEL_BRIDGE": "perhaps"}, f"{_UNREADABLE} ACCEL_BRIDGE"),
        ("deepspeed, accelerator", {"ACCEL_STRICT": "perhaps"}, f"{_UNREADABLE} ACCEL_STRICT"),
    ],
)
def test_failed_selection_fails_again(toy: Any, steps: str, variables: dict[str, str], kind: str) -> None:
    raised = toy.run(_TWICE.replace("{steps}", steps), **variables).report
    assert len(set(raised)) == 1, raised
    assert raised[0].startswith(kind)


def test_set_accelerator_after_failed_selection(toy: Any) -> None:
    toy.run(
        """
        try:
            import deepspeed
        except ValueError:
            import accel_core, accel_toy
            accel_core.set_accelerator(accel_toy.Toy_Accelerator())
        import agreement
        agreement.hold("accel_toy")
        """,
        DS_ACCELERATOR="tpu",
    )


# --- what a program reads on its terminal: one warning when it ends on the CPU, none when it sets an accelerator

CPU = "Setting accelerator to CPU"
#: Asks in the process itself, while a worker imports it, and in workers.
JOB = """
import torch.utils.data
from deepspeed.accelerator import get_accelerator

asked = get_accelerator().device_name()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return get_accelerator().device_name() == "cpu"

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context=method)
        assert all(batch.all() for batch in loader)
    print("workers asked", flush=True)
"""
LAUNCHERS = {
    "accel launch": "from accel_core.cli.main import main; main(['launch', '--num_accelerators', '2', {program!r}])",
    "deepspeed": "import sys; sys.argv = ['deepspeed', '--num_gpus', '2', {program!r}]\n"
    "from deepspeed.launcher.runner import main; main()",
    "torchrun": "from torch.distributed.run import main; main(['--standalone', '--nproc-per-node', '2', {program!r}])",
}


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The path of JOB."""
    (tmp_path / "train.py").write_text(JOB)
    return str(tmp_path / "train.py")


def test_next_finder_is_called_for_deepspeed(children: Any) -> None:
    asked = children.run(
        """
        import sys
        class Finder:
            asked = []
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                cls.asked.append(name)
        sys.meta_path.insert(0, Finder)
        import accel_core, wrapt
        wrapt.register_post_import_hook(print, "another")  # goes through the path inside of an import
        import deepspeed
        print("true" if "deepspeed" in Finder.asked else "false")
        """
    ).report
    assert asked


def test_cpu_warning_comes_at_first_use(children: Any) -> None:
    said = children.run(
        """
        import sys, deepspeed
        sys.stderr.write("imported\\n")
        deepspeed.accelerator.get_accelerator()
        deepspeed.accelerator.get_accelerator()
        """,
        DS_ACCELERATOR=None,
    )
    before, _, after = said.err.partition("imported\n")
    assert (before.count(CPU), after.count(CPU)) == (0, 1), said.err


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_one_cpu_warning_a_job(children: Any, program: str, name: str) -> None:
    if name == "accel launch":
        pytest.importorskip("accel_launch", reason="not run: package accel-launch")
    said = children.run(LAUNCHERS[name].format(program=program))
    assert (said.out + said.err).count("workers asked") == 2
    assert (said.out + said.err).count(CPU) == 1, said.err


def test_workers_do_not_warn(children: Any, program: str) -> None:
    said = children.run(f"import runpy; runpy.run_path({program!r}, run_name='__main__')")
    assert "workers asked" in said.out
    assert said.err.count(CPU) == 1, said.err


def test_no_warning_of_replaced_cpu(toy: Any) -> None:
    said = toy.run(
        """
        import deepspeed
        from accel_toy import Toy_Accelerator
        deepspeed.accelerator.set_accelerator(Toy_Accelerator())
        assert type(deepspeed.accelerator.get_accelerator()) is Toy_Accelerator
        """,
        TOY_PRIORITY="-5",
    )
    assert CPU not in said.err


def test_runtime_that_aborts_is_named_last(toy: Any) -> None:
    died = toy.attempt(
        """
        import accel_toy.driver, os
        accel_toy.driver.device_count = os.abort
        import accel_core
        accel_core.get_accelerator()
        """,
        ACCEL_VERBOSE="1",
    )
    assert died.status == -6
    named = [line for line in died.err.splitlines() if line.startswith("accel_core: about to ")]
    assert named[-1].startswith("accel_core: about to import the runtime of toy (accel-toy ")
    assert "Fatal Python error: Aborted" in died.err
    assert "accel_toy/probe.py" in died.err


# ------------------------------------------------------------------------------- deepspeed came first


def test_deepspeeds_earlier_choice_is_replaced(toy: Any) -> None:
    said = toy.run(
        """
        import deepspeed
        from deepspeed.accelerator import get_accelerator as early
        before = early()
        import accel_toy
        import accel_core
        now = deepspeed.accelerator.get_accelerator()
        assert now is early() is accel_core.get_accelerator() is not before
        """,
        **_OFF,
    )
    assert said.err.count("deepspeed was imported ahead of accel_core and uses its own CPU_Accelerator") == 1


def test_earlier_set_accelerator_is_kept(classic: Any) -> None:
    said = classic.run(
        """
        from deepspeed.accelerator import get_accelerator, set_accelerator
        from accel_classic.classic_accelerator import Classic_Accelerator
        own = Classic_Accelerator()
        set_accelerator(own)
        import accel_core
        assert accel_core.get_accelerator() is own is get_accelerator()
        """,
        **_OFF,
    )
    assert "ahead of accel_core" not in said.err
