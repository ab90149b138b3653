// The module `_C`: no kernels, no branch per operation, no shape inference. Its surface in types:
// aicf_mlir/_C.pyi.
#include "bindings/bindings.h"
#include "bindings/python_places.h"
#include "device/pool.h"
#include "kernels/common/cpu_parallel.h"
#include "op/registry.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Kernels, devices and the executor of AICF.";
  aicf::KernelRegistry::get();  // registered at import: a name used twice fails here
  aicf::cpu::use_threads(&aicf::run_in_pool);
  aicf::bindings::bind_devices(m);
  aicf::bindings::bind_registry(m);
  aicf::bindings::bind_calls(m);
  aicf::bindings::bind_code(m);
  aicf::bindings::bind_executor(m);
  aicf::bindings::bind_exchange(m);
  aicf::bindings::bind_watch(m);
  pybind11::module_ places =
      m.def_submodule("places", "What a step reads and writes of Python while it is traced.");
  if (aicf::python::add_functions(places.ptr()) < 0) throw pybind11::error_already_set();
}
