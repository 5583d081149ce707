# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Problems, each with one line of advice, and notes, derived from the facts. Pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core import env
from accel_core.cli.doctor.examine import AUTOLOAD, TORCH_GROUP, Facts, Unmet, needs_a_run
from accel_core.devices import CPU_KEY
from accel_core.errors import InvalidEnvironment
from accel_core.install import pip_install
from accel_core.selection.candidates import Candidate, State
from accel_core.upstream.contract import TRIED, TRIED_TORCH
from accel_core.upstream.ranks import REQUIRED
from accel_core.vendor import NO_PERMISSION, distribution_version


@dataclass(frozen=True)
class Remark:
    """A problem or a note: stable code, subject, what was found, and one line of advice."""

    code: str
    subject: str
    found: str
    advice: str


_OFF = f"export {AUTOLOAD}=0"
_WITHOUT = f"{_OFF} and import accel_core ahead of deepspeed"
_MISSING_LIBRARY = re.compile(
    r"([\w.+-]+\.so[.\d]*): cannot open shared object file|Library not loaded: (\S+)"
)


def problems(facts: Facts) -> Iterator[Remark]:
    """Yield what makes a run fail or use another device than expected, root causes first."""
    yield from _torch(facts)
    yield from map(_unmet, facts.unmet)
    yield from _deepspeed(facts)
    if facts.torch.imports or facts.torch.without_vendors:
        for candidate in facts.explanation.candidates:
            yield from _candidate(candidate, facts)
        yield from _selection(facts)
    if (error := facts.place.error) is not None:
        yield Remark("rank", "launcher", error.message, error.do)


def notes(facts: Facts) -> Iterator[Remark]:
    """Yield remarks that are not problems."""
    chosen = facts.selection.decision.candidate
    for lock in facts.locks:
        found = f"no process has {lock} open; a program that builds {lock.parent.name} waits for it forever"
        yield Remark("stale-lock", "torch's extensions", found, f"rm {shlex.quote(str(lock))}")
    if not facts.deepspeed.version:
        found = "it is not installed; accel_core's own functions work without it"
        yield Remark(
            "deepspeed-missing", "deepspeed", found, f"pip install 'deepspeed{facts.deepspeed.supported}'"
        )
    elif not facts.bridge.on and not facts.bridge.repair:
        late = facts.bridge.reason.startswith(AUTOLOAD)
        # torch's switch may be set because `import torch` failed without it.
        advice = "unset the variable to join it again"
        if late:
            advice = "import accel_core first in the program; or unset it, if `import torch` works then"
        yield Remark("bridge-off", "bridge", facts.bridge.reason, advice)
    yield from _untried(facts)
    if facts.place.variables:
        found = f"a run is one of several ranks: {facts.place.variables}"
        yield Remark("rank", "launcher", found, "nothing to do")
    if facts.place.unknown:
        unknown = ", ".join(facts.place.unknown)
        found = f"{unknown} may be the rank of a launcher that accel-core does not know"
        advice = f"set {', '.join(REQUIRED)} in each rank, or RANK=0 and WORLD_SIZE=1 for a job of one"
        yield Remark("rank-like", "launcher", found, advice)
    if chosen is None:
        return
    if chosen.key == CPU_KEY and facts.selection.request.asked is None:
        absent = [c for c in facts.explanation.candidates if c.state in (State.ABSENT, State.NOT_INSTALLED)]
        here = ", ".join(dict.fromkeys(candidate.key for candidate in absent if candidate.hardware))
        why = f"no runtime counts the device of {here}" if here else "no other accelerator is present"
        found = f"a run would end on the CPU: {why}"
        yield Remark("cpu-fallback", CPU_KEY, found, "export DS_ACCELERATOR=cpu if this is what you want")
    if chosen.upstream:
        why = f", because {chosen.replaces} cannot be used" if chosen.replaces else ""
        found = f"it is left to DeepSpeed's own backend{why}"
        ours = f"{pip_install(chosen.package)} to use this project's accelerator instead"
        if chosen.replaces:
            ours = "repair that package (see the problem above) to use its accelerator instead"
        advice = ours if chosen.package else "nothing to do"
        yield Remark("deferred", chosen.label, found, advice)


