# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that imports torch, then deepspeed, and gets the accelerator, as a user's program does.

The doctor runs its text in a child (`python -c`), because importing accel_core would register the hooks.
"""

import os
import sys


def main(descriptor: int) -> None:
    """Send the accelerator's class, or the error, to the descriptor of a `Connection`."""
    result = {"accelerator": "", "error": ""}
    try:
        import torch  # noqa: F401
        from deepspeed.accelerator import get_accelerator

        cls = type(get_accelerator())
        result["accelerator"] = f"{cls.__module__}:{cls.__qualname__}"
    except BaseException as error:
        first = str(error).strip().partition("\n")[0]
        result["error"] = f"{type(error).__name__}: {first}"
    from multiprocessing.connection import Connection

    Connection(descriptor).send(result)
    os._exit(0)  # a runtime that fails at exit does not change the result


if __name__ == "__main__":
    main(int(sys.argv[-1]))
