# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel new-vendor`: what it makes is found and passes its own tests and the host tier; bad answers are refused."""

import configparser
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import accel_sim
from accel_core.cli.main import main
from accel_core.op_builder.names import cuda_only
from accel_core.vendor import distribution_version, module_exists
from accel_sim import build
from accel_testkit import new_vendor
from accel_testkit.fake_runtime import FakeRuntime

from .conftest import conformance, made, own_tests, pip, run

KEY = "newvendor"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new vendor's package, as the command makes it."""
    return made(KEY, tmp_path_factory.mktemp("made"), "--hardware", "Acme Card")


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package."""
    site = tmp_path_factory.mktemp("site")
    pip("install", "--target", site, folder)
    return site


@pytest.fixture(scope="module")
def device(folder: Path, site: Path) -> dict[str, str]:
    """The environment of a machine with the package and a simulated device that its own file describes."""
    build.library()
    return accel_sim.environment(str(folder / "tests/simulated.json"), base={"PYTHONPATH": str(site)})


def test_doctor_chooses_the_new_vendor_on_its_device(device: dict[str, str]) -> None:
    report = json.loads(run("accel_core.cli", "doctor", "--json", "--timeout", "120", **device))
    (found,) = [candidate for candidate in report["candidates"] if candidate["key"] == KEY]
    assert (found["state"], found["devices"]) == ("chosen", 2), found["reason"]
    assert (found["package"], found["priority"]) == (f"accel-{KEY}", 260)  # above cuda, below mlu


def hardware(folder: Path, **environment: str) -> configparser.SectionProxy:
    """What tox makes of the environment `hardware`, with the host tier of the suite as the wish of a user."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(
        run("tox", "config", "-e", "hardware", "--", "--tier", "host", cwd=folder, **environment)
    )
    return settings["testenv:hardware"]


def test_the_hardware_environment_leaves_torch_and_variables_to_the_machine(folder: Path) -> None:
    found = hardware(folder, DS_ACCELERATOR=KEY)
    # uv installs another torch over the one of the system.
    assert (found["system_site_packages"], found["runner"]) == ("True", "virtualenv")
    assert found["deps"].split() == ["accel-testkit[deepspeed]>=0.1,<1"]
    assert "*" in found["pass_env"].split()
    assert found["install_command"].startswith(
        "env -u DS_ACCELERATOR "
    )  # which DeepSpeed's setup does not take


@pytest.mark.slow
def test_the_commands_on_hardware_pass_the_host_tier_and_write_its_results(device, folder) -> None:
    for command in hardware(folder)["commands"].strip().splitlines():
        python, m, *module = shlex.split(command)
        assert (python, m) == ("python", "-m")
        run(*module, cwd=folder, DS_ACCELERATOR=KEY, **device)
    results = json.loads((folder / ".tox/conformance.json").read_text(encoding="utf-8"))
    assert {(check["trait"], check["tier"]) for check in results["checks"]} == {("", "host")}


@pytest.mark.slow
def test_all_the_rest_passes_on_the_simulated_device_but_for_graphs(device, folder) -> None:
    checks = conformance(folder, "--tier", "device", "--tier", "multi", **device)
    assert {check["trait"] for check in checks} == {"", "graphs", *cuda_only()}
    assert {check["tier"] for check in checks} == {"device", "multi"}


def test_its_own_tests_pass_on_a_machine_without_a_device(folder: Path, site: Path) -> None:
    assert "3 passed" in own_tests(folder, PYTHONPATH=str(site))


@pytest.mark.slow
def test_runtime_without_collectives_and_variable(tmp_path: Path) -> None:
    folder, site = made("lacking", tmp_path, "--collectives", "gloo", "--visible", ""), tmp_path / "site"
    pip("install", "--target", site, folder)
    described = str(folder / "tests/simulated.json")
    environment = accel_sim.environment(described, base={"PYTHONPATH": str(site)})
    some = "collectives or environment or processes or traits or confirmation"
    found = conformance(folder, "--quick", "-k", some, **environment)
    assert {check["trait"] for check in found} == {"", "visible_devices"}
    own_tests(folder, PYTHONPATH=str(site))


@pytest.mark.slow
def test_probe_tests_beside_an_installed_runtime(folder: Path, site: Path, tmp_path: Path) -> None:
    name = f"torch_{KEY}"
    (tmp_path / f"{name}-3.0.dist-info").mkdir()
    (tmp_path / f"{name}-3.0.dist-info/METADATA").write_text(
        f"Name: {name}\nVersion: 3.0\n", encoding="utf-8"
    )
    (tmp_path / f"{name}.py").touch()
    path = os.pathsep.join([str(tmp_path), str(site)])
    assert "3 passed" in own_tests(folder, "tests/test_probe.py", PYTHONPATH=path)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., int]:
    """Run the command here, and return its status."""
    return lambda *arguments: main(["new-vendor", *arguments, "--out", str(tmp_path)])