def _untried(facts: Facts) -> Iterator[Remark]:
    if not facts.torch.tried:
        found = f"{facts.torch.version} is outside {TRIED_TORCH}, with which this package was tried"
        yield Remark("torch-untried", "torch", found, f"pip install 'torch{TRIED_TORCH}', if something fails")
    if facts.deepspeed.in_range and not facts.deepspeed.tried:
        found = f"{facts.deepspeed.version} is outside {TRIED}, with which this package was tried"
        yield Remark(
            "deepspeed-untried", "deepspeed", found, f"pip install 'deepspeed{TRIED}', if something fails"
        )


def _torch(facts: Facts) -> Iterator[Remark]:
    torch = facts.torch
    library = _library(torch.reason + torch.error)
    if not torch.version:
        advice = f"pip install 'torch{TRIED_TORCH}', or the build of it that your device's vendor names"
        yield Remark("torch-missing", "torch", "it is not installed", advice)
    elif torch.imports:
        return
    elif torch.shadow:
        found = f"{torch.shadow} is imported in its place, and is not PyTorch"
        absent = "" if distribution_version("torch") else f"; then pip install 'torch{TRIED_TORCH}'"
        advice = f"remove or rename {torch.shadow}, or start in another folder{absent}"
        yield Remark("torch-shadowed", "torch", found, advice)
    elif torch.culprit:
        package = f"{torch.culprit_package} {torch.culprit_version}".strip() or "an unknown package"
        found = f"its import fails in the backend extension {torch.culprit!r} of {package}: {torch.reason}"
        remove = f"pip uninstall {torch.culprit_package}" if torch.culprit_package else ""
        yield Remark("torch-autoload", "torch", found, _alternatives(library, _WITHOUT, remove))
    elif torch.without_vendors:
        found = f"its import fails among the backend extensions (group {TORCH_GROUP}): {torch.reason}"
        yield Remark("torch-autoload", "torch", found, _alternatives(library, _WITHOUT))
    else:
        again = f"pip install --force-reinstall torch=={torch.version.partition('+')[0]}"
        if torch.reason.startswith("did not answer"):
            again = "give it more time: accel doctor --timeout 60"
        yield Remark(
            "torch-import", "torch", f"its import fails: {torch.reason}", _alternatives(again, library)
        )


def _alternatives(*advice: str) -> str:
    return ", or ".join(one for one in advice if one)


def _library(text: str) -> str:
    """Return the advice for a shared library that the loader does not find; empty for other errors."""
    missing = _MISSING_LIBRARY.search(text)
    name = (missing.group(1) or missing.group(2)) if missing else ""
    return f"put the folder of {name} in LD_LIBRARY_PATH (the vendor's set-up script does)" if name else ""


def _unmet(lack: Unmet) -> Remark:
    found = f"{lack.package} {lack.version} requires {lack.requirement}, found {lack.found or 'none'}"
    advice = pip_install(lack.requirement.partition(";")[0].strip())
    if lack.name == "torch" and lack.found and _too_old(Requirement(lack.requirement).specifier):
        # That torch would fail with accel: pip looks for a release of the package that fits the present one.
        release = lack.found.partition("+")[0]
        advice = (
            f"{pip_install(lack.package, f'torch=={release}', options='--upgrade')}; or pip uninstall {lack.package}: "
            f"the torch that it requires is older than what accel works with ({TRIED_TORCH})"
        )
    return Remark("requirement", lack.package, found, advice)


def _too_old(wanted: SpecifierSet) -> bool:
    """Return whether all wanted releases of torch are older than those that this package was tried with."""
    oldest = min(Version(tried.version) for tried in TRIED_TORCH if tried.operator == ">=")
    return any(
        one.operator in ("==", "<", "<=") and Version(one.version.removesuffix(".*")) < oldest
        for one in wanted
    )


