# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From options to a plan: ranks, variables, devices, cores; on a machine of shared/topologies with two sockets.

Plans as JSON, and the variables that a job adds.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from accel_core import env
from accel_core.vendor import VisibleDevices
from accel_launch import emit, machine, planning, ssh
from accel_launch.errors import BindingImpossible, InvalidArguments
from accel_launch.job import Job
from accel_launch.machine import Accelerator, Machine, read_topology
from accel_launch.options import Options
from accel_launch.plan import Binding, Host, MemoryPolicy, Plan, Program, Rank

JOB = Plan((), "worker-0", 29500, Program(("python", "train.py")), "/work")
BOUND = replace(JOB, binding=Binding())


@pytest.fixture
def here(root_of: Callable[[str], Path]) -> Machine:
    return Machine(read_topology(root_of("two-sockets")), devices=4)


def on_one(
    here: Machine, accelerator: Accelerator, slots: Sequence[int], job: Plan = JOB, **environ: str
) -> Plan:
    return planning.arrange(job, {"worker-0": slots}, {"worker-0": here}, accelerator, environ)


def visible(plan: Plan) -> str | None:
    return plan.hosts[0].ranks[0].environment.get("TOY_VISIBLE_DEVICES")


def test_variables_of_ranks(here, toy):
    slots = {"worker-0": (0, 1), "worker-1": (0, 2, 3)}
    plan = planning.arrange(JOB, slots, dict.fromkeys(slots, here), toy, {})
    seen = [plan.variables(*each) for each in plan.ranks()]
    expected = """
        RANK=3 LOCAL_RANK=1 WORLD_SIZE=5 LOCAL_SIZE=3 LOCAL_WORLD_SIZE=3 CROSS_RANK=1 CROSS_SIZE=2
        MASTER_ADDR=worker-0 MASTER_PORT=29500 TOY_VISIBLE_DEVICES=0,2,3 OMP_NUM_THREADS=2
    """
    assert seen[3] == dict(pair.split("=") for pair in expected.split())
    assert [variables["RANK"] for variables in seen] == ["0", "1", "2", "3", "4"]
    assert [variables["LOCAL_RANK"] for variables in seen] == ["0", "1", "0", "1", "2"]
    assert [rank.device for _, rank in plan.ranks()] == ["0", "1", "0", "2", "3"]


def test_cores_and_threads(here, host_cpu, toy):
    plan = on_one(here, host_cpu, (0, 1), BOUND)
    first, second = plan.hosts[0].ranks
    assert (first.cpus, first.cores, first.numa_nodes) == ((0, 1, 2, 3, 8, 9, 10, 11), 4, (0,))
    assert (second.memory, second.device, plan.notes) == (MemoryPolicy("bind", (1,)), "", ())
    assert (second.environment["OMP_NUM_THREADS"], second.environment["KMP_BLOCKTIME"]) == ("4", "1")
    kept = on_one(here, host_cpu, (0,), BOUND, KMP_BLOCKTIME="5")
    assert "KMP_BLOCKTIME" not in kept.hosts[0].ranks[0].environment
    unbound = on_one(here, host_cpu, range(20)).hosts[0].ranks[0]
    assert (unbound.environment["OMP_NUM_THREADS"], unbound.cpus) == ("1", ())
    kept = on_one(here, host_cpu, range(20), OMP_NUM_THREADS="7")
    assert "OMP_NUM_THREADS" not in kept.hosts[0].ranks[0].environment
    near = on_one(replace(here, device_nodes=(1, 1, 0, None)), toy, range(4), BOUND)
    assert [rank.numa_nodes for rank in near.hosts[0].ranks] == [(1,), (1,), (0,), (0,)]


