# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Broken environments: each is diagnosed by name, in one line of advice, with exit status 1."""

from typing import Any

import pytest

HANG = "import time; time.sleep(300)"
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def only_problem(result: Any) -> dict[str, str]:
    assert result.status == 1, result.err
    assert result.report["healthy"] is False
    (problem,) = result.report["problems"]
    assert all("\n" not in text for text in problem.values())
    found: dict[str, str] = problem
    return found


def test_torch_is_not_installed(bare: Any) -> None:
    bare.cpu()
    problem = only_problem(bare.doctor())
    assert (problem["code"], problem["subject"]) == ("torch-missing", "torch")
    assert "pip install 'torch<2.16,>=2.6'" in problem["advice"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')",
            "libhccl.so",
        ),
        ("raise SystemExit('no driver')", "SystemExit: no driver"),
        (CRASH, "died by SIGSEGV"),
    ],
    ids=["raises", "exits", "crashes"],
)
def test_a_backend_extension_breaks_the_import_of_torch(healthy: Any, body: str, reason: str) -> None:
    healthy.backend("torch_well", "pass", "torch-well")
    healthy.backend("torch_sick", body)
    result = healthy.doctor()
    problem = only_problem(result)
    assert problem["code"] == "torch-autoload"
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert reason in problem["found"]
    assert problem["advice"].startswith("export TORCH_DEVICE_BACKEND_AUTOLOAD=0, or pip uninstall torch-sick")
    assert ("LD_LIBRARY_PATH" in problem["advice"]) == ("libhccl" in reason)
    assert result.states() == {"cpu": "chosen"}  # what it would be with that line


def test_a_backend_extension_hangs_the_import_of_torch(bare: Any) -> None:
    bare.torch()
    bare.backend("torch_sick", HANG)
    problem = bare.doctor("--timeout", "1.5").remarks()["torch-autoload"]
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert "did not answer within 9 s" in problem["found"]


