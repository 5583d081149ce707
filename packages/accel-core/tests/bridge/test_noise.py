# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a program reads on its terminal: one warning when it ends on the CPU, none when it sets an accelerator."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

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


def test_one_warning_at_the_first_use_and_none_while_deepspeed_is_imported(children: Any) -> None:
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
def test_one_warning_a_job_with_its_launcher_its_ranks_and_their_workers(
    children: Any, tmp_path: Path, name: str
) -> None:
    if name == "accel launch":
        pytest.importorskip("accel_launch", reason="not run: package accel-launch")
    program = tmp_path / "train.py"
    program.write_text(JOB)
    said = children.run(LAUNCHERS[name].format(program=str(program)))
    assert (said.out + said.err).count("workers asked") == 2
    assert (said.out + said.err).count(CPU) == 1, said.err


def test_workers_leave_the_warning_to_the_process_that_started_them(children: Any, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(JOB)
    said = children.run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert "workers asked" in said.out
    assert said.err.count(CPU) == 1, said.err


def test_no_warning_of_a_cpu_that_the_program_replaces(children: Any, toy: Path) -> None:
    said = children.run(
        """
        import deepspeed
        from accel_toy import Toy_Accelerator
        deepspeed.accelerator.set_accelerator(Toy_Accelerator())
        assert type(deepspeed.accelerator.get_accelerator()) is Toy_Accelerator
        """,
        [toy],
        TOY_PRIORITY="-5",
    )
    assert CPU not in said.err


def test_a_runtime_that_aborts_is_the_last_that_was_named(children: Any, toy: Path) -> None:
    died = children.attempt(
        """
        import accel_toy.driver, os
        accel_toy.driver.device_count = os.abort
        import accel_core
        accel_core.get_accelerator()
        """,
        [toy],
        ACCEL_VERBOSE="1",
    )
    assert died.status == -6
    named = [line for line in died.err.splitlines() if line.startswith("accel_core: about to ")]
    assert named[-1].startswith("accel_core: about to import the runtime of toy (accel-toy ")
    assert "Fatal Python error: Aborted" in died.err
    assert "accel_toy/probe.py" in died.err


# ------------------------------------------------------------------------------- deepspeed came first


def test_deepspeed_s_own_choice_is_replaced_with_one_warning(children: Any, toy: Path) -> None:
    said = children.run(
        """
        import deepspeed
        from deepspeed.accelerator import get_accelerator as early
        before = early()
        import accel_toy
        import accel_core
        now = deepspeed.accelerator.get_accelerator()
        assert now is early() is accel_core.get_accelerator() is not before
        """,
        [toy],
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert said.err.count("deepspeed was imported ahead of accel_core and uses its own CPU_Accelerator") == 1


def test_what_a_program_has_set_at_deepspeed_s_door_stays(children: Any, classic: Path) -> None:
    said = children.run(
        """
        from deepspeed.accelerator import get_accelerator, set_accelerator
        from accel_classic.classic_accelerator import Classic_Accelerator
        own = Classic_Accelerator()
        set_accelerator(own)
        import accel_core
        assert accel_core.get_accelerator() is own is get_accelerator()
        """,
        [classic],
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "ahead of accel_core" not in said.err