def test_unused_and_missing_cores(here, host_cpu):
    plan = on_one(here, host_cpu, range(6), BOUND)
    assert plan.hosts[0].unused == (3, 7, 11, 15)
    assert "CPUs 3,7,11,15 of worker-0" in plan.notes[0]
    reserving = on_one(here, host_cpu, (0, 1), replace(JOB, binding=Binding(None, 1)))
    assert (reserving.hosts[0].reserved, reserving.hosts[0].unused) == ((0, 4, 8, 12), ())
    with pytest.raises(BindingImpossible, match="worker-0: cannot bind") as caught:
        on_one(here, host_cpu, range(9), BOUND)
    assert "9 ranks, 8 physical cores" in caught.value.message


def test_conflicting_affinity_is_named(here, host_cpu):
    for name in ("KMP_AFFINITY", "GOMP_CPU_AFFINITY"):
        on_one(here, host_cpu, (0,), **{name: "0-3"})
        with pytest.raises(BindingImpossible, match=f"{name} is set"):
            on_one(here, host_cpu, (0,), BOUND, **{name: "0-3"})


def test_mask_is_narrowed(here, toy):
    plan = on_one(replace(here, devices=3, mask=("GPU-9f3b", "MIG-1", "7")), toy, (0, 2))
    assert [rank.device for rank in plan.hosts[0].ranks] == ["GPU-9f3b", "7"]
    assert visible(plan) == "GPU-9f3b,7"


def test_devices_that_cannot_be_chosen(here, toy, host_cpu):
    # Numbers of a SYCL selector count among the devices of a mask.
    selected = replace(here, devices=2, later="ONEAPI_DEVICE_SELECTOR=level_zero:2,3")
    assert visible(on_one(selected, toy, (0, 1))) is visible(on_one(selected, toy, (0,))) is None
    for slots in ((1,), (0, 1, 2)):
        with pytest.raises(InvalidArguments, match="level_zero:2,3"):
            on_one(selected, toy, slots)
    # The runtime numbers devices by local ranks.
    unread = replace(toy, restricts=False)
    on_one(here, unread, (0, 1))
    with pytest.raises(InvalidArguments, match="a launcher cannot choose the devices of worker-0"):
        on_one(here, unread, (1,))
    # An item of the mask has several devices.
    tiles = replace(here, devices=2, mask=("0",))
    assert visible(on_one(tiles, toy, (0, 1))) is None
    with pytest.raises(InvalidArguments, match="slot 0 of worker-0"):
        on_one(tiles, toy, (0,))
    with pytest.raises(InvalidArguments, match="slot 4 of worker-0"):
        on_one(here, toy, range(5))
    on_one(here, host_cpu, range(5))
    ignoring = replace(here, devices=1, mask=("0", "9"), remarks=("the runtime ignores 9",))
    assert on_one(ignoring, toy, (0,)).notes == ("worker-0: the runtime ignores 9",)
    with pytest.raises(InvalidArguments, match="slot 1 of worker-0"):
        on_one(ignoring, toy, (1,))


RULE = VisibleDevices(("TOY_VISIBLE_DEVICES",), later=("TOY_SELECTOR",))


@pytest.mark.parametrize(
    ("variables", "count", "mask", "remark", "later"),
    [
        ("", 4, None, "", ""),
        ("TOY_VISIBLE_DEVICES=", 0, None, "TOY_VISIBLE_DEVICES is empty, which hides all devices", ""),
        ("TOY_VISIBLE_DEVICES=3,1", 2, ("3", "1"), "", ""),
        ("TOY_VISIBLE_DEVICES=1,9", 1, ("1",), "the runtime ignores 9 of TOY_VISIBLE_DEVICES=1,9", ""),
        (
            "TOY_VISIBLE_DEVICES=1 TOY_SELECTOR=1",
            1,
            None,
            "TOY_SELECTOR=1 chooses among them",
            "TOY_SELECTOR=1",
        ),
    ],
)
def test_visible_devices_of_machine(variables, count, mask, remark, later, monkeypatch, toy):
    device = SimpleNamespace(visible=RULE, device_count=lambda: count)
    monkeypatch.setattr(machine, "accelerator", lambda: toy)
    monkeypatch.setattr(machine, "get_accelerator", lambda: device)
    here = machine.this_machine(dict(each.split("=") for each in variables.split()))
    assert (here.mask, here.remarks, here.later) == (mask, (remark,) if remark else (), later)


