# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks from the variables of launchers. Those of Open MPI, MPICH, Intel MPI and Slurm were recorded from real runs."""

from typing import Any

import pytest

from accel_core import launchers
from accel_core.errors import InvalidEnvironment
from accel_core.upstream import ranks


def named(text: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in text.split())


OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
    "OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-30155@1 "
)
MPICH = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_FD=8 "
PALS = "PALS_RANKID=1 PALS_APID=7f.0 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 PALS_NODEID=0 "
CRAY_PMI = "PMI_RANK=1 PMI_SIZE=2 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2 "
FLUX = "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f1 "
JSRUN = "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=2 PMIX_RANK=1 "
SRUN = (
    "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=2 "
    "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n1 SLURM_STEP_TASKS_PER_NODE=2 "
)
NODES = (
    "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=4 "
    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_STEP_NODELIST=gpu[007-8] "
)
BATCH = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=3 "
MV2 = "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 "
ONE = OPEN_MPI.replace("RANK=1", "RANK=0").replace("SIZE=2", "SIZE=1")
NONE = (None, None, None, None, "")
HERE = (1, 2, 1, 2, "127.0.0.1")
#: Variables -> rank, size, local rank, local size, host of rank 0.
PLACES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "no launcher": ("HOME=/root", NONE),
    "torchrun": ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", (5, 8, 1, 4, "")),
    "Open MPI": (OPEN_MPI, HERE),
    "MPICH": (MPICH, HERE),
    "Intel MPI": (f"{MPICH} I_MPI_HYDRA_UUID=b65a", HERE),
    "MVAPICH2": (MV2, HERE),
    "MVAPICH 4": (MV2.replace("MV2", "MVP"), HERE),
    "PALS": (PALS + CRAY_PMI, HERE),
    "PALS without PMI": (PALS, (1, None, 1, 2, "")),
    "PALS and PMIx": ("PALS_LOCAL_RANKID=1 PMIX_RANK=3", (3, None, 1, None, "")),
    "Flux": (FLUX + "PMI_RANK=1 PMI_SIZE=2", HERE),
    "Flux without PMI": (FLUX, HERE),
    "Flux on two hosts": (FLUX.replace("NNODES=1", "NNODES=2"), (1, 2, 1, 1, "")),
    "jsrun": (JSRUN, HERE),
    "srun": (SRUN, HERE),
    "srun on two hosts": (NODES, (3, 4, 0, 1, "gpu007")),
    "srun --mpi=pmi2": (f"{NODES} PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=7.0", (3, 4, 0, 1, "")),
    "srun --mpi=cray_shasta": (f"{NODES} PALS_RANKID=3 PALS_APID=7.0", (3, 4, 0, 1, "")),
    "srun in an order of its own": (f"{NODES} SLURM_DISTRIBUTION=arbitrary", (3, 4, 0, 1, "")),
    "a batch script": (BATCH, NONE),
    "a shell of salloc": ("SLURM_JOB_ID=7 SLURM_NTASKS=3", NONE),
    "sbatch in a step": (f"{NODES} SLURM_NTASKS=1 SLURM_PROCID=0", NONE),
    "heterogeneous": (f"{NODES} SLURM_HET_SIZE=2", (3, None, None, None, "")),
    "mpiexec in a Slurm job": (f"{NODES} SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 {MPICH}", HERE),
    "mpirun in a Slurm job": (f"{NODES} SLURM_PROCID=0 {OPEN_MPI}", HERE),
    "PMIx": ("PMIX_RANK=1 PMIX_NAMESPACE=x", (1, None, None, None, "")),
    "an indexed job": ("JOB_COMPLETION_INDEX=1", NONE),
    "an indexed job with WORLD_SIZE": ("JOB_COMPLETION_INDEX=1 WORLD_SIZE=2", (1, 2, 0, 1, "")),
    # Nested: the ranks inherit the variables of both.
    "torchrun under srun": (f"{SRUN} RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", (2, 4, 0, 2, "")),
    "torchrun under mpirun": (f"{OPEN_MPI} RANK=1 WORLD_SIZE=4 LOCAL_RANK=0", (1, 4, 0, None, "")),
    "mpirun -n 1": (ONE, NONE),
    "mpirun -n 1 under srun": (ONE + SRUN, NONE),
    # Set in part: what is set stays, the launcher's numbers complete it.
    "RANK of the launcher's": (f"{SRUN} RANK=1 WORLD_SIZE=2", HERE),
    "RANK of another's": (f"{SRUN} RANK=0", (0, None, None, None, "")),
    "LOCAL_RANK": (f"{SRUN} LOCAL_RANK=0", (1, 2, 0, 2, "127.0.0.1")),
    "WORLD_SIZE of one": ("WORLD_SIZE=1", (0, 1, 0, None, "")),
    "WORLD_SIZE of another's": (f"{SRUN} WORLD_SIZE=3", (None, 3, None, None, "")),
    "empty variables": (f"{SRUN} RANK= WORLD_SIZE= LOCAL_RANK=", HERE),
}


