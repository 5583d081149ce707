# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel bench`: the host's part of DeepSpeed on this machine, beside stock DeepSpeed and what the machine can do."""
