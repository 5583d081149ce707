// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What the emulated libraries share. Structs, codes and signatures of CANN come from the headers in torch_npu's wheel.
#pragma once

#include <acl/acl.h>

#include <cstddef>
#include <functional>
#include <string>

namespace emulated {

// Keeps the message for aclGetRecentErrMsg in this thread, and returns the code.
aclError fail(aclError code, const std::string& message);

// Queues work on a stream (null: the default stream of the thread's device). It runs later, on the stream's own thread,
// or is recorded if the stream is captured. What it returns is reported by the next synchronization.
// planted: the fault of this call; by default what `fault` says.
aclError submit(aclrtStream stream, const std::string& name, std::function<aclError()> work);
aclError submit(aclrtStream stream, const std::string& name, const std::string& planted, std::function<aclError()> work);

// The device of a stream; null: of this thread.
int device_of(aclrtStream stream);

// Why a kernel of the device cannot use this memory; empty if it can.
std::string unusable(const void* address, size_t bytes, int device);

// A fault that EMULATED_CANN_FAULTS plants: `name=kind` or `name=kind@3`, from the third call on; with commas.
//   refuse: an error at the call      late:  an error when the device gets there    wrong: NaN, or other bytes, as result
//   hang:   ends with a time-out      slow:  takes half a second                    dead:  the process is killed
// Counts a call of the name.
std::string fault(const std::string& name);

// A whole number from the environment.
long setting(const char* variable, long otherwise);

} // namespace emulated

#define CANN_API extern "C" __attribute__((visibility("default")))
