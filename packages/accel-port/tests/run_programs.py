# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run programs one after another, each in a fork of this process, which has imported torch and DeepSpeed once.

`python run_programs.py FOLDER < PROGRAMS`; PROGRAMS is a JSON table, name to number of ranks. With two ranks or more
the forks have the variables that torchrun sets. Of a notebook the code cells are run. Prints a table, name to {status,
out, error}.
"""

import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import deepspeed.accelerator  # noqa: F401
import numpy as np  # noqa: F401

_LIMIT = 20_000  # characters
_SECONDS = 1200  # of a rank that waits for one that has failed


def main(folder: Path, programs: dict[str, int]) -> None:
    """Run all, and print what came of them."""
    results = {name: _run(folder / name, ranks) for name, ranks in programs.items()}
    json.dump(results, sys.stdout)


def _run(path: Path, ranks: int) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks)}
        children = []
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), **shared} if ranks > 1 else {}
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(error.fileno(), 2)
                os.environ.update(own)
                os.environ["MASTER_PORT"] = shared["MASTER_PORT"]
                _become(path)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        out.seek(0)
        error.seek(0)
        return {"status": max(statuses, key=abs), "out": out.read(_LIMIT), "error": error.read()[-_LIMIT:]}


def _become(path: Path) -> NoReturn:
    signal.alarm(_SECONDS)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    status: Any = 0
    try:
        if path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
            exec(code, {"__name__": "__main__"})
        else:
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
