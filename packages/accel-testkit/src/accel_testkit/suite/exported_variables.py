# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variables that users set for a runtime or a collective library, and that ranks on other machines need as well."""

from __future__ import annotations

#: Without them a program of the same environment is not found, or another library is.
_PATHS = ("PATH", "LD_LIBRARY_PATH")
#: By the name of the backend of torch.distributed.
OF_BACKENDS: dict[str, tuple[str, ...]] = {
    "gloo": ("GLOO_SOCKET_IFNAME",),
    "nccl": ("NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT"),
    "hccl": ("HCCL_CONNECT_TIMEOUT",),
    "cncl": ("CNCL_LOG_LEVEL", "TORCH_CNCL_BLOCKING_WAIT"),
    "tccl": ("TCCL_LOG_LEVEL",),
}
#: By the vendor's key.
OF_VENDORS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS", "DNNL_MAX_CPU_ISA",
        "ONEDNN_MAX_CPU_ISA", "CCL_WORKER_COUNT", "FI_PROVIDER", "I_MPI_FABRICS", "MALLOC_ARENA_MAX",
        "LD_PRELOAD", "ACCEL_CPU_VISIBLE_DEVICES", "DS_ACCELERATOR", *_PATHS,
    ),
    "npu": (
        "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_LAUNCH_BLOCKING", "TORCH_HCCL_ZERO_COPY",
        "PYTORCH_NPU_ALLOC_CONF", "TASK_QUEUE_ENABLE", *_PATHS,
    ),
    "hpu": ("PT_HPU_LAZY_MODE", "HABANA_LOGS", "HCL_CPU_AFFINITY", "GC_KERNEL_PATH", "LOG_LEVEL_ALL", *_PATHS),
    "mlu": ("NEUWARE_HOME", "PYTORCH_MLU_ALLOC_CONF", "TORCH_MLU_ENABLE_CATCHING_MLUGRAPH_OP", *_PATHS),
    "sdaa": ("SDAA_LAUNCH_BLOCKING", "TORCH_SDAA_ALLOC_CONF", *_PATHS),
    "mps": ("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_ENABLE_MPS_FALLBACK"),
}  # fmt: skip
#: Variables of one process, one machine or one user: on another machine they are wrong.
OF_A_NODE = (
    "HOME", "HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "LOGNAME", "MASTER_ADDR", "MASTER_PORT", "OLDPWD", "PWD",
    "RANK", "SHELL", "SLURM_NODEID", "SLURM_PROCID", "SSH_CLIENT", "TMPDIR", "USER", "WORLD_SIZE", "DISPLAY",
)  # fmt: skip
