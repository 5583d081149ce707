// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The driver's C interface, in the shape that most vendors give it. driver.cpp pretends two cards; on
// hardware this header is the vendor's own, and driver.cpp does not exist.
#pragma once

#include <cstddef>

struct acme_memory {
  size_t used, peak, total;  // bytes
};

int acme_device_count();  // the cards that ACME_VISIBLE_DEVICES names; all without it
void* acme_malloc(int device, size_t bytes);  // a device address; nullptr when the device is full
void acme_free(int device, void* data, size_t bytes);
acme_memory acme_memory_of(int device);
void acme_reset_peak(int device);

// Addresses of a device and of the host in any combination; done when the call returns.
void acme_copy(void* to, const void* from, size_t bytes);
void acme_fill(void* data, const void* value, size_t width, size_t count);

struct acme_adamw {
  double lr, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};
// One AdamW step on float32 vectors of a device.
void acme_adamw_step(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, size_t count,
                     const acme_adamw& how);
