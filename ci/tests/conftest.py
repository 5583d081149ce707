# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A throw-away git repository laid out as this one: accel-core, and packages that stand on it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEADER = "# SPDX-FileCopyrightText: accel contributors\n# SPDX-License-Identifier: Apache-2.0\n"
#: No person's settings (signing, hooks, default branch) may steer a test.
GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{role}_{field}": "test@test" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")},
}

#: What an index needs to know of a package's origin.
ORIGIN = """authors = [{ name = "accel contributors", email = "accel@example.com" }]
[project.urls]
Source = "https://example.com/accel"
Changelog = "https://example.com/accel/CHANGELOG.md"
Issues = "https://example.com/accel/issues"
"""


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in this repository, not in the throw-away one, whatever its exit status."""
    given: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "check": False, **options}
    return subprocess.run([str(word) for word in command], **given)


@dataclass(frozen=True)
class Repository:
    root: Path

    def write(self, path: str, text: str = HEADER) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def git(self, *arguments: str) -> str:
        done = run("git", *arguments, cwd=self.root, env={**os.environ, **GIT_ENVIRONMENT}, check=True)
        return done.stdout.strip()

    def commit(self, subject: str = "a change") -> str:
        """Commits everything; returns the new commit."""
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def package(
        self, name: str, *, version: str = "0.1.0", requires: tuple[str, ...] = (), vendor: str = ""
    ) -> None:
        """Write packages/<name>; with `vendor`, the key of the record that it declares."""
        module = name.replace("-", "_")
        folder, source = f"packages/{name}", f"packages/{name}/src/{module}"
        text = f'[project]\nname = "{name}"\ndescription = "A package"\ndependencies = {list(requires)!r}\n{ORIGIN}'
        if vendor:
            text += f'[project.entry-points."accel.vendors"]\n"{vendor}" = "{module}.vendor:VENDOR"\n'
        self.write(f"{folder}/pyproject.toml", text)
        self.write(
            f"{folder}/CHANGELOG.md", f"# Changelog\n\n## {version} (2026-01-31)\n\n- First release.\n"
        )
        self.write(f"{folder}/changelog.d/.gitkeep", "")
        self.write(f"{source}/__about__.py", f'{HEADER}__version__ = "{version}"\n')
        self.write(f"{source}/__init__.py")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """accel-core, accel-cpu on it, accel-both on both, accel-alone on nothing; committed."""
    repo = Repository(tmp_path / "checkout")
    repo.root.mkdir()
    repo.git("init", "-q", "-b", "main")
    repo.package("accel-core", version="0.2.0")
    repo.package("accel-cpu", requires=("accel-core>=0.2,<0.4", "torch>=2.8"), vendor="cpu")
    repo.package("accel-both", requires=("accel-core>=0.2,<0.4", "accel-cpu>=0.1,<1"))
    repo.package("accel-alone")
    repo.write("README.md", "# accel\n")
    repo.commit("the first")
    return repo


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `accel new-vendor` makes of the least that can be answered."""
    import copier

    folder = tmp_path_factory.mktemp("accel-newcard")
    copier.run_copy(str(ROOT / "shared/template"), folder, data={"key": "newcard"}, defaults=True, quiet=True)
    return folder
