# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In any order of imports, DeepSpeed and accel_core have one accelerator and its builders; what a terminal shows."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

#: Programs that end with them have one accelerator. FIRST is what a program does first.
TOY, CLASSIC = (f"import agreement; agreement.hold('accel_{name}')" for name in ("toy", "classic"))
AUTOLOAD_OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
ASKED = {"DS_ACCELERATOR": "classic"}

ORDERS = {
    "vendor first": "import accel_toy.accelerator",
    "core first": "import accel_core",
    "core's selection first": "import accel_core; accel_core.get_accelerator()",
    "torch first": "import torch",
    "deepspeed first": "import deepspeed",
    "deepspeed's builders first": "from deepspeed.ops.op_builder import CPUAdamBuilder",
    "launcher's import first": "import deepspeed.launcher.launch",
}
ORDERS_WITHOUT_AUTOLOAD = {
    "core first": "import accel_core",
    "vendor first": "import accel_toy.accelerator",
    "vendor's package first": "import accel_toy",
    "torch, then core": "import torch, accel_core",
    "deepspeed, then core": "import deepspeed; import accel_core",
    "deepspeed's whole ops, then core": "import deepspeed.ops.op_builder.all_ops; import accel_core",
    "deepspeed's compatible ops, then core": "import deepspeed; deepspeed.ops.__compatible_ops__; import accel_core",
    # As torch_npu does when a script imports it first; the variable is restored, for child processes.
    "a runtime": "import os, torch; del os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD']; import accel_toy",
}
#: Accelerators and builders written against DeepSpeed's own classes.
ORDERS_OF_CLASSIC = {
    "core": "import accel_core; accel_core.get_accelerator()",
    "deepspeed": "import deepspeed",
    "deepspeed's base class": "import deepspeed.accelerator.abstract_accelerator",
    "deepspeed, then the class": "import deepspeed, accel_classic.classic_accelerator",
}
#: How a program gets `set_accelerator`.
LATE = {
    "deepspeed's": "from deepspeed.accelerator import set_accelerator",
    "deepspeed's, bound before": "set_accelerator = early",
    "core's": "from accel_core import set_accelerator",
}
LATE_PROGRAM = f"""
import deepspeed
from deepspeed.accelerator import set_accelerator as early
from deepspeed.ops.op_builder.all_ops import ALL_OPS
from accel_toy import Toy_Accelerator
{CLASSIC}
FIRST
set_accelerator(Toy_Accelerator())
{TOY}
assert set(ALL_OPS) == {{"fused_adam", "deepspeed_not_implemented"}}
assert ALL_OPS["fused_adam"].load().__name__ == "accel_toy.fused_adam"
"""
FORKS = {
    "before any use": "import accel_core, torch, deepspeed.accelerator",
    "after the selection": "import deepspeed, accel_core; accel_core.get_accelerator()",
    "after use": TOY,
}
FORK_PROGRAM = f"""
import os
FIRST
if (child := os.fork()) == 0:
    status = 1
    try:
        {TOY}
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
{TOY}
"""
SPAWN_PROGRAM = f"""
import multiprocessing
{TOY}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=agreement.hold, args=("accel_toy",))
    child.start()
    child.join()
    assert child.exitcode == 0
"""
BRIDGE_OFF_PROGRAM = """
FIRST
import agreement
agreement.untouched()
import accel_core
assert type(accel_core.get_accelerator()).__module__ == "accel_toy.accelerator"
agreement.untouched()
"""
LOADED_OPS_PROGRAM = """
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
#: Asked first, core finds out by trying: importing the class imports deepspeed, which asks for the class.
UNRECORDED_PROGRAM = f"""
import dataclasses, accel_classic.vendor as vendor
vendor.VENDOR = dataclasses.replace(vendor.VENDOR, imports_deepspeed=False)
import accel_core
FIRST
{CLASSIC}
"""
SET_AFTER_FAILURE_PROGRAM = f"""
try:
    import deepspeed
