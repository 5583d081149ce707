# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In a child: `python -m accel_core.cli.doctor.confirm_one KEY [VARIANT]` asks the runtime of one candidate.

With `--construct` it makes the accelerator, by the very code of a run that was told DS_ACCELERATOR=KEY.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from accel_core import api, env
from accel_core.cli import child
from accel_core.errors import AccelError
from accel_core.selection.confirm import privateuse1_holder
from accel_core.selection.finding import Finding, State
from accel_core.selection.select import Candidates


def main() -> None:
    """Answer with the candidate's state, reason, devices and error; and who holds PrivateUse1 after it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("variant", nargs="?", default="")
    parser.add_argument("--construct", action="store_true")
    parser.add_argument("--answer", type=Path)
    args = parser.parse_args()
    candidates = Candidates(api.CURRENT.deepspeed)
    # A package that cannot be imported may claim the same key.
    able = [finding for finding in candidates.findings if finding.state is not State.BROKEN]
    finding = next((f for f in able if (f.key, f.variant) == (args.key, args.variant)), None)
    if finding is None:
        parser.error(f"no candidate {args.key} {args.variant}".rstrip())
    finding = _constructed(finding) if args.construct else candidates.confirm(finding)
    child.write(
        args.answer,
        state=finding.state.value,
        reason=finding.reason,
        devices=finding.devices,
        runtime=finding.runtime,
        error=finding.error,
        claimed=privateuse1_holder(),
    )
    child.leave()


def _constructed(finding: Finding) -> Finding:
    os.environ[env.DS_ACCELERATOR.name] = finding.key
    try:
        api.get_accelerator()
    except AccelError as error:
        _, selection = api.CURRENT.state()
        findings = selection.verdict.findings if selection else ()
        broken = [
            f for f in findings if (f.key, f.variant, f.state) == (finding.key, finding.variant, State.BROKEN)
        ]
        unknown = replace(finding, state=State.BROKEN, reason=error.what, error=str(error))
        return broken[0] if broken else unknown
    return finding.now(State.CHOSEN)


if __name__ == "__main__":
    main()
