# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel new-vendor`: what it makes is found and passes its own tests and the host tier; bad answers are refused."""

import configparser
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import accel_sim
from accel_core.cli.main import main
from accel_core.op_builder.names import cuda_only
from accel_core.vendor import distribution_version, module_exists
from accel_sim import build
from accel_testkit import new_vendor
from accel_testkit.fake_runtime import FakeRuntime

KEY = "newvendor"


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new vendor's package, as the command makes it."""
    out = tmp_path_factory.mktemp("made")
    assert main(["new-vendor", KEY, "--hardware", "Acme Card", "--out", str(out)]) == 0
    return out / f"accel-{KEY}"


@pytest.fixture(scope="module")
def device(folder: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine with the package and a simulated device that its own file describes."""
    build.library()
    site = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    done = run("pip", "install", *options, "--target", str(site), str(folder))
    assert done.returncode == 0, done.stderr
    return accel_sim.environment(str(folder / "tests" / "simulated.json"), base={"PYTHONPATH": str(site)})


def test_doctor_chooses_the_new_vendor_on_its_device(device: dict[str, str], run: Run) -> None:
    report = json.loads(run("accel_core.cli", "doctor", "--json", "--timeout", "120", **device).stdout)
    (found,) = [candidate for candidate in report["candidates"] if candidate["key"] == KEY]
    assert (found["state"], found["devices"]) == ("chosen", 2), found["reason"]
    assert found["package"] == f"accel-{KEY}"


def suite(run: Run, device: dict[str, str], folder: Path, *tiers: str) -> list[dict[str, str]]:
    """The checks of a run of these tiers in the package's folder, none of which fails."""
    results = folder.parent / "results.json"
    options = ["--accel", KEY, "--results", str(results), "-p", "no:cacheprovider"]
    options += [text for tier in tiers for text in ("--tier", tier)]
    done = run("pytest", "--pyargs", "accel_testkit.suite", *options, cwd=folder, **device)
    assert done.returncode == 0, done.stdout[-3000:]
    checks: list[dict[str, str]] = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return checks


def hardware(run: Run, folder: Path, **environment: str) -> configparser.SectionProxy:
    """What tox makes of the environment `hardware`, with the host tier of the suite as the wish of a user."""
    done = run("tox", "config", "-e", "hardware", "--", "--tier", "host", cwd=folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(done.stdout)
    return settings["testenv:hardware"]


def test_the_hardware_environment_leaves_torch_and_its_runtime_to_the_machine(run: Run, folder: Path) -> None:
    found = hardware(run, folder)
    # uv installs another torch over the one of the system.
    assert (found["system_site_packages"], found["runner"]) == ("True", "virtualenv")
    assert found["deps"].split() == ["accel-testkit[deepspeed]>=0.1,<1"]
    named = hardware(run, folder, NEWVENDOR_RUNTIME="torch_newvendor==2.7.1")
    assert named["deps"].split()[0] == "torch_newvendor==2.7.1"


def test_the_hardware_environment_passes_every_variable_but_for_deepspeed_s_setup(run, folder) -> None:
    found = hardware(run, folder, DS_ACCELERATOR=KEY)
    assert "*" in found["pass_env"].split()
    assert found["install_command"].startswith("env -u DS_ACCELERATOR ")


@pytest.mark.slow
def test_the_commands_on_hardware_pass_the_host_tier_and_write_its_results(device, run, folder) -> None:
    found = hardware(run, folder)
    for command in found["commands"].strip().splitlines():
        python, m, *module = shlex.split(command)
        assert (python, m) == ("python", "-m")
        done = run(*module, cwd=folder, DS_ACCELERATOR=KEY, **device)
        assert done.returncode == 0, done.stdout[-3000:]
    results = json.loads((folder / ".tox/conformance.json").read_text(encoding="utf-8"))
    assert {check["trait"] for check in results["checks"]} == {""}
    assert {check["tier"] for check in results["checks"]} == {"host"}


@pytest.mark.slow
def test_all_the_rest_passes_on_the_simulated_device_but_for_graphs(device, run, folder) -> None:
    checks = suite(run, device, folder, "device", "multi")
    assert {check["trait"] for check in checks} == {"", "graphs", *cuda_only()}
    assert {check["tier"] for check in checks} == {"device", "multi"}


def test_its_own_tests_pass_on_a_machine_without_a_device(folder, device, run) -> None:
    site = device["PYTHONPATH"].split(os.pathsep)[-1]
    done = run("pytest", "-p", "no:cacheprovider", cwd=folder, PYTHONPATH=site)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "5 passed" in done.stdout


@pytest.mark.slow
def test_runtime_without_collectives_and_variable(run, tmp_path_factory) -> None:
    out = tmp_path_factory.mktemp("lacking")
    assert main(["new-vendor", "lacking", "--collectives", "gloo", "--visible", "", "--out", str(out)]) == 0
    folder, site = out / "accel-lacking", tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    assert run("pip", "install", *options, "--target", str(site), str(folder)).returncode == 0
    described = str(folder / "tests/simulated.json")
    environment = accel_sim.environment(described, base={"PYTHONPATH": str(site)})
    checks = ["-k", "collectives or environment or processes or traits or confirmation"]
    results = ["--accel", "lacking", "--results", str(out / "results.json"), "-p", "no:cacheprovider"]
    done = run(
        "pytest", "--pyargs", "accel_testkit.suite", "--quick", *results, *checks, cwd=folder, **environment
    )
    assert done.returncode == 0, done.stdout[-3000:]
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))["checks"]
    assert {check["trait"] for check in found} == {"", "visible_devices"}
    done = run("pytest", "-p", "no:cacheprovider", cwd=folder, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_probe_tests_beside_an_installed_runtime(folder, device, run, tmp_path) -> None:
    name = f"torch_{KEY}"
    (tmp_path / f"{name}-3.0.dist-info").mkdir()
    (tmp_path / f"{name}-3.0.dist-info/METADATA").write_text(
        f"Name: {name}\nVersion: 3.0\n", encoding="utf-8"
    )
    (tmp_path / f"{name}.py").touch()
    path = os.pathsep.join([str(tmp_path), device["PYTHONPATH"].split(os.pathsep)[-1]])
    done = run("pytest", "-p", "no:cacheprovider", "tests/test_probe.py", cwd=folder, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed" in done.stdout


def test_a_device_type_of_torch_s_own_needs_no_runtime_beside_it(tmp_path, capsys) -> None:
    arguments = ["mtia", "--no-privateuse1", "--runtime", "torch", "--out", str(tmp_path)]
    assert main(["new-vendor", *arguments]) == 0
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
def test_a_bad_answer_is_refused_and_nothing_is_written(arguments, found, tmp_path, capsys) -> None:
    assert main(["new-vendor", *arguments, "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("[ACC-701]")
    assert found in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_there_is_left_alone(tmp_path, capsys) -> None:
    (tmp_path / f"accel-{KEY}").mkdir()
    assert main(["new-vendor", KEY, "--out", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert list((tmp_path / f"accel-{KEY}").iterdir()) == []


def test_without_copier_it_says_what_to_install(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    assert main(["new-vendor", KEY, "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "[ACC-105]" in error
    assert "pip install 'copier>=9.3,<10'" in error


def test_the_last_line_names_a_page_that_is_installed(tmp_path, capsys) -> None:
    assert main(["new-vendor", KEY, "--out", str(tmp_path)]) == 0
    page = Path(capsys.readouterr().out.splitlines()[-1].partition(": ")[2])
    assert page.read_text(encoding="utf-8").startswith("# Writing a vendor package")


def test_uninstalled_distribution_is_hidden(fake_runtime: FakeRuntime) -> None:
    assert distribution_version("copier")
    fake_runtime.uninstall("copier")
    assert (distribution_version("copier"), module_exists("copier")) == (None, False)
    fake_runtime.install("copier", "1.0")
    assert (distribution_version("copier"), module_exists("copier")) == ("1.0", True)


@pytest.mark.parametrize("url", [(), ("--url", "https://git.acme.dev/accel-toy")])
def test_the_address_is_a_step_only_where_it_is_a_placeholder(tmp_path, capsys, url) -> None:
    assert main(["new-vendor", KEY, "--out", str(tmp_path), *url]) == 0
    said = capsys.readouterr().out
    assert ("grep -rn forge.example ." in said) == (not url)
    project = (tmp_path / f"accel-{KEY}/pyproject.toml").read_text(encoding="utf-8")
    assert ("forge.example" in project) == (not url)
    assert url or f'Homepage = "https://forge.example/OWNER/accel-{KEY}"' in project
    assert "email" not in project


def test_a_missing_accel_ops_is_one_of_the_steps(tmp_path, capsys, monkeypatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    arguments = ["new-vendor", KEY, "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "packages/accel-ops" not in capsys.readouterr().out
    (tmp_path / f"accel-{KEY}").rename(tmp_path / "first")
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert main(arguments) == 0
    first = capsys.readouterr().out.partition(" 1. ")[2].splitlines()[0]
    assert first.startswith("pip install ./packages/accel-ops (in a checkout of accel")


def test_the_command_has_an_option_for_every_question() -> None:
    text = (new_vendor.template() / "copier.yml").read_text(encoding="utf-8")
    questions = {
        name for name, each in yaml.safe_load(text).items() if name[0] != "_" and each.get("when", True)
    }
    assert questions == {*new_vendor._QUESTIONS, "privateuse1"}