except ValueError:
    import accel_core, accel_toy
    accel_core.set_accelerator(accel_toy.Toy_Accelerator())
{TOY}
"""
#: Programs that succeed, with their variables.
PROGRAMS = {
    **{name: (f"{first}\n{TOY}", {}) for name, first in ORDERS.items()},
    **{f"off: {name}": (f"{first}\n{TOY}", AUTOLOAD_OFF) for name, first in ORDERS_WITHOUT_AUTOLOAD.items()},
    **{f"asked for: {name}": (f"{first}\n{CLASSIC}", ASKED) for name, first in ORDERS_OF_CLASSIC.items()},
    **{
        f"by priority: {name}": (f"{first}\n{CLASSIC}", {"CLASSIC_PRIORITY": "3000", **AUTOLOAD_OFF})
        for name, first in ORDERS_OF_CLASSIC.items()
    },
    **{
        f"set late by {name}": (LATE_PROGRAM.replace("FIRST", setter), ASKED) for name, setter in LATE.items()
    },
    **{f"fork {name}": (FORK_PROGRAM.replace("FIRST", before), {}) for name, before in FORKS.items()},
    **{
        f"bridge off: {first}": (BRIDGE_OFF_PROGRAM.replace("FIRST", first), {"ACCEL_BRIDGE": "0"})
        for first in ("import deepspeed", "import accel_core", "import accel_core, deepspeed")
    },
    **{
        f"unrecorded: {first}": (UNRECORDED_PROGRAM.replace("FIRST", first), ASKED)
        for first in ("import deepspeed", "accel_core.get_accelerator()")
    },
    "spawn": (SPAWN_PROGRAM, {}),
    "loaded ops are kept per builder": (LOADED_OPS_PROGRAM, {}),
    "set after a failed selection": (SET_AFTER_FAILURE_PROGRAM, {"DS_ACCELERATOR": "tpu"}),
}
SAMPLE = ("torch first", "deepspeed's builders first", "off: torch, then core", "off: a runtime")
SAMPLE += ("asked for: deepspeed*class", "asked for: deepspeed", "set late by *before", "fork after use")
SAMPLE += ("bridge off: import deepspeed", "unrecorded: import deepspeed", "spawn", "loaded*", "set after*")


@pytest.mark.sample(*SAMPLE)
@pytest.mark.parametrize(("program", "variables"), PROGRAMS.values(), ids=PROGRAMS)
def test_program_has_one_accelerator(both: Any, program: str, variables: dict[str, str]) -> None:
    both.run(program, **variables)


@pytest.mark.parametrize("first", ["import deepspeed", "import torch"])
def test_failing_torch_npu_is_left_to_npu(both: Any, first: str, tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("raise OSError('libhccl.so: cannot open shared object file')")
    both.run(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{first}\n{TOY}", DS_ACCELERATOR="toy")


def test_derived_class_imported_before_deepspeed(both: Any) -> None:
    # The import asks for deepspeed, whose import asks for an object of the class that is being imported.
    failed = both.attempt("import accel_classic.classic_accelerator", **ASKED)
    assert failed.status == 1
    assert "DS_ACCELERATOR=classic cannot be used" in failed.err
    assert "circular import" in failed.err
    assert "; import deepspeed before accel_classic.classic_accelerator" in failed.err


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
def test_failed_selection_fails_again(both: Any, steps: str, variables: dict[str, str], kind: str) -> None:
    raised = both.run(_TWICE.replace("{steps}", steps), **variables).report
    assert len(set(raised)) == 1, raised
    assert raised[0].startswith(kind)


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


def test_runtime_that_aborts_is_named_last(both: Any) -> None:
    died = both.attempt(
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


def test_deepspeeds_earlier_choice_is_replaced(both: Any) -> None:
    said = both.run(
        """
        import deepspeed
        from deepspeed.accelerator import get_accelerator as early
        before = early()
        import accel_toy
        import accel_core
        now = deepspeed.accelerator.get_accelerator()
        assert now is early() is accel_core.get_accelerator() is not before
        """,
        **AUTOLOAD_OFF,
    )
    assert said.err.count("deepspeed was imported ahead of accel_core and uses its own CPU_Accelerator") == 1


def test_earlier_set_accelerator_is_kept(both: Any) -> None:
    said = both.run(
        """
        from deepspeed.accelerator import get_accelerator, set_accelerator
        from accel_classic.classic_accelerator import Classic_Accelerator
        own = Classic_Accelerator()
        set_accelerator(own)
        import accel_core
        assert accel_core.get_accelerator() is own is get_accelerator()
        """,
        **AUTOLOAD_OFF,
    )
    assert "ahead of accel_core" not in said.err
