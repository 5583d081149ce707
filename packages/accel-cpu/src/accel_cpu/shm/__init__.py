# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of processes on one host over shared memory: the backend `shm` of torch.distributed."""
