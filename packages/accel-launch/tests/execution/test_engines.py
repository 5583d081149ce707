# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each engine carries out a plan alike. The engines are fakes; see test_real_engines.

Guards as mpirun and srun start, place and kill them.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from accel_launch import engines, protocol
from accel_launch.errors import EngineUnavailable, InvalidArguments
from accel_launch.job import VARIABLE, Job
from accel_launch.options import Options
from accel_launch.plan import Plan

from .conftest import Launch

FAKE = Path(__file__).with_name("fake_engine.py")
PROGRAMS = {
    "impi": "mpiexec.hydra",
    "mpich": "mpiexec.mpich",
    "openmpi": "mpirun.openmpi",
    "slurm": "srun",
    "pdsh": "pdsh",
}
ENGINES = ("local", *PROGRAMS)
#: What an engine itself sets for its tasks.
OWN = ("PMI_", "MPI_", "OMPI_", "SLURM_", "I_MPI_", "HYDRA_", "PDSH_")
#: A program that writes its environment and arguments to a file named for its rank.
DUMP = (
    sys.executable,
    "-c",
    "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:], os.getcwd(), sorted(os.sched_getaffinity(0))], "
    "open('rank' + os.environ['RANK'] + '.json', 'w'))",
)
HOSTILE = [
    "$(touch hacked)",
    "`touch hacked`",
    "; touch hacked #",
    "'\"\\",
    "two words",
    "%h %n %%",
    "new\nline",
]
TWO = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def fakes(tmp_path: Path) -> dict[str, str]:
    """The environment with a fake of every engine on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    record = tmp_path / "arguments.json"
    for kind, program in PROGRAMS.items():
        line = f'exec {shlex.join([sys.executable, str(FAKE), kind, str(record)])} "$@"'
        (folder / program).write_text(f"#!/bin/sh\n{line}\n")
        (folder / program).chmod(0o755)
    # Gives the last argument to a shell, as sshd does.
    (folder / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (folder / "ssh").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


_HYDRA = (
    "-machinefile FILE --mine 'two words' -n 4 WORKER --rank-from PMI_RANK --local-rank-from MPI_LOCALRANKID"
)
GOLDEN = {
    "impi": f"-bootstrap ssh {_HYDRA}",
    "mpich": f"-launcher ssh {_HYDRA}",
    "openmpi": f"--bind-to none -H 127.0.0.1:2,127.0.0.2:2 -x {VARIABLE}0 -x PATH -x PYTHONPATH "
    "--mca plm_rsh_args '-p 2222' --mine 'two words' -n 4 WORKER --rank-from OMPI_COMM_WORLD_RANK "
    "--local-rank-from OMPI_COMM_WORLD_LOCAL_RANK",
    "slurm": "--ntasks=4 --nodes=2 --distribution=arbitrary --export=ALL --input=none --cpu-bind=none "
    "--mem-bind=none --kill-on-bad-exit=1 --mine 'two words' WORKER --rank-from SLURM_PROCID "
    "--local-rank-from SLURM_LOCALID",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_get_what_the_plan_has(start, fakes, tmp_path, monkeypatch, engine):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    hosts = ("localhost",) if engine == "local" else TWO
    cpus = sorted(os.sched_getaffinity(0))[:2]
    environment = {**fakes, "PYTHONPATH": "/no/$(touch hacked)/`touch hacked`/%h'\""}
    launch = start(
        DUMP,
        hosts=hosts,
        options={"launcher": engine, "launcher_args": ["--mine", "two words"], "ssh_port": 2222},
        environment=environment,
        cpus=cpus,
        spread=True,
        arguments=HOSTILE,
        more={f"HOSTILE_{index}": value for index, value in enumerate(HOSTILE)},
    )
    assert launch.wait() == 0, launch.err
    plan = Plan.from_json((tmp_path / f"plan-{launch.mark}.json").read_text())
    for host, rank in plan.ranks():
        variables = plan.variables(host, rank)
        found, *others = json.loads((tmp_path / f"rank{rank.rank}.json").read_text())
        assert others == [HOSTILE, str(tmp_path), [cpus[rank.local_rank]]]
        inherited = {**os.environ, **environment, "LC_CTYPE": found.get("LC_CTYPE", "")}
        new = {
            name: value
            for name, value in found.items()
            if inherited.get(name) != value
            and not name.startswith(OWN)
            and name not in ("_", "SHLVL", "PWD", "OLDPWD")
        }
        assert new.pop("ACCEL_STORE_ADDRESS", "") == ("" if rank.rank else "127.0.0.1")
        assert bool(new.pop("ACCEL_JOB_SECRET", "")) == (engine == "local")
        assert new == {name: value for name, value in variables.items() if inherited.get(name) != value}
        assert found["PYTHONPATH"] == environment["PYTHONPATH"]
        assert not [name for name in found if name.startswith(VARIABLE)]
    assert not list(tmp_path.rglob("hacked"))
    if engine in GOLDEN:
        given = json.loads((tmp_path / "arguments.json").read_text())
        assert "JOB_MARK" not in str(given), "the plan is not in the command line, which other users see"
        given = ["FILE" if word.startswith("/dev/fd/") else word for word in given]
        given = [word for word in given if word != "--allow-run-as-root"]
        start_of_worker = given.index(protocol.GUARD[0])
        given[start_of_worker : start_of_worker + len(protocol.GUARD)] = ["WORKER"]
        assert given == shlex.split(GOLDEN[engine])


# Of the other engines test_real_engines has this.
@pytest.mark.parametrize("killed", [False, True])
def test_slurm_leaves_nothing(start, fakes, killed):
    script = "trap '' TERM; setsid sleep 301 & echo > up$RANK; until [ -e go ]; do sleep 0.05; done; "
    script += '[ "$RANK" = 1 ] || sleep 300; echo last words; exit 6'
    launch = start(script, ranks=1, hosts=TWO, options={"launcher": "slurm"}, environment=fakes, grace=1.0)
    launch.up()
    if killed:
        launch.process.kill()
    (launch.folder / "go").touch()
    code = launch.wait()
    if not killed:
        assert code == 6
        assert "rank 1 on 127.0.0.2 ended with exit code 6; its last lines:\n    last words" in launch.err
    assert launch.gone_within(60)


@pytest.mark.parametrize("engine", PROGRAMS)
def test_missing_engine_is_named(start, tmp_path, engine):
    launch = start("touch started", options={"launcher": engine}, environment={"PATH": str(tmp_path)})
    if engine == "impi" and Path(sys.executable).with_name("mpiexec.hydra").exists():
        pytest.skip("not run: impi-rt is installed next to this Python")
    assert launch.wait() == 2
    assert "ACC-610" in launch.err
    assert "install" in launch.err.partition("; ")[2]
    assert not (tmp_path / "started").exists()


def test_names_of_engines(tmp_path, monkeypatch):
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineUnavailable, match="of another MPI"):
        engines.named("openmpi").check(None, Options())
    with pytest.raises(InvalidArguments, match="local, impi, openmpi, mpich, slurm, pdsh"):
        engines.named("pdhs")
    # Another package adds one.
    info = tmp_path / "toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[accel.launchers]\ntoy = toy_engine:Toy\n")
    (tmp_path / "toy_engine.py").write_text("class Toy: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert type(engines.named("toy")).__name__ == "Toy"


def test_file_of_hosts_has_no_name():
    descriptor = engines._hosts_file(["one", "two"])
    assert os.fstat(descriptor).st_nlink == 0
    assert Path(f"/dev/fd/{descriptor}").read_text() == "one\ntwo\n"
    os.close(descriptor)


def test_lost_host_of_pdsh():
    assert engines.Pdsh.lost_host(b"pdsh@login: node1: ssh exited with exit code 255\n") == ("node1", 255)
    assert engines.Pdsh.lost_host(b"rank 3 exited with exit code 255\n") is None


def test_no_ssh(start, tmp_path):
    options = {"no_ssh": True, "node_rank": 1}
    launch = start("echo $RANK", hosts=("worker-0", "worker-1"), options=options)
    assert launch.wait() == 0
    assert sorted(launch.out.split()) == ["2", "3"]


@pytest.mark.parametrize(
    ("options", "hosts", "said"),
    [
        ({"launcher": "local"}, ("worker-0", "worker-1"), "the engine local cannot start ranks"),
        ({}, ("localhost",), "ACC-607"),
    ],
)
def test_errors_before_anything_starts(start, fakes, tmp_path, options, hosts, said):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        launch = start("touch started", options=options, environment=fakes, hosts=hosts, port=port)
        assert launch.wait() == 2
    assert said in launch.err
    assert not (tmp_path / "started").exists()


def test_job_as_environment(make):
    # Its parts are smaller than Linux permits for a variable.
    for more in ({"BIG": "x" * 50}, {"RANDOM": os.urandom(120_000).hex()}):
        job = Job(make(["sh"], arguments=HOSTILE, ranks=60, more=more))
        parts = job.to_environment()
        assert max(map(len, parts.values())) <= 100_000
        assert Job.from_environment(parts) == job


SECRET = "hunter2-in-a-variable"


def test_pdsh_shows_no_variables(start, fakes, tmp_path):
    record = tmp_path / "seen"
    for name in ("pdsh", "ssh"):
        program = Path(fakes["PATH"].partition(":")[0], name)
        lines = program.read_text().splitlines()
        lines.insert(1, f'printf "%s\\n" "$@" >> {record}')
        program.write_text("\n".join(lines) + "\n")
    # A rank that looks at the arguments of all processes of the machine.
    script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' > seen$RANK; echo $WANDB_API_KEY"
    more = {"WANDB_API_KEY": SECRET}
    launch = start(script, ranks=1, hosts=TWO, options={"launcher": "pdsh"}, environment=fakes, more=more)
    assert launch.wait() == 0, launch.err
    assert launch.out.count(SECRET) == 2
    text = record.read_text() + "".join(path.read_text() for path in tmp_path.glob("seen[01]"))
    assert "accel-job-" in text
    assert SECRET not in text
    files = set(re.findall(r"/tmp/accel-job-\w+-127.0.0.[12]", text))
    assert files
    assert not any(map(os.path.exists, files))


# A guard of mpirun or srun


@pytest.fixture
def worker(start, make):
    """Starts a guard of MPI's rank 0; returns it, and a launcher that has ended, to look for processes of the job."""

    def go(script: str, rank: int = 0, **plan: int) -> tuple[subprocess.Popen[bytes], Launch]:
        ended = start("true", ranks=1)
        ended.wait()
        job = Job(make(["sh", "-c", script], more={"JOB_MARK": ended.mark}, **plan))
        process = subprocess.Popen(
            [*protocol.GUARD, "--rank-from", "PMI_RANK", "--local-rank-from", "MPI_LOCALRANKID"],
            env={**os.environ, **job.to_environment(), "PMI_RANK": str(rank), "MPI_LOCALRANKID": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return process, ended

    return go


@pytest.mark.parametrize(
    ("send", "number", "trap", "code"),
    [
        (os.kill, signal.SIGKILL, "", -signal.SIGKILL),
        (os.killpg, signal.SIGKILL, "", -signal.SIGKILL),
        (os.kill, signal.SIGTERM, "exit 9", 9),
    ],
)
def test_stopped_worker_leaves_nothing(worker, send, number, trap, code):
    process, job = worker(
        f"trap '{trap}' TERM; setsid sleep 301 & echo > up; sleep 302 & wait; wait", ranks=1
    )
    job.file("up")
    send(process.pid, number)
    process.communicate(timeout=120)
    assert process.returncode == code
    assert job.gone_within(60), job.alive()


def test_misplaced_rank_is_reported(worker):
    process, _ = worker("true", rank=1, ranks=2)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "was not started where the plan has it" in err.decode()
    assert '"kind": "end", "rank": 1, "code": 1' in err.decode()
