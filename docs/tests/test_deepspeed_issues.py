# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/deepspeed-issues*.md print what the pages show, with DeepSpeed as it is."""

import importlib.metadata
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1]
PAGES = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("deepspeed-issues*.md"))
#: What each program prints, as its page shows it.
SHOWN = {
    program: "\n".join(re.findall("`(.+?)`", lines))
    for program, lines in re.findall(
        r"\[Program\]\(issues/(\w+\.py)\)[^`]*?prints ((?:`[^`]+`(?: (?:and|·) )?)+)",
        re.sub(r"\n> +", " ", PAGES),
    )
}
#: The release for which the pages were written, and the one of a program whose fault it no longer has.
RELEASE, FORMER = "0.19.8", {"training_fails_with_torch_2_13.py": "0.18.9"}


def test_each_program_is_on_a_page() -> None:
    assert {path.name for path in (DOCS / "issues").glob("[a-z]*.py")} == SHOWN.keys()


@pytest.mark.sample("a_wheel*", "parameters_without*")
@pytest.mark.more
@pytest.mark.upstream
@pytest.mark.parametrize("program", SHOWN)
def test_a_program_shows_the_fault_in_stock_deepspeed(program: str, shell: Any, tmp_path: Path) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("not run: stock deepspeed is not installed")
    release = FORMER.get(program, RELEASE)
    if importlib.metadata.version("deepspeed") != release:
        pytest.skip(f"shows a fault of deepspeed {release}")
    done = shell(f"ACCEL_BRIDGE=0 python {DOCS / 'issues' / program}", tmp_path)
    assert done.returncode == 0, done.stdout
    # DeepSpeed logs to the same stream.
    printed = [line for line in done.stdout.splitlines() if line in SHOWN[program].splitlines()]
    assert printed == SHOWN[program].splitlines(), done.stdout


@pytest.mark.upstream
def test_patches_apply(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or importlib.metadata.version("deepspeed") != RELEASE:
        pytest.skip(f"patches are for deepspeed {RELEASE}")
    for patch in (DOCS / "issues").glob("*.patch"):
        folder = Path(str(spec.origin)).parents[1]
        subprocess.run(
            ["git", "apply", "--check", f"--directory={folder.relative_to('/')}", str(patch)],
            cwd="/",
            check=True,
        )
