# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from ci.tests.repository import ROOT, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """accel-core, accel-cpu on it, accel-both on both, accel-alone on nothing; committed."""
    repo = Repository(tmp_path / "checkout")
    repo.root.mkdir()
    repo.git("init", "-q", "-b", "main")
    repo.package("accel-core", version="0.2.0")
    repo.package("accel-cpu", requires=("accel-core>=0.2,<0.4", "torch>=2.5"), vendor="cpu")
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
