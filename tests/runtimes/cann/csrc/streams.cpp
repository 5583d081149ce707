// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Part of libascendcl.so: streams, events, and graphs of captured work.
#include "state.h"

#include <algorithm>

using namespace emulated;

CANN_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  const int device = current();
  if (device < 0) return no_context();
  const Lock lock(driver().mutex);
  auto* const made = new Stream(++driver().last_stream, device);
  driver().streams.insert(made);
  *stream = made;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtCreateStream(aclrtStream* stream) {
  return aclrtCreateStreamWithConfig(stream, 0, 0);
}

CANN_API aclError aclrtDestroyStream(aclrtStream stream) {
  auto* const found = static_cast<Stream*>(stream);
  {
    const Lock lock(driver().mutex);
    if (!driver().streams.erase(found)) return fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such stream");
  }
  found->end();
  delete found;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return aclrtDestroyStream(stream);
}

CANN_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  if (!found->capture) return found->wait(milliseconds);
  found->capture->broken = "a stream was synchronized";
  return fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a stream cannot be synchronized while it is captured");
}

CANN_API aclError aclrtSynchronizeStream(aclrtStream stream) {
  return aclrtSynchronizeStreamWithTimeout(stream, -1);
}

CANN_API aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *status = found->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtStreamGetId(aclrtStream stream, int32_t* number) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *number = found->number;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  const int device = current();
  if (device < 0) return no_context();
  std::vector<Stream*> all{driver().devices[device]->usual.get()};
  {
    const Lock lock(driver().mutex);
    for (Stream* stream : driver().streams)
      if (stream->device == device) all.push_back(stream);
  }
  aclError first = ACL_SUCCESS;
  for (Stream* stream : all)
    if (const aclError error = stream->wait(milliseconds); error && !first) first = error;
  return first;
}

CANN_API aclError aclrtSynchronizeDevice() {
  return aclrtSynchronizeDeviceWithTimeout(-1);
}

CANN_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
  *event = new Event;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return aclrtCreateEventExWithFlag(event, flag);
}

CANN_API aclError aclrtDestroyEvent(aclrtEvent event) {
  delete static_cast<Event*>(event);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  const auto moments = static_cast<Event*>(event)->moments;
  Stream* const found = find(stream);
  if (!found) return no_stream();
  uint64_t ticket;
  {
    const Lock lock(moments->mutex);
    moments->capture = found->capture;
    ticket = ++moments->recorded;
  }
  return submit(stream, "aclrtRecordEvent", [moments, ticket] {
    {
      const Lock lock(moments->mutex);
      moments->reached = std::max(moments->reached, ticket);
      moments->time = nanoseconds();
    }
    moments->changed.notify_all();
    return ACL_SUCCESS;
  });
}

CANN_API aclError aclrtResetEvent(aclrtEvent, aclrtStream) {
  return ACL_SUCCESS;
}

CANN_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  Stream* const found = find(stream);
  if (!found) return no_stream();
  UniqueLock lock(moments->mutex);
  const uint64_t ticket = moments->recorded;
  if (moments->capture) {  // the stream joins the capture, whose work has one order
    found->capture = moments->capture;
    return ACL_SUCCESS;
  }
  lock.unlock();
  return submit(stream, "aclrtStreamWaitEvent", [moments, ticket] {
    return moments->wait(ticket);
  });
}

CANN_API aclError aclrtSynchronizeEvent(aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  return moments->wait(moments->recorded);
}

static bool reached(aclrtEvent event) {
  const auto moments = static_cast<Event*>(event)->moments;
  const Lock lock(moments->mutex);
  return moments->reached >= moments->recorded;
}

CANN_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  *status = reached(event) ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  *status = reached(event) ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent from, aclrtEvent to) {
  const auto begin = static_cast<Event*>(from)->moments, end = static_cast<Event*>(to)->moments;
  if (!begin->reached || !end->reached) return fail(ACL_ERROR_RT_PARAM_INVALID, "an event was not recorded");
  *milliseconds = static_cast<float>(static_cast<double>(static_cast<int64_t>(end->time) - static_cast<int64_t>(begin->time)) / 1e6);
  return ACL_SUCCESS;
}

CANN_API aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* microseconds) {
  *microseconds = static_cast<Event*>(event)->moments->time / 1000;
  return ACL_SUCCESS;
}

CANN_API aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void* argument) {
  return submit(stream, "aclrtLaunchHostFunc", [=] { return function(argument), ACL_SUCCESS; });
}

CANN_API aclError aclrtLaunchCallback(aclrtCallback function, void* argument, aclrtCallbackBlockType, aclrtStream stream) {
  return submit(stream, "aclrtLaunchCallback", [=] { return function(argument), ACL_SUCCESS; });
}

CANN_API aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  if (found->capture) return fail(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is captured already");
  found->capture = std::make_shared<Graph>();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* graph) {
  Stream* const found = find(stream);
  if (!found) return no_stream();
  *status = !found->capture                ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
          : found->capture->broken.empty() ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                           : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
  if (graph) *graph = found->capture.get();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* graph) {
  Stream* const found = find(stream);
  if (!found || !found->capture) return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured");
  const auto capture = found->capture;
  {
    const Lock lock(driver().mutex);
    for (Stream* each : driver().streams)
      if (each->capture == capture) each->capture = nullptr;
  }
  found->capture = nullptr;
  if (!capture->broken.empty()) return fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture is not valid: " + capture->broken);
  const Lock lock(driver().mutex);
  driver().graphs[capture.get()] = capture;
  *graph = capture.get();
  return ACL_SUCCESS;
}

CANN_API aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream stream) {
  std::shared_ptr<Graph> work;
  {
    const Lock lock(driver().mutex);
    const auto found = driver().graphs.find(graph);
    if (found == driver().graphs.end()) return fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such graph");
    work = found->second;
  }
  return submit(stream, "aclmdlRIExecuteAsync", [work] {
    aclError first = ACL_SUCCESS;
    for (const Work& each : work->work)
      if (const aclError error = each(); error && !first) first = error;
    return first;
  });
}

CANN_API aclError aclmdlRIDestroy(aclmdlRI graph) {
  const Lock lock(driver().mutex);
  return driver().graphs.erase(graph) ? ACL_SUCCESS : fail(ACL_ERROR_RT_PARAM_INVALID, "there is no such graph");
}

CANN_API aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode*) {
  return ACL_SUCCESS;
}
