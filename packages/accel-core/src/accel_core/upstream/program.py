# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that imports torch, then deepspeed, and gets the accelerator, as a user's program does.

The doctor runs its text in a child (`python -c`), because importing accel_core would register the hooks.
"""

import json
import os
import sys
import traceback
from pathlib import Path


def main(answer: Path) -> None:
    """Write the accelerator's class and name, or the error."""
    result = {"accelerator": "", "name": "", "error": "", "traceback": ""}
    try:
        import torch  # noqa: F401
        from deepspeed.accelerator import get_accelerator

        accelerator = get_accelerator()
        cls = type(accelerator)
        result.update(accelerator=f"{cls.__module__}:{cls.__qualname__}", name=str(accelerator._name))
    except BaseException as error:
        first = str(error).strip().partition("\n")[0]
        result.update(error=f"{type(error).__name__}: {first}", traceback=traceback.format_exc())
    draft = answer.with_suffix(".draft")
    draft.write_text(json.dumps(result), encoding="utf-8")
    draft.replace(answer)
    os._exit(0)  # a runtime that fails at exit does not change the result


if __name__ == "__main__":
    main(Path(sys.argv[sys.argv.index("--answer") + 1]))
