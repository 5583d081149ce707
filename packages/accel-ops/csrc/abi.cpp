// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Describes the C interface of accel_ops.h as text. Python compares it with the ctypes declarations when it loads the
// library (accel_ops.abi). Only names are written here: sizes, offsets and types come from the compiler.
#include <cstdarg>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "accel_ops.h"
#include "accel_io.h"

namespace accel_ops {
namespace {

template <class T>
constexpr const char* type_name() {
  using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
  if constexpr (std::is_same_v<Pointee, accel_tensor_lists>) return "accel_tensor_lists*";
  else if constexpr (std::is_same_v<Pointee, accel_adam_options>)
    return std::is_pointer_v<T> ? "accel_adam_options*" : "accel_adam_options";
  else if constexpr (std::is_same_v<Pointee, accel_python>) return "accel_python*";
  else if constexpr (std::is_same_v<Pointee, accel_adam_arguments>) return "accel_adam_arguments*";
  else if constexpr (std::is_same_v<Pointee, accel_gradient>) return "accel_gradient*";
  else if constexpr (std::is_same_v<Pointee, accel_io_options>) return "accel_io_options*";
  else if constexpr (std::is_same_v<Pointee, accel_io_request>) return "accel_io_request*";
  else if constexpr (std::is_same_v<Pointee, accel_io_result>) return "accel_io_result*";
  else if constexpr (std::is_same_v<Pointee, accel_io_file>) return "accel_io_file*";
  else if constexpr (std::is_pointer_v<T>) return "pointer";
  else if constexpr (std::is_void_v<T>) return "void";
  else if constexpr (std::is_same_v<T, double>) return "double";
  else if constexpr (std::is_same_v<T, float>) return "float";
  else if constexpr (std::is_same_v<T, int64_t>) return "int64";
  else {
    static_assert(std::is_same_v<T, int32_t>, "name the type here and in accel_ops.abi");
    return "int32";
  }
}

struct Field {
  const char *name, *type;
  size_t offset, size, alignment;
};

#define FIELD(type, name)                                                             \
  Field {                                                                             \
    #name, type_name<decltype(type::name)>(), offsetof(type, name), sizeof(type::name), \
    alignof(decltype(type::name))                                                     \
  }

constexpr Field kTensorLists[] = {
    FIELD(accel_tensor_lists, tensors),    FIELD(accel_tensor_lists, sizes),
    FIELD(accel_tensor_lists, params),     FIELD(accel_tensor_lists, grads),
    FIELD(accel_tensor_lists, first),      FIELD(accel_tensor_lists, second),
    FIELD(accel_tensor_lists, copies),     FIELD(accel_tensor_lists, param_type),
    FIELD(accel_tensor_lists, grad_type),  FIELD(accel_tensor_lists, state_type),
    FIELD(accel_tensor_lists, copy_type),  FIELD(accel_tensor_lists, threads),
};
constexpr Field kAdamOptions[] = {
    FIELD(accel_adam_options, lr),           FIELD(accel_adam_options, beta1),
    FIELD(accel_adam_options, beta2),        FIELD(accel_adam_options, eps),
    FIELD(accel_adam_options, weight_decay), FIELD(accel_adam_options, grad_factor),
    FIELD(accel_adam_options, step),         FIELD(accel_adam_options, decoupled),
    FIELD(accel_adam_options, bias_correction),
};
constexpr Field kAdamArguments[] = {
    FIELD(accel_adam_arguments, param),      FIELD(accel_adam_arguments, grad),
    FIELD(accel_adam_arguments, first),      FIELD(accel_adam_arguments, second),
    FIELD(accel_adam_arguments, size),       FIELD(accel_adam_arguments, param_type),
    FIELD(accel_adam_arguments, grad_type),  FIELD(accel_adam_arguments, state_type),
    FIELD(accel_adam_arguments, threads),    FIELD(accel_adam_arguments, options),
};

constexpr Field kGradient[] = {
    FIELD(accel_gradient, grad),      FIELD(accel_gradient, accumulated),      FIELD(accel_gradient, destination),
    FIELD(accel_gradient, size),      FIELD(accel_gradient, grad_type),        FIELD(accel_gradient, destination_type),
    FIELD(accel_gradient, add),       FIELD(accel_gradient, threads),
};

constexpr Field kPython[] = {
    FIELD(accel_python, new_function), FIELD(accel_python, call_objects), FIELD(accel_python, vectorcall_method),
    FIELD(accel_python, inc_ref), FIELD(accel_python, dec_ref), FIELD(accel_python, err_clear),
    FIELD(accel_python, err_occurred), FIELD(accel_python, dict_item), FIELD(accel_python, tuple_item),
    FIELD(accel_python, tuple_size), FIELD(accel_python, list_size), FIELD(accel_python, list_item),
    FIELD(accel_python, long_from_long), FIELD(accel_python, long_as_longlong), FIELD(accel_python, float_as_double),
    FIELD(accel_python, float_from_double), FIELD(accel_python, bytes_new), FIELD(accel_python, bytes_data),
    FIELD(accel_python, save_thread), FIELD(accel_python, restore_thread), FIELD(accel_python, int_type),
    FIELD(accel_python, float_type), FIELD(accel_python, list_type), FIELD(accel_python, tensor_type),
    FIELD(accel_python, parameter_type), FIELD(accel_python, true_object), FIELD(accel_python, false_object),
    FIELD(accel_python, none), FIELD(accel_python, call_name), FIELD(accel_python, is_neg),
    FIELD(accel_python, get_num_threads), FIELD(accel_python, dltensor_from),
};

constexpr Field kIoOptions[] = {
    FIELD(accel_io_options, block_size), FIELD(accel_io_options, fault_seed), FIELD(accel_io_options, engine),
    FIELD(accel_io_options, depth),      FIELD(accel_io_options, workers),    FIELD(accel_io_options, fault_rate),
};
constexpr Field kIoRequest[] = {
    FIELD(accel_io_request, data),  FIELD(accel_io_request, size),
    FIELD(accel_io_request, offset), FIELD(accel_io_request, fd),
    FIELD(accel_io_request, flags), FIELD(accel_io_request, memory_alignment),
    FIELD(accel_io_request, offset_alignment),
};
constexpr Field kIoResult[] = {
    FIELD(accel_io_result, done), FIELD(accel_io_result, error_offset), FIELD(accel_io_result, error),
    FIELD(accel_io_result, reserved),
};
constexpr Field kIoFile[] = {
    FIELD(accel_io_file, size), FIELD(accel_io_file, memory_alignment), FIELD(accel_io_file, offset_alignment),
    FIELD(accel_io_file, mode), FIELD(accel_io_file, reserved),
};

// Initializes a field of any type, to count the fields of an aggregate.
struct Anything {
  template <class T>
  operator T() const;
};

template <class T, class... Values>
auto accepts(int) -> decltype(T{std::declval<Values>()...}, std::true_type{});
template <class T, class...>
std::false_type accepts(...);

template <class T, class... Values>
constexpr size_t field_count() {
  if constexpr (decltype(accepts<T, Values..., Anything>(0))::value) return field_count<T, Values..., Anything>();
  else return sizeof...(Values);
}

constexpr size_t aligned(size_t offset, size_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// Whether the table names every field of T in order, and each lies where natural alignment, which ctypes uses, puts it.
template <class T, size_t N>
constexpr bool laid_out(const Field (&fields)[N]) {
  size_t end = 0;
  for (const Field& field : fields) {
    if (field.offset != aligned(end, field.alignment)) return false;
    end = field.offset + field.size;
  }
  return std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T> && field_count<T>() == N &&
         sizeof(T) == aligned(end, alignof(T));
}

static_assert(laid_out<accel_tensor_lists>(kTensorLists), "kTensorLists lacks a field, or the struct is packed");
static_assert(laid_out<accel_adam_options>(kAdamOptions), "kAdamOptions lacks a field, or the struct is packed");
static_assert(laid_out<accel_adam_arguments>(kAdamArguments), "kAdamArguments lacks a field, or the struct is packed");
static_assert(laid_out<accel_gradient>(kGradient), "kGradient lacks a field, or the struct is packed");

static_assert(laid_out<accel_python>(kPython), "kPython lacks a field, or the struct is packed");
static_assert(laid_out<accel_io_options>(kIoOptions), "kIoOptions lacks a field, or the struct is packed");
static_assert(laid_out<accel_io_request>(kIoRequest), "kIoRequest lacks a field, or the struct is packed");
static_assert(laid_out<accel_io_result>(kIoResult), "kIoResult lacks a field, or the struct is packed");
static_assert(laid_out<accel_io_file>(kIoFile), "kIoFile lacks a field, or the struct is packed");

// Appends to a buffer of limited size and counts what the whole text needs.
class Text {
 public:
  Text(char* text, int32_t size) : text_(text), size_(size) {}

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list values;
    va_start(values, format);
    const bool fits = length_ < size_;
    const size_t left = fits ? static_cast<size_t>(size_ - length_) : 0;
    length_ += std::vsnprintf(fits ? text_ + length_ : nullptr, left, format, values);
    va_end(values);
  }

  int32_t length() const { return length_; }

 private:
  char* text_;
  int32_t size_, length_ = 0;
};

template <size_t N>
void add_struct(Text& text, const char* name, size_t size, const Field (&fields)[N]) {
  text.add("struct %s: %zu bytes\n", name, size);
  for (const Field& field : fields) text.add("field %s.%s: %s at %zu\n", name, field.name, field.type, field.offset);
}

template <class Result, class... Arguments>
void add_function(Text& text, const char* name, Result (*)(Arguments...)) {
  text.add("function %s: %s(", name, type_name<Result>());
  [[maybe_unused]] const char* separator = "";
  ((text.add("%s%s", separator, type_name<Arguments>()), separator = ", "), ...);
  text.add(")\n");
}

void add_constants(Text& text) {
#define CONSTANT(name) text.add("constant %s: %d\n", #name, static_cast<int>(name))
  CONSTANT(ACCEL_ABI_VERSION);
  CONSTANT(ACCEL_F32);
  CONSTANT(ACCEL_BF16);
  CONSTANT(ACCEL_F16);
  CONSTANT(ACCEL_OK);
  CONSTANT(ACCEL_BAD_TYPE);
  CONSTANT(ACCEL_BAD_LEVEL);
  CONSTANT(ACCEL_NO_MEMORY);
  CONSTANT(ACCEL_OVERLAP);
  CONSTANT(ACCEL_PYTHON_ADAM_UPDATE);
  CONSTANT(ACCEL_PYTHON_PACK);
  CONSTANT(ACCEL_PYTHON_ADVANCE);
  CONSTANT(ACCEL_IO_URING);
  CONSTANT(ACCEL_IO_THREADS);
  CONSTANT(ACCEL_IO_WRITE);
  CONSTANT(ACCEL_IO_DIRECT);
  CONSTANT(ACCEL_IO_RESERVE);
}

void add_functions(Text& text) {
#define FUNCTION(name) add_function(text, #name, &name)
  FUNCTION(accel_adam_single_tensor);
  FUNCTION(accel_adam);
  FUNCTION(accel_adam_rollback);
  FUNCTION(accel_adagrad);
  FUNCTION(accel_lion);
  FUNCTION(accel_sum_of_squares);
  FUNCTION(accel_copy_gradient);
  FUNCTION(accel_zero);
  FUNCTION(accel_python_function);
  FUNCTION(accel_triad);
  FUNCTION(accel_level);
  FUNCTION(accel_best_level);
  FUNCTION(accel_set_level);
  FUNCTION(accel_has_openmp);
  FUNCTION(accel_abi_version);
  FUNCTION(accel_abi_description);
  FUNCTION(accel_io_open);
  FUNCTION(accel_io_submit);
  FUNCTION(accel_io_wait);
  FUNCTION(accel_io_forget);
  FUNCTION(accel_io_progress);
  FUNCTION(accel_io_cancel);
  FUNCTION(accel_io_pause);
  FUNCTION(accel_io_resume);
  FUNCTION(accel_io_close);
  FUNCTION(accel_io_abandon);
  FUNCTION(accel_io_run);
  FUNCTION(accel_io_inspect);
}

} // namespace
} // namespace accel_ops

int32_t accel_abi_version() {
  return ACCEL_ABI_VERSION;
}

int32_t accel_abi_description(char* buffer, int32_t size) {
  using namespace accel_ops;
  Text text(buffer, size);
  add_constants(text);
  add_struct(text, "accel_tensor_lists", sizeof(accel_tensor_lists), kTensorLists);
  add_struct(text, "accel_adam_options", sizeof(accel_adam_options), kAdamOptions);
  add_struct(text, "accel_adam_arguments", sizeof(accel_adam_arguments), kAdamArguments);
  add_struct(text, "accel_gradient", sizeof(accel_gradient), kGradient);
  add_struct(text, "accel_python", sizeof(accel_python), kPython);
  add_struct(text, "accel_io_options", sizeof(accel_io_options), kIoOptions);
  add_struct(text, "accel_io_request", sizeof(accel_io_request), kIoRequest);
  add_struct(text, "accel_io_result", sizeof(accel_io_result), kIoResult);
  add_struct(text, "accel_io_file", sizeof(accel_io_file), kIoFile);
  add_functions(text);
  return text.length();
}
