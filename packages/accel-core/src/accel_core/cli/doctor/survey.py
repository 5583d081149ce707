# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine this environment: the steps of a run (discover, evidence, choose), with child processes that confirm."""

from __future__ import annotations

import platform
import sys
from contextlib import redirect_stdout
from dataclasses import replace

from accel_core.__about__ import __version__
from accel_core.cli import child, packages
from accel_core.cli.doctor import torch_check
from accel_core.cli.doctor.report import Facts
from accel_core.errors import InvalidEnvironment
from accel_core.selection.choose import Request, Step, Verdict, passed_over
from accel_core.selection.explanation import explained
from accel_core.selection.finding import Finding, State
from accel_core.selection.select import Candidates, Selection, request_from_environment, walk
from accel_core.upstream.backends import StockDeepSpeed

#: `import torch`, and what imports it, reads much from a cold disk: these get so many times the seconds.
PATIENCE = 6


class Children:
    """Confirms candidates and constructs accelerators in processes of their own; remembers the answers."""

    def __init__(self, seconds: float, autoload: bool, claimed: str) -> None:
        self._seconds = seconds
        self._environment = {} if autoload else {packages.AUTOLOAD: "0"}
        self._claimed = claimed
        self.answers: dict[str, Finding] = {}
        self.stuck: set[str] = set()

    def confirm(self, finding: Finding) -> tuple[Finding, str]:
        """The confirmed candidate, and who holds PrivateUse1 in a process that has come so far."""
        reply = self._ask(finding, self._seconds)
        failed = finding.now(State.BROKEN, f"its runtime {reply.failure}")
        answer = self._read(finding, reply, failed)
        self._claimed = self._claimed or reply.answer.get("claimed", "")
        self.answers[finding.label] = answer
        return answer, self._claimed

    def build(self, finding: Finding) -> Finding | str:
        """The key when the accelerator can be made, else the finding that says why not."""
        reply = self._ask(finding, self._seconds * PATIENCE, "--construct")
        failed = finding.now(
            State.BROKEN, f"its accelerator cannot be constructed: its process {reply.failure}"
        )
        answer = self._read(finding, reply, failed)
        return answer if answer.state is State.BROKEN else finding.key

    def _ask(self, finding: Finding, seconds: float, *options: str) -> child.Reply:
        environment = dict(self._environment)
        if finding.privateuse1 and self._claimed not in ("", finding.privateuse1):
            environment[packages.AUTOLOAD] = "0"  # what torch loads by itself would be in its way
        module = "accel_core.cli.doctor.confirm_one"
        return child.ask(module, finding.key, finding.variant, *options, seconds=seconds, **environment)

    def _read(self, finding: Finding, reply: child.Reply, failed: Finding) -> Finding:
        if reply.failure:
            self.stuck.add(finding.label)
            return replace(failed, error=reply.output)
        answer = reply.answer
        return replace(
            finding,
            state=State(answer["state"]),
            reason=answer["reason"],
            devices=answer["devices"],
            runtime=answer["runtime"],
            error=answer["error"],
        )


def examine(seconds: float) -> Facts:
    """All facts about a fresh process with this environment. Imports neither torch nor deepspeed here."""
    torch = torch_check.examine(seconds * PATIENCE)
    children = Children(seconds, torch.imports, torch.claimed)
    with redirect_stdout(sys.stderr):  # a vendor's record that prints must not get into the JSON
        candidates = Candidates(StockDeepSpeed())
        selection = _select(candidates, children, torch.claimed)
    findings = tuple(
        _completed(finding, selection.request, children) for finding in selection.verdict.findings
    )
    return Facts(
        python={
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        core=__version__,
        torch=torch,
        deepspeed=packages.deepspeed(),
        bridge=packages.bridge(),
        unmet=tuple(packages.unmet()),
        selection=selection,
        explanation=replace(explained(selection), findings=findings),
        stuck=frozenset(children.stuck),
    )


def _select(candidates: Candidates, children: Children, claimed: str) -> Selection:
    try:
        request = request_from_environment(StockDeepSpeed().keys())
    except InvalidEnvironment as error:
        return Selection(Request(), Verdict(Step.FAIL, None, tuple(candidates.findings), error=error))
    return walk(candidates, replace(request, claimed=claimed), children.confirm, children.build)


def _completed(finding: Finding, request: Request, children: Children) -> Finding:
    """The finding of the selection, with the answer of a candidate whose turn never came in it."""
    if finding.key != request.asked and finding.state not in (State.CHOSEN, State.DEFERRED):
        finding = passed_over(finding, request)
    waits = finding.state in (State.PENDING, State.OUTRANKED, State.BLOCKED, State.DEFERRED)
    if not waits or finding.devices is not None or finding.key in request.skip:
        return finding
    answer = children.answers.get(finding.label) or children.confirm(finding)[0]
    if finding.state is State.PENDING or (
        finding.state is State.OUTRANKED and answer.state is not State.PRESENT
    ):
        return answer
    if finding.state is State.BLOCKED:
        return replace(finding, devices=answer.devices)
    return replace(finding, devices=answer.devices, reason=f"{finding.reason}; {answer.reason}")
