# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor against the real torch, to which the fake one of the other tests is held."""

from __future__ import annotations

import importlib.metadata
from typing import Any

EXAMINE = """
import json
from dataclasses import asdict
from accel_core.cli.doctor import examine
from accel_core.cli.child import Worker
worker = Worker(*examine.STEPS)
print(json.dumps(asdict(examine.examine_torch(worker.ask(120, "torch"), 120))))
worker.close()
"""


def test_it_names_the_backend_extension_that_breaks_the_real_torch(bare: Any, run_here: Any) -> None:
    bare.backend("torch_sick", "raise ImportError('libhccl.so: cannot open shared object file')")
    torch = run_here("-c", EXAMINE, PYTHONPATH=str(bare.site)).report
    assert (torch["imports"], torch["without_vendors"]) == (False, True)
    assert (torch["culprit"], torch["culprit_package"], torch["culprit_version"]) == (
        "torch_sick",
        "torch-sick",
        "2.13.0",
    )
    assert torch["reason"] == "ImportError: libhccl.so: cannot open shared object file"
    assert "Failed to load the backend extension: torch_sick" in torch["error"]


def test_the_real_torch_imports_and_reports_its_version(run_here: Any) -> None:
    torch = run_here("-c", EXAMINE).report
    assert (torch["imports"], torch["without_vendors"], torch["reason"]) == (True, True, "")
    assert torch["version"].startswith(importlib.metadata.version("torch").partition("+")[0])
    assert torch["claimed"] == ""
