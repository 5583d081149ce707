// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A program of the wheel's build: compiles a header with SYCL kernels by libsycl's own compiler, and saves the SPIR-V.
//   save_spirv <header> <folder of modules> <option of the compiler>...
// It needs an OpenCL device, which is asked for the SPIR-V that it was given: intel-opencl-rt, on any CPU.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <CL/cl.h>
#include <sycl/sycl.hpp>

namespace extension = sycl::ext::oneapi::experimental;

namespace {

std::string spirv_of(cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_IL, 0, nullptr, &size) != CL_SUCCESS || !size)
    throw std::runtime_error("the driver has no SPIR-V of the program");
  std::string text(size, '\0');
  if (clGetProgramInfo(program, CL_PROGRAM_IL, size, text.data(), nullptr) != CL_SUCCESS)
    throw std::runtime_error("the driver does not give the SPIR-V of the program");
  return text;
}

void save(const std::string& header, const std::string& folder, const std::vector<std::string>& options) {
  const sycl::context context{sycl::device{sycl::cpu_selector_v}};
  const std::string text = "#include \"" + header + "\"\n";
  auto source = extension::create_kernel_bundle_from_source(context, extension::source_language::sycl, text);
  const auto bundle = extension::build(source, extension::properties{extension::build_options{options}});
  int number = 0;
  for (cl_program program : sycl::get_native<sycl::backend::opencl>(bundle)) {
    std::ofstream file(folder + "/" + std::to_string(number++) + ".spv", std::ios::binary);
    file << spirv_of(program);
    if (!file.flush()) throw std::runtime_error("the SPIR-V cannot be written");
  }
}

} // namespace

int main(int count, char** arguments) {
  try {
    save(arguments[1], arguments[2], {arguments + 3, arguments + count});
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  std::_Exit(0); // the driver's own end takes seconds, and has been seen to fail
}