def _deepspeed(facts: Facts) -> Iterator[Remark]:
    deepspeed = facts.deepspeed
    if deepspeed.in_range is False:
        found = f"{deepspeed.version} is outside {deepspeed.supported}, what accel-core {facts.core} supports"
        advice = f"pip install 'deepspeed{deepspeed.supported}', or {pip_install('accel-core', options='--upgrade')}"
        yield Remark("deepspeed-version", "deepspeed", found, advice)
    outcome = facts.outcomes.get("deepspeed")
    if outcome and outcome.error and facts.torch.imports and needs_a_run(facts.bridge, deepspeed):
        found = f"a program that imports it ends in {outcome.error}"
        own = "DeepSpeed chooses by itself here: " if not facts.bridge.on else ""
        repair = _library(outcome.error) or f"{own}run `python -c 'import deepspeed'` for the whole error"
        yield Remark("deepspeed-fails", "deepspeed", found, repair)
    elif deepspeed.in_range and facts.bridge.on and outcome != facts.outcomes.get("accel_core"):
        found = f"{deepspeed.version} chooses by itself: it needs more than accel-core {facts.core} has"
        advice = f"{pip_install('accel-core', options='--upgrade')}, or pip install 'deepspeed{TRIED}'"
        yield Remark("bridge-refused", "bridge", found, advice)
    if facts.bridge.repair:
        yield Remark("bridge-broken", "bridge", facts.bridge.reason, facts.bridge.repair)


def _candidate(candidate: Candidate, facts: Facts) -> Iterator[Remark]:
    skip = f"export {env.SKIP.name}={candidate.key}"
    if candidate.state is State.BROKEN and candidate.reason.startswith("[ACC-1"):
        found, _, advice = candidate.reason.rpartition("; ")  # the advice is the last part
        yield Remark("entry-point", candidate.label, found, advice)
    elif candidate.state is State.BROKEN and candidate.label in facts.stuck:
        found = f"{candidate.reason}; a run would fail in the same way"
        yield Remark("candidate-stuck", candidate.label, found, f"{skip} passes over it")
    elif candidate.state is State.BROKEN:
        repair = _library(candidate.error) or "repair or reinstall its runtime"
        advice = _alternatives(repair, f"{skip} to pass over it")
        yield Remark("candidate-broken", candidate.label, candidate.reason, advice)
    elif candidate.state is State.ABSENT and candidate.runtime and NO_PERMISSION in candidate.reason:
        advice = "add this user to the group of that file (`ls -l` names it), and log in again"
        yield Remark("device-permission", candidate.label, candidate.reason, advice)
    elif candidate.state is State.BLOCKED and candidate.devices:
        holder = facts.selection.request.claimed
        off = f"{_OFF} and " if facts.torch.claimed else ""
        advice = f"{off}{skip.replace(candidate.key, holder)}" if holder else "uninstall the other runtime"
        yield Remark("candidate-blocked", candidate.label, candidate.reason, advice)
    elif candidate.state in (State.CHOSEN, State.DEFERRED) and candidate.devices == 0:
        found = f"DS_ACCELERATOR names it, and no device is present: {candidate.reason}"
        advice = "nothing on a login node; elsewhere look at the device's driver, or unset DS_ACCELERATOR"
        yield Remark("no-device", candidate.label, found, advice)


def _selection(facts: Facts) -> Iterator[Remark]:
    error = facts.selection.decision.error
    if isinstance(error, InvalidEnvironment):
        yield Remark("environment", "selection", error.message, error.do)
    elif error is not None:
        yield Remark("selection", "selection", error.message, error.do)
    keys = {candidate.key for candidate in facts.explanation.candidates}
    unknown_keys = [key for key in facts.selection.request.skip if key not in keys]
    if unknown_keys:
        found = f"{env.SKIP.name} names {', '.join(unknown_keys)}, which no candidate here has"
        yield Remark("skip-unknown", "selection", found, f"correct {env.SKIP.name}, or unset it")
