# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The package around the class: metadata, probe, sources."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from accel_core.vendor import Confirmation, Evidence
from broken import Site, breaks

_PROBE = "accel_good.probe"
_CORE = "accel-core>=0.1,<0.3"


@breaks("package.core_finds_it")
def entry_point_has_another_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.entry_points = site.entry_points.replace("good =", "better =")


@breaks("package.core_finds_it")
def a_second_entry_point_is_broken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.entry_points += "worse = accel_good.missing:VENDOR\n"


@breaks("package.core_finds_it")
def priority_is_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    import accel_good.vendor as module

    monkeypatch.setattr(module, "OTHER", replace(module.VENDOR, key="rival"), raising=False)
    site.entry_points += "rival = accel_good.vendor:OTHER\n"


@breaks("package.requirements_are_ranges")
def core_has_no_cap(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core>=0.1")


@breaks("package.requirements_are_ranges")
def core_may_refuse_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core>=0.1,<1")


@breaks("package.requirements_are_ranges")
def core_is_pinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core==0.1.0")


@breaks("package.requirements_are_ranges")
def runtime_is_required(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata += "Requires-Dist: torch-good>=2\n"


@breaks("package.requirements_are_ranges")
def torch_is_pinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace("torch>=2.5", "torch==2.13.0")


@breaks("package.core_finds_it")
def version_is_another(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace("Version: 1.0", "Version: 1.1")


def _evidence(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    good = Evidence(runtime=True, hardware=True, reason="the devices are pretended")
    monkeypatch.setattr(f"{_PROBE}.evidence", lambda: replace(good, **changes))


@breaks("probe.evidence_is_evidence")
def evidence_is_a_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, runtime=2)


@breaks("probe.evidence_is_evidence probe.evidence_is_true_of_the_environment")
def evidence_is_speechless(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, reason="")


@breaks("probe.evidence_sees_the_device")
def evidence_is_blind(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, hardware=False, reason="no device file dev/good0")


def _before_evidence(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    from accel_good import probe

    good = probe.evidence

    def evidence() -> Evidence:
        changes = action()
        return replace(good(), **changes) if isinstance(changes, dict) else good()

    monkeypatch.setattr(f"{_PROBE}.evidence", evidence)


@breaks("probe.evidence_is_evidence")
def evidence_wavers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(1000))
    _before_evidence(monkeypatch, lambda: {"reason": f"asked {next(counts)} times"})


@breaks("probe.evidence_survives_a_bare_machine")
def evidence_reads_what_may_be_missing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _before_evidence(monkeypatch, lambda: os.listdir(os.environ.get("ACCEL_SYSROOT", "/") + "/dev"))


@breaks("probe.evidence_leaves_no_trace")
def evidence_sets_a_variable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(1000))
    monkeypatch.setenv("GOOD_HOME", "")
    _before_evidence(monkeypatch, lambda: os.environ.update(GOOD_HOME=str(next(counts))))


@breaks("probe.evidence_leaves_no_trace")
def evidence_prints(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _before_evidence(monkeypatch, lambda: print("looking for devices", file=sys.stderr))


@breaks("probe.confirmation_counts_the_devices")
def confirmation_miscounts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PROBE}.confirm", lambda: Confirmation(8, "eight devices are pretended"))


@breaks("probe.confirmation_counts_the_devices")
def confirmation_is_speechless(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PROBE}.confirm", lambda: Confirmation(2, "ok"))


@breaks("package.sources_are_installed")
def source_is_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "accel_good.op_builder.optimizers.FusedAdamBuilder.sources", lambda self: ["csrc/adam.c"]
    )


@breaks("package.nothing_is_built_for_one_machine")
def source_is_built_for_one_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("csrc/nothing.c", "", "/* cc -O3 -march=" + "native */\n")


@breaks("package.sources_name_no_other_device")
def source_names_another_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("accelerator.py", "", "\n\ndef wait() -> None:\n    torch.npu.synchronize()\n")
