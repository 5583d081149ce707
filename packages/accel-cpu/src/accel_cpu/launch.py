# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment variables of CPU ranks and their launcher."""

from __future__ import annotations

from accel_core.vendor import Variable

#: The devices that a launcher may use, as `0,1`. DeepSpeed's runner reads it as `--include localhost:0,1`.
VISIBLE_DEVICES = Variable(
    "ACCEL_CPU_VISIBLE_DEVICES", "", "Comma-separated CPU devices for the ranks of a launcher (default: all)."
)

BACKEND = Variable(
    "ACCEL_CPU_BACKEND",
    "",
    "Backend of the collectives: gloo, shm or ccl (default: ccl where oneCCL's bindings work, else shm).",
)

#: Prefixes of variables that ranks on other machines need: threads, oneCCL and its fabrics, gloo, preloaded
#: allocators, and the paths of programs and libraries.
EXPORTED = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "DNNL_",
    "ONEDNN_",
    "CCL_",
    "FI_",
    "I_MPI_",
    "GLOO_",
    "SHM_",
    "MALLOC_",
    "LD_LIBRARY",
    "LD_PRELOAD",
    "PATH",
    "ACCEL_",
    "DS_ACCELERATOR",
)