def test_a_device_type_of_torch_s_own_needs_no_runtime_beside_it(make, tmp_path, capsys) -> None:
    assert make("mtia", "--no-privateuse1", "--runtime", "torch") == 0
    folder = tmp_path / "accel-mtia"
    assert "privateuse1" not in (folder / "src/accel_mtia/vendor.py").read_text(encoding="utf-8")
    assert "import torch" not in (folder / "src/accel_mtia/accelerator.py").read_text(encoding="utf-8")
    assert not (folder / "tests/simulated.json").exists()
    assert "accel sim" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["Acme"], "'Acme'"),
        (["a"], "'a'"),
        (["a-card"], "'a-card'"),
        (["lambda"], "'lambda'"),
        (["npu"], "'npu' is "),
        (["supa"], "DeepSpeed's name of SUPA_Accelerator"),
        (["core"], "accel-core of this project"),
        (["meta"], "has such a type"),
        (["card", "--no-privateuse1"], "has no such type"),
        (["card", "--hardware", 'a "card"'], "card"),
        (["card", "--runtime", "torch-card"], "torch-card"),
        (["card", "--collectives", "CCL"], "CCL"),
        (["card", "--visible", "devices"], "devices"),
        (["card", "--visible", "A B"], "A B"),
        (["card", "--prefix", "1st"], "1st"),
        (["card", "--priority", "high"], "high"),
        (["card", "--prefix", "A" * 20], "A" * 20),
        (["card", "--author", "a\nb"], "a\\nb"),
        (["card", "--email", "acme"], "acme"),
        (["card", "--url", "https://acme.example/"], "https://acme.example/"),
    ],
    ids=" ".join,
)
def test_a_bad_answer_writes_nothing(arguments, found, make, tmp_path, capsys, monkeypatch) -> None:
    if found.startswith("DeepSpeed"):  # without the packages of its devices
        monkeypatch.setattr(new_vendor, "discover", lambda: SimpleNamespace(vendors=()))
    assert make(*arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("[ACC-701]")
    assert found in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_there_is_left_alone(make, tmp_path, capsys) -> None:
    (tmp_path / f"accel-{KEY}").mkdir()
    assert make(KEY) == 1
    assert "is there already" in capsys.readouterr().err
    assert list((tmp_path / f"accel-{KEY}").iterdir()) == []


def test_without_copier_it_says_what_to_install(make, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    assert make(KEY) == 1
    error = capsys.readouterr().err
    assert "[ACC-105]" in error
    assert "pip install 'copier>=9.3,<10'" in error


def test_uninstalled_distribution_is_hidden(fake_runtime: FakeRuntime) -> None:
    assert distribution_version("copier")
    fake_runtime.uninstall("copier")
    assert (distribution_version("copier"), module_exists("copier")) == (None, False)
    fake_runtime.install("copier", "1.0")
    assert (distribution_version("copier"), module_exists("copier")) == ("1.0", True)


@pytest.mark.parametrize("url", ["", "https://git.acme.dev/accel-toy"])
def test_the_address_is_a_placeholder_unless_given(make, tmp_path, capsys, url) -> None:
    assert make(KEY, *(("--url", url, "--email", "team@acme.dev") if url else ())) == 0
    printed = capsys.readouterr().out
    project = (tmp_path / f"accel-{KEY}/pyproject.toml").read_text(encoding="utf-8")
    assert ("forge.example" in project) == (not url)
    assert f'Homepage = "{url or f"https://forge.example/OWNER/accel-{KEY}"}"\n' in project
    email = ', email = "team@acme.dev"' if url else ""
    assert f'authors = [{{ name = "The accel-{KEY} authors"{email} }}]' in project
    page = Path(printed.splitlines()[-1].partition(": ")[2])
    assert page.read_text(encoding="utf-8").startswith("# Writing a vendor package")


def test_the_command_has_an_option_for_every_question() -> None:
    text = (new_vendor.template() / "copier.yml").read_text(encoding="utf-8")
    questions = {
        name for name, each in yaml.safe_load(text).items() if name[0] != "_" and each.get("when", True)
    }
    assert questions == {*new_vendor._QUESTIONS, "privateuse1"}