def test_unknown_host_is_completed_later(here, toy):
    slots = {"worker-0": (0, 1), "worker-1": (0, 1)}
    whole = planning.arrange(BOUND, slots, dict.fromkeys(slots, here), toy, {})
    partial = planning.arrange(BOUND, slots, {"worker-0": here}, toy, {})
    assert (partial.hosts[1].bound_here, partial.hosts[1].ranks[0].cpus) == (True, ())
    read = Plan.from_json(partial.to_json())
    assert planning.complete(read, 1, here, toy, {}) == whole
    assert planning.complete(whole, 1, here, toy, {}) is whole
    with pytest.raises(BindingImpossible, match="KMP_AFFINITY is set"):
        planning.complete(read, 1, here, toy, {"KMP_AFFINITY": "compact"})


def test_first_host_is_master(here, toy):
    def master(*names: str) -> str:
        slots = dict.fromkeys(names, (0,))
        return planning.arrange(
            replace(JOB, master_addr=""), slots, dict.fromkeys(names, here), toy, {}
        ).master_addr

    assert master("me@worker-0", "worker-1") == "worker-0"
    assert master("[fe80::1]", "worker-1") == "fe80::1"
    assert master("127.0.0.1", "127.0.0.2") == "127.0.0.1"
    with pytest.raises(InvalidArguments, match="cannot reach the first one"):
        master("localhost", "worker-1")


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Machine, host_cpu: Accelerator
) -> Callable[..., None]:
    """A folder with a script, on a machine whose accelerator is the CPU; returns what changes the machine.

    Each host that is asked is the same machine.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "DEFAULT_HOSTFILE", str(tmp_path / "none"))
    (tmp_path / "train.py").write_text("")
    here = replace(here, devices=2)
    monkeypatch.setattr(ssh, "query_hosts", lambda names, *rest: dict.fromkeys(names, here))

    def change(accelerator: Accelerator = host_cpu, **facts: object) -> None:
        monkeypatch.setattr(machine, "this_machine", lambda environ=None: replace(here, **facts))  # type: ignore[arg-type]
        monkeypatch.setattr(machine, "accelerator", lambda: accelerator)

    change()
    return change


def make(**given: object) -> Plan:
    return planning.make_plan(Options(**{"script": "train.py", **given}), {})  # type: ignore[arg-type]


def counts(plan: Plan) -> dict[str, int]:
    return {host.name: len(host.ranks) for host in plan.hosts}


@pytest.mark.usefixtures("place")
def test_default_number_of_ranks():
    plan = make(bind_cores_to_rank=True)
    assert counts(plan) == {"localhost": 2}
    assert (plan.master_addr, plan.master_port, plan.directory) == ("127.0.0.1", 29500, os.getcwd())
    assert counts(make(bind_core_list="0-3")) == {"localhost": 1}
    assert counts(make(num_accelerators=5)) == {"localhost": 5}


def test_number_of_visible_devices(place, toy):
    place(mask=("4", "6", "7"))
    assert visible(make(include="localhost:0,2")) == "4,7"
    assert counts(make()) == {"localhost": 3}
    with pytest.raises(InvalidArguments, match="--num_accelerators"):
        make(num_accelerators=4)
    place(toy)
    assert counts(make()) == {"localhost": 2}
    with pytest.raises(InvalidArguments, match="--num_accelerators"):
        make(num_accelerators=3)
    for nothing in ({"accelerator": toy, "devices": 0}, {"mask": ()}):
        place(**nothing)
        with pytest.raises(InvalidArguments, match="no device to start ranks on"):
            make()


@pytest.mark.usefixtures("place")
def test_hosts_are_asked_unless_they_are_this_one():
    for names in (("127.0.0.1", "127.0.0.2"), ("worker-0", "worker-1")):
        Path("hosts").write_text("".join(f"{name} slots=2\n" for name in names))
        assert not any(host.bound_here for host in make(hostfile="hosts").hosts)
    for more in ({"launcher": "slurm"}, {"launcher": "own"}, {"no_ssh_check": True}):
        assert all(host.bound_here for host in make(hostfile="hosts", **more).hosts)
    one = make(hostfile="hosts", no_ssh=True, node_rank=1)
    assert [host.bound_here for host in one.hosts] == [True, False]
    assert one.master_addr == "worker-0"
    with pytest.raises(InvalidArguments, match="--node_rank 2"):
        make(hostfile="hosts", no_ssh=True, node_rank=2)


@pytest.mark.usefixtures("place")
def test_single_host(monkeypatch):
    Path("hosts").write_text("worker-0 slots=2\n")
    asked: list[str] = []
    monkeypatch.setattr(ssh, "query_hosts", lambda names, *rest: asked.extend(names) or {})
    alone = make(hostfile="hosts")
    assert (alone.master_addr, alone.hosts[0].bound_here, asked) == ("127.0.0.1", False, [])
    assert "worker-0 is the only host" in alone.notes[0]
    for more in ({"force_multi": True}, {"launcher": "impi"}):
        there = make(hostfile="hosts", **more)
        assert (there.master_addr, there.notes, asked.pop()) == ("worker-0", (), "worker-0")
    Path("hosts").write_text("127.0.0.1 slots=2\n")
    assert make(hostfile="hosts").notes == ()
    # The launcher itself runs in a rank.
    outer, options = {"PMI_RANK": "1", "PMI_SIZE": "2"}, Options(script="train.py")
    assert "rank 1 of 2 of PMI" in planning.make_plan(options, outer).notes[0]
    assert (
        planning.make_plan(replace(options, no_ssh=True, node_rank=0), outer).notes == ()
    )  # as in a task of srun
    assert planning.make_plan(options, {"PMI_RANK": "0", "PMI_SIZE": "1"}).notes == ()


@pytest.mark.usefixtures("place")
def test_plan_file(monkeypatch):
    plan = make(bind_cores_to_rank=True)
    Path("plan.json").write_text(plan.to_json())
    assert planning.load_plan(Options(plan="plan.json")) == plan
    moved = planning.load_plan(Options(plan="plan.json", master_addr="10.0.0.1", master_port=4000))
    assert moved == replace(plan, master_addr="10.0.0.1", master_port=4000)
    with pytest.raises(InvalidArguments, match="--node_rank 1"):
        planning.load_plan(Options(plan="plan.json", no_ssh=True, node_rank=1))
    with pytest.raises(InvalidArguments, match="cannot read the plan"):
        planning.load_plan(Options(plan="missing.json"))
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    with pytest.raises(BindingImpossible, match="KMP_AFFINITY is set"):
        planning.load_plan(Options(plan="plan.json"))


@pytest.mark.usefixtures("place")
def test_table_of_plan():
    text = emit.table(make(bind_cores_to_rank=True, num_accelerators=3, reserve_cores=1))
    assert ["2", "localhost", "2", "3", "5-7,13-15", "1", "bind", "1", "3"] in map(
        str.split, text.splitlines()
    )
    assert "reserved on localhost: CPUs 0,4,8,12" in text
    assert "note: CPUs 3,11 of localhost belong to no rank" in text
    Path("hosts").write_text("worker-0 slots=1\n")
    assert "decided on the host" in emit.table(make(hostfile="hosts", force_multi=True, launcher="slurm"))


@pytest.mark.usefixtures("place")
def test_commands_of_programs():
    python = (sys.executable, "-u")
    program = make(arguments=("--lr", "1")).program
    assert program == Program((*python, "train.py"), ("--lr", "1"))
    assert make(script="train", module=True).program == Program((*python, "-m", "train"))
    assert make(script="./run.sh", no_python=True, no_local_rank=True).program == Program(
        ("./run.sh",), (), False
    )


# Plans as JSON, and their jobs


def rank(number: int, local: int) -> Rank:
    environment = {"TEXT": "two words; $(x) \u00e9"}
    cpus = (3, 4) if local else (0, 1, 2, 8)
    return Rank(
        number, local, local, f"GPU-{local}", cpus, 3, (0, 1), MemoryPolicy("bind", (0,)), environment
    )


PLAN = Plan(
    (Host("worker-0", 0, (rank(0, 0), rank(1, 1)), unused=(9,)), Host("me@[::1]", 1, (rank(2, 0),))),
    "worker-0",
    29500,
    Program(("python", "-u", "train.py"), ("--lr", "1")),
    "/work",
    Binding("0-3"),
    exports={"PATH": "/bin"},
    notes=("one note",),
)


def test_plan_as_json():
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(replace(PLAN, binding=None).to_json()).binding is None
    assert json.loads(PLAN.to_json())["hosts"][0]["ranks"][0]["cpus"] == "0-2,8"
    for text in ("", "{", "[]", "null", "1" * 5000, "[" * 100_000, '"\\ud800"'):
        with pytest.raises(InvalidArguments, match="ACC-602"):
            Plan.from_json(text, "plan.json")


_RANK = ("hosts", 0, "ranks", 1)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("version",), 2, "plan.version"),
        (("master_port",), 70000, "plan.master_port"),
        (("master_addr",), "a;b", "plan.master_addr"),
        (("shell",), "rm", "shell"),
        (("hosts",), [], "plan.hosts"),
        (("program", "command"), [], "plan.program.command"),
        (("program", "command"), ["a\0b"], "plan.program.command"),
        (("exports", "A;rm"), "1", "A;rm"),
        (("binding", "reserve_cores"), -1, "reserve_cores: -1"),
        (("hosts", 0, "name"), "-oProxyCommand=x", "ProxyCommand"),
        (("hosts", 1, "name"), "you@worker-0", "a machine twice"),
        (("hosts", 1, "node_rank"), 0, "hosts[1]"),
        ((*_RANK, "rank"), 0, "global ranks"),
        ((*_RANK, "local_rank"), 2, "local ranks"),
        ((*_RANK, "cpus"), "3-1", "cpus"),
        ((*_RANK, "slot"), -1, "slot -1"),
        ((*_RANK, "cpus"), "2-3", "ranks 0 and 1 both have CPU 2 of worker-0"),
        ((*_RANK, "environment", "A=B"), "1", "A=B"),
    ],
)
def test_contradicting_plan(path, value, named):
    data = place = json.loads(PLAN.to_json())
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidArguments) as caught:
        Plan.from_json(json.dumps(data), "plan.json")
    assert named in caught.value.message
    assert "plan.json" in caught.value.message


def test_store_address_and_secret(monkeypatch):
    def seen(names: str, address: str) -> list[tuple[str, str | None]]:
        made = tuple(Host(name, number, (Rank(number, 0, 0),)) for number, name in enumerate(names.split()))
        job = Job(replace(PLAN, hosts=made, master_addr=address), secret="s3cret")
        assert "s3cret" not in repr(job)
        given = [job.assignment(host, rank).environment for host, rank in job.plan.ranks()]
        return [(each[env.STORE_ADDRESS.name], each.get(env.JOB_SECRET.name)) for each in given]

    assert seen("localhost", "127.0.0.1") == [("127.0.0.1", "s3cret")]
    # Each of several hosts may have its own launcher.
    assert seen("a b", "192.0.2.1") == [("192.0.2.1", None), ("", None)]
    # A name may have another address elsewhere, so all interfaces are listened on.
    assert seen("a b", "a.example") == [("", None), ("", None)]
    assert Job(PLAN).secret != Job(PLAN).secret
    assert len(Job(PLAN).secret) == 64
    monkeypatch.setenv(env.JOB_SECRET.name, "s3cret")
    assert env.JOB_SECRET.shown() == "(secret)"
