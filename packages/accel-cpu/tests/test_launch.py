# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the CPU accelerator tells launchers and DeepSpeed's runner."""

from __future__ import annotations

import pytest

from accel_cpu import collectives
from accel_cpu.accelerator import CPU_Accelerator
from accel_cpu.collectives import Collectives


def test_the_collectives_are_chosen_at_the_first_call(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "choose", lambda: Collectives("ccl", "pretend"))
    assert cpu.communication_backend_name() == "ccl"


def test_the_visible_devices_variable_is_the_cpu_s_own(cpu: CPU_Accelerator) -> None:
    assert cpu.visible_devices_envs() == ["ACCEL_CPU_VISIBLE_DEVICES"]
    environment: dict[str, str] = {}
    cpu.set_visible_devices_envs(environment, [0, 2])
    assert environment == {"ACCEL_CPU_VISIBLE_DEVICES": "0,2"}


@pytest.mark.parametrize(
    "name",
    [
        "OMP_NUM_THREADS",
        "KMP_AFFINITY",
        "CCL_WORKER_COUNT",
        "FI_PROVIDER",
        "I_MPI_ROOT",
        "GLOO_SOCKET_IFNAME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PATH",
        "DS_ACCELERATOR",
        "ACCEL_STRICT",
    ],
)
def test_what_a_remote_rank_needs_is_exported(cpu: CPU_Accelerator, name: str) -> None:
    assert any(name.startswith(prefix) for prefix in cpu.export_envs())


@pytest.mark.parametrize("name", ["LOCAL_RANK", "LOCAL_SIZE", "HOME", "HOSTNAME", "CUDA_VISIBLE_DEVICES"])
def test_what_belongs_to_one_machine_is_not_exported(cpu: CPU_Accelerator, name: str) -> None:
    assert not any(name.startswith(prefix) for prefix in cpu.export_envs())


def test_compile_backends(cpu: CPU_Accelerator) -> None:
    assert cpu.get_compile_backend() == "inductor"
    cpu.set_compile_backend("eager")
    assert cpu.get_compile_backend() == "eager"
    with pytest.raises(ValueError, match="no-such-backend"):
        cpu.set_compile_backend("no-such-backend")
    assert cpu.get_compile_backend() == "eager"
