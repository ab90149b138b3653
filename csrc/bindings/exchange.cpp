// Collectives of the CPU are done by a function of Python, which knows the process group.
#include "kernels/collective/exchange.h"

#include "bindings/bindings.h"

namespace aicf::bindings {
namespace {

py::object& exchanger() {
  static auto* function = new py::object;  // never freed: a step may end after the interpreter
  return *function;
}

Status exchange_in_python(const Exchange& exchange) {
  const py::gil_scoped_acquire gil;
  if (!exchanger()) return Status::state("this process has no ranks to exchange with");
  try {
    const py::object why =
        exchanger()(exchange.group, reinterpret_cast<uintptr_t>(exchange.from),
                    reinterpret_cast<uintptr_t>(exchange.to), exchange.part, exchange.ranks);
    return why.is_none() ? Status::ok() : Status::state(py::str(why));
  } catch (const py::error_already_set& error) {
    return Status::state(error.what());
  }
}

}  // namespace

void bind_exchange(py::module_& m) {
  m.def(
      "use_exchange",
      [](const py::object& function) {
        exchanger() = function;
        use_exchange(&exchange_in_python);
      },
      py::arg("function"));
}

}  // namespace aicf::bindings
