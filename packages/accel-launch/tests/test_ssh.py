# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of other hosts, variables for them, and files."""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_launch import ssh
from accel_launch.errors import HostUnreachable, InvalidArguments
from accel_launch.machine import Machine
from accel_launch.options import Options

FACTS = {
    "topology": {"nodes": []},
    "devices": 2,
    "mask": None,
    "device_nodes": [],
    "remarks": [],
    "later": "",
}


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts an ssh on PATH that writes its arguments to the returned file, and then runs the given lines of Python."""

    def write(lines: str) -> Path:
        program = tmp_path / "bin" / "ssh"
        program.parent.mkdir()
        record = f"open({str(tmp_path / 'asked')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
        program.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{record}\n{lines}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return tmp_path / "asked"

    return write


#: Answers by the name of the host.
ANSWERS = f"""
host = sys.argv[sys.argv.index('--') + 1]
if host == 'dead': sys.exit('ssh: connect to host dead port 22: No route to host')
if host == 'silent': time.sleep(300)
if host == 'old': print('{{"devices": 2}}')
else: print('Welcome!'); print({json.dumps(FACTS)!r})
"""
#: Gives the last argument to a shell, as sshd does.
SHELL = "os.execvp('sh', ['sh', '-c', sys.argv[-1]])"


def test_query_hosts(fake_ssh):
    record = fake_ssh(ANSWERS)
    answers = ssh.query_hosts(["worker-0", "me@[::1]"], Options(ssh_port=2222), "/work", {})
    assert answers == dict.fromkeys(["worker-0", "me@[::1]"], Machine.from_json(json.dumps(FACTS)))
    asked = [tuple(json.loads(line)[4:8]) for line in record.read_text().splitlines()]
    assert sorted(asked) == [("-p", "2222", "--", "me@::1"), ("-p", "2222", "--", "worker-0")]


def test_all_failing_hosts_are_named(fake_ssh, monkeypatch):
    fake_ssh(ANSWERS)
    monkeypatch.setattr(ssh, "ANSWER", 2)
    run = ssh.processes.run

    def patient(command: list[str], seconds: float, **given: Any) -> Any:
        # On a busy machine the others, too, may need longer than that.
        return run(command, seconds if "silent" in command else math.inf, **given)

    monkeypatch.setattr(ssh.processes, "run", patient)
    with pytest.raises(HostUnreachable) as caught:
        ssh.query_hosts(["worker-0", "dead", "silent", "old"], Options(), "/work", {})
    dead, silent, old = caught.value.details.splitlines()
    assert dead == "dead: ssh: connect to host dead port 22: No route to host"
    assert silent == "silent: no answer within 2 s"
    assert old.startswith("old: another accel-launch")
    assert caught.value.do.endswith("-- dead true")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(HostUnreachable, match="cannot run ssh"):
        ssh.query_hosts(["worker-0"], Options(), "/work", {})


HOSTILE = ["; touch injected", "$(touch injected)", "`touch injected`", "a'b\"c", "a\nb", "\\", "-n", "é*?"]


def test_remote_shell_interprets_nothing(tmp_path, run):
    (tmp_path / "a b; $(x)").mkdir()
    (tmp_path / "a b; $(x)" / "env ' activate").write_text("export SOURCED=yes\n")
    exports = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
    script = ssh.remote_command(
        [sys.executable, "-c", show, *HOSTILE],
        Options(venv_script=str(tmp_path / "a b; $(x)" / "env ' activate")),
        str(tmp_path / "a b; $(x)"),
        exports,
    )
    done = run("/bin/sh", "-c", script)
    arguments, environment, directory = json.loads(done.stdout)
    assert arguments == HOSTILE
    assert {name: environment[name] for name in exports} == exports
    assert environment["SOURCED"] == "yes"
    assert directory == str(tmp_path / "a b; $(x)")
    assert not list(tmp_path.rglob("injected"))
    assert shlex.split(script)[0] == "cd"


def test_names_of_this_host(monkeypatch):
    monkeypatch.setattr(ssh.socket, "gethostname", lambda: "Node7.cluster.example")
    own = ["localhost", "127.0.0.2", "[::1]", "me@node7", "node7.cluster.example"]
    assert all(map(ssh.is_this_host, own))
    assert not any(map(ssh.is_this_host, ["node70", "worker-0", "10.0.0.1", "[fe80::1]"]))


def test_query_is_private_and_isolated(fake_ssh, tmp_path):
    record = fake_ssh(SHELL)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("bisect", "queue", "runpy", "json"):
        (work / f"{name}.py").write_text("open('planted', 'w')\nraise SystemExit('planted')\n")
    exports = {"WANDB_API_KEY": "hunter2", "PYTHONPATH": f"{work}:"}
    assert list(ssh.query_hosts(["worker-0"], Options(), str(work), exports)) == ["worker-0"]
    assert "hunter2" not in record.read_text()
    assert not (work / "planted").exists()


def test_file_on_another_host(fake_ssh, tmp_path):
    record = fake_ssh(SHELL)
    path = tmp_path / "job 'x'"
    ssh.write_files({"worker-0": str(path)}, Options(), "aGk=")
    assert path.read_text() == "aGk=\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "aGk=" not in record.read_text()
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(HostUnreachable):
        ssh.write_files({"worker-0": str(link)}, Options(), "aGk=")
    assert not target.exists()


def test_exported_variables(toy):
    text = "TOY_FABRIC=ib0 TOY_VISIBLE_DEVICES=0 TOY_VISIBLE_MODULES=1 UCX_TLS=tcp PYTHONHASHSEED=1 SECRET=x UCX.BAD=1"
    environ = dict(pair.split("=") for pair in f"{text} PYTHONPATH=/lib".split())
    found = ssh.exported_variables(environ, toy, "/work", ())
    expected = "PYTHONHASHSEED=1 PYTHONPATH=/work:/lib TOY_FABRIC=ib0 UCX_TLS=tcp"
    assert found == dict(pair.split("=") for pair in expected.split())


def test_files_with_variables(toy, tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    for folder, text in ((home, "A=1\nB=two words=2\n"), (work, "# comment\n\nA=3\n")):
        folder.mkdir()
        (folder / ".deepspeed_env").write_text(text)
    files = ssh.variable_files({}, home, work)
    assert ssh.exported_variables({}, toy, "", files) == {"A": "3", "B": "two words=2"}
    assert ssh.variable_files({"DS_ENV_FILE": "vars"}, home, work) == (home / "vars", work / "vars")


@pytest.mark.parametrize("line", ["A", "A B=1", "=1", "A;rm=1", "A=\0"])
def test_wrong_line_of_file(line, toy, tmp_path):
    path = tmp_path / "vars"
    path.write_text(f"A=1\n{line}\n")
    with pytest.raises(InvalidArguments) as caught:
        ssh.exported_variables({}, toy, "/work", [path])
    assert f"{path}:2" in caught.value.message


def test_file_of_another_user(toy, tmp_path):
    path = tmp_path / ".deepspeed_env"
    path.write_text("LD_PRELOAD=/tmp/theirs.so\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        path.chmod(0o646)
    files = ssh.variable_files({}, tmp_path / "home", tmp_path)
    with pytest.raises(InvalidArguments, match="another user can write"):
        ssh.exported_variables({}, toy, "", files)
    named = {"DS_ENV_FILE": str(path)}
    meant = ssh.variable_files(named, tmp_path / "home", tmp_path)
    assert ssh.exported_variables(named, toy, "", meant) == {"LD_PRELOAD": "/tmp/theirs.so"}
