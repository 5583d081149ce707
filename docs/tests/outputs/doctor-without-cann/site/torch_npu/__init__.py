# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")