def test_with_the_advised_line_the_environment_is_healthy(healthy: Any) -> None:
    healthy.backend("torch_sick", "raise OSError('no')")
    result = healthy.doctor(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.status == 0, result.out
    note = result.remarks("notes")["bridge-off"]
    assert "import accel_core" in note["found"]
    # The line was advised: to unset it, without a condition, would lead back to the failing import.
    assert note["advice"].startswith("import accel_core first")
    assert "if `import torch` works then" in note["advice"]


def test_torch_itself_can_not_be_imported(healthy: Any) -> None:
    healthy.module("torch/BROKEN", "")
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "torch-import"
    assert "libtorch_cpu.so" in problem["found"]
    assert "pip install --force-reinstall torch==2.13.0" in problem["advice"]


@pytest.mark.parametrize("installed", [False, True], ids=["without torch", "in the place of torch"])
def test_a_folder_called_torch_is_imported_in_its_place(bare: Any, tmp_path: Any, installed: bool) -> None:
    bare.cpu()
    folder = tmp_path / "work"
    if installed:
        folder = bare.site
        bare.module("torch/__init__.py", "")
        bare.distribution("torch", "2.13.0")
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    problem = bare.doctor(cwd=folder).remarks()["torch-shadowed"]
    assert str(folder / "torch") in problem["found"]
    assert problem["advice"].startswith(f"remove or rename {folder / 'torch'}, or start in another folder")
    assert ("pip install 'torch" in problem["advice"]) == (not installed)
    assert "unknown" not in problem["advice"]


def test_torch_is_outside_what_a_vendor_package_requires(healthy: Any) -> None:
    healthy.vendor("toy", requires_dist=("torch>=2.14", "packaging>=1; extra == 'never'"))
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "requirement"
    assert problem["found"] == "accel-toy 1.0 requires torch>=2.14, found 2.13.0"
    assert problem["advice"] == "pip install 'torch>=2.14'"


def test_a_backend_extension_was_built_for_another_torch(healthy: Any) -> None:
    healthy.distribution(
        "torch-old", "2.1", {"torch.backends": {"old": "os:getpid"}}, ("torch==2.1.*", "pyyaml")
    )
    result = healthy.doctor()
    found = [problem["found"] for problem in result.report["problems"]]
    assert found == [
        "torch-old 2.1 requires torch==2.1.*, found 2.13.0",
        "torch-old 2.1 requires pyyaml, found none",
    ]
    advice, _ = (problem["advice"] for problem in result.report["problems"])
    assert advice.startswith("pip install --upgrade torch-old torch==2.13.0; or pip uninstall torch-old: ")
    assert result.status == 1


def test_deepspeed_is_outside_the_supported_releases(bare: Any) -> None:
    bare.torch()
    bare.cpu()
    bare.deepspeed("0.15.4")
    problem = only_problem(bare.doctor())
    assert (problem["code"], problem["subject"]) == ("deepspeed-version", "deepspeed")
    assert "0.15.4" in problem["found"]
    assert "pip install 'deepspeed" in problem["advice"]


def test_the_entry_point_that_joins_deepspeed_is_missing(bare_python: Any, healthy: Any) -> None:
    (points,) = healthy.site.glob("accel_core-*.dist-info/entry_points.txt")
    points.unlink()
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "bridge-broken"
    assert "reinstall ./packages/accel-core" in problem["advice"]


def test_vendor_entry_points_that_can_not_be_used(healthy: Any) -> None:
    record = (
        "from accel_core.vendor import Vendor\nVENDOR = Vendor("
        "key='old', interface=99, accelerator='a:B', probe='p', priority=5, distribution='d', requires='x')"
    )
    sources = {"sick": "raise AttributeError('half installed')", "odd": "VENDOR = 3", "old": record}
    for key, source in sources.items():
        healthy.module(f"{key}.py", source)
        healthy.distribution(f"accel-{key}", "1.0", {"accel.vendors": {key: f"{key}:VENDOR"}})
    result = healthy.doctor()
    assert result.status == 1
    problems = {problem["subject"]: problem for problem in result.report["problems"]}
    assert {problem["code"] for problem in problems.values()} == {"entry-point"}
    assert {key: problem["found"].partition(" ")[0] for key, problem in problems.items()} == {
        "sick": "[ACC-101]",
        "odd": "[ACC-101]",
        "old": "[ACC-102]",
    }
    assert "pip uninstall accel-sick" in problems["sick"]["advice"]
    assert "`odd = " in problems["odd"]["advice"]
    assert "accel-old" in problems["old"]["advice"]
    assert result.states() == {"sick": "broken", "odd": "broken", "old": "broken", "cpu": "chosen"}


def test_two_packages_claim_one_key(healthy: Any) -> None:
    healthy.vendor("toy")
    healthy.distribution("accel-toy2", "1.0", {"accel.vendors": {"toy": "vendor_toy:VENDOR"}})
    assert "pip uninstall one of" in only_problem(healthy.doctor())["advice"]


def test_the_accelerator_asked_for_is_broken(healthy: Any) -> None:
    healthy.vendor("toy", confirm="raise OSError('no driver')")
    assert "DS_ACCELERATOR" in healthy.doctor(DS_ACCELERATOR="toy").remarks()["selection"]["advice"]


def test_runtimes_that_raise(healthy: Any) -> None:
    healthy.vendor("a", 2000, "raise ImportError('libtoy.so.3: cannot open shared object file')")
    healthy.vendor("b", 1999, "raise SystemExit(3)")
    result = healthy.doctor()
    assert result.status == 1
    for key, kind, problem in zip(
        "ab", ("ImportError", "SystemExit"), result.report["problems"], strict=True
    ):
        assert (problem["subject"], problem["code"]) == (key, "candidate-broken")
        assert kind in problem["found"]
        assert f"export ACCEL_SKIP={key}" in problem["advice"]
        assert ("libtoy.so.3" in problem["advice"]) == (key == "a")
        assert "Traceback" in result.candidate(key)["error"]
    assert result.states() == {"a": "broken", "b": "broken", "cpu": "chosen"}
