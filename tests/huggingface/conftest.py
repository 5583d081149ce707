# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the programs of these tests print."""

import json
from typing import Any

from shared.children import on_device


def trained(key: str, *command: object, ranks: int | None = None, **options: Any) -> dict[str, Any]:
    """Return what a program reports on a device; None: it is started without torchrun."""
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}") if ranks else ()
    done = on_device(key, *launcher, *command, **options)
    (line,) = (line for line in done.out.splitlines() if line.startswith('{"losses"'))
    answer: dict[str, Any] = json.loads(line)
    return answer
