# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an import could change in a process beside sys.modules, as plain data."""

import atexit
import gc
import hashlib
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from typing import Any


def take() -> dict[str, Any]:
    """Everything, by room and fact."""
    rooms = {"process": _process(), "logging": _logging(), "torch": _torch()}
    return {f"{room}: {fact}": value for room, facts in rooms.items() for fact, value in facts.items()}


def _process() -> dict[str, Any]:
    handlers = {str(number): repr(signal.getsignal(number)) for number in signal.valid_signals()}
    hooks = (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, warnings.showwarning)
    return {
        "environment": {name: value for name, value in os.environ.items() if "AUTOLOAD" not in name},
        "signals": {number: handler.partition(" at ")[0] for number, handler in handlers.items()},
        "start method": multiprocessing.get_start_method(allow_none=True),
        "hooks": [hook.__qualname__ for hook in hooks],
        "warnings": [str(filter_) for filter_ in warnings.filters],
        "path": sys.path,
        "folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL, None),
        "threads": threading.active_count(),
        "at exit": atexit._ncallbacks(),
        "garbage": [gc.isenabled(), gc.get_threshold()],
        "recursion": sys.getrecursionlimit(),
        "random": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
    }


def _logging() -> dict[str, Any]:
    loggers = {"root": logging.getLogger(), **logging.root.manager.loggerDict}
    return {
        name: [repr(handler) for handler in logger.handlers] + [logger.level]
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger) and (logger.handlers or logger.level)
    } | {"disabled": logging.root.manager.disable, "class": logging.getLoggerClass().__name__}


def _torch() -> dict[str, Any]:
    torch = sys.modules["torch"]
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "deterministic": [
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        ],
        "matmul": [torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32],
        "random": [torch.initial_seed(), hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()],
        "grad": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "autocast": [torch.is_autocast_enabled(), str(torch.get_autocast_dtype("cpu"))],
        "print": str(vars(torch._tensor_str.PRINT_OPTS)),
        "privateuse1": torch._C._get_privateuse1_backend_name(),
        "names": sorted(vars(torch)),
        "distributed": torch.distributed.is_available() and torch.distributed.is_initialized(),
    }