@pytest.mark.parametrize(("variables", "place"), PLACES.values(), ids=PLACES)
def test_rank_of_each_launcher(variables: str, place: tuple[Any, ...]) -> None:
    environ = named(variables)
    found = launchers.launched(environ)
    host = launchers.first_host(found, environ)
    assert (found.rank, found.size, found.local_rank, found.local_size, host) == place


def test_mangled_rank_is_named() -> None:
    with pytest.raises(InvalidEnvironment, match="PMI_RANK='one'"):
        launchers.launched({"PMI_RANK": "one"})


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("n1", "n1"), ("n[7-8,10]", "n7"), ("a1,b2", "a1"), ("r[1-2]n[03,07-9],x", "r1n03"), ("", "")],
)
def test_first_host_of_a_node_list(hosts: str, first: str) -> None:
    environ = named(NODES) | {"SLURM_STEP_NODELIST": hosts}
    assert launchers.first_host(launchers.launched(environ), environ) == first


#: Variables -> those that may be a rank.
RANK_LIKE = {
    "HOROVOD_RANK=1 LORA_RANK=8 GROUP_RANK=0 NODE_RANK=1 SLURM_PROCID=0": ["HOROVOD_RANK=1"],
    "JOB_COMPLETION_INDEX=2 RANK_ID=0": ["JOB_COMPLETION_INDEX=2", "RANK_ID=0"],
    "MPT_LRANK=1 ALPS_APP_PE=3 MY_PROCID=1": ["ALPS_APP_PE=3", "MPT_LRANK=1", "MY_PROCID=1"],
    "RANK_TABLE_FILE=/x MY_RANK=first FRANK=3": [],
}


@pytest.mark.parametrize(("variables", "found"), RANK_LIKE.items(), ids=RANK_LIKE)
def test_unknown_rank_variable_is_found(variables: str, found: list[str]) -> None:
    assert launchers.rank_like(named(variables)) == found


@pytest.fixture(autouse=True)
def without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "module_exists", lambda name: False)


def port(variables: str) -> str:
    return (ranks.derived(named(variables)) or {})["MASTER_PORT"]


def test_jobs_have_ports_of_their_own() -> None:
    assert port(SRUN) == port(SRUN.replace("PROCID=1", "PROCID=0").replace("LOCALID=1", "LOCALID=0"))
    ports = {port(text) for text in (SRUN, SRUN.replace("STEP_ID=0", "STEP_ID=1"), OPEN_MPI, FLUX, MPICH)}
    assert len(ports) == 5
    assert all(10_000 <= int(number) < 29_000 for number in ports)
    # MPICH does not name its job. Where the user names the host, other hosts may have ranks, too.
    assert port(f"{MPICH} MASTER_ADDR=n1") == "29500"
    # A program that copies the rank may do so in some ranks only.
    assert port(f"{SRUN} RANK=1 WORLD_SIZE=2") == "29500"


MISSING = {
    "PMIX_RANK=1": "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR",
    "PALS_LOCAL_RANKID=1 PMIX_LOCAL_RANK=1": "RANK, WORLD_SIZE, MASTER_ADDR",
    FLUX.replace("NNODES=1", "NNODES=2"): "MASTER_ADDR",
    f"{NODES} SLURM_HET_SIZE=2": "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR",
    f"{SRUN} WORLD_SIZE=3": "RANK, LOCAL_RANK, MASTER_ADDR",
    "RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=4000": "LOCAL_RANK",
}


@pytest.mark.parametrize(("variables", "names"), MISSING.items(), ids=MISSING.values())
def test_missing_variables_are_named(variables: str, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidEnvironment) as caught:
        ranks.derived(named(variables))
    assert f"cannot derive {names} from" in caught.value.message
    assert f"set {names} for each rank" in caught.value.do
    monkeypatch.setattr(ranks, "module_exists", lambda name: name == "mpi4py")
    assert ranks.derived(named(variables)) == {}


def test_node_list_of_slurm_is_suggested() -> None:
    job = f"{NODES} {CRAY_PMI} SLURM_JOB_NODELIST=n[1-2] MASTER_PORT=4000 PMI_LOCAL_SIZE=1"
    with pytest.raises(InvalidEnvironment) as caught:
        ranks.derived(named(job))
    assert "scontrol show hostnames" in caught.value.do


@pytest.mark.parametrize("service", ["AZUREML_EXPERIMENT_ID", "SM_TRAINING_ENV"])
def test_known_services_are_left_to_deepspeed(service: str) -> None:
    assert ranks.derived({**named(OPEN_MPI), service: "x"}) == {}
    assert ranks.derived({service: "x"}) is None
