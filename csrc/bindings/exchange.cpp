// Collectives of the CPU are done by a function of Python, which knows the process group; those of GPUs by
// communicators, which it has made.
#include "kernels/collective/exchange.h"

#include "bindings/bindings.h"
#include "kernels/collective/board.h"
#include "kernels/collective/communicators.h"

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
                    reinterpret_cast<uintptr_t>(exchange.to), exchange.part, exchange.ranks, exchange.apart);
    return why.is_none() ? Status::ok() : Status::state(py::str(why));
  } catch (const py::error_already_set& error) {
    return Status::state(error.what());
  }
}

CommunicatorPointer communicator(int device, int rank, int ranks) {
  CommunicatorPointer made;
  without_gil([&] { return make_communicator(device, rank, ranks, &made); });
  return made;
}

std::unique_ptr<Board> board(const std::string& path, int rank, const std::vector<int>& processes) {
  std::unique_ptr<Board> opened;
  raise_if(Board::open(path, rank, processes, &opened));
  return opened;
}

void exchange_by(Board& self, const py::buffer& given, const py::buffer& into, double seconds) {
  const py::buffer_info from = given.request(), to = into.request(true);
  const auto bytes = [](const py::buffer_info& each) {
    return static_cast<size_t>(each.size * each.itemsize);
  };
  if (bytes(to) != bytes(from) * static_cast<size_t>(self.ranks()))
    throw py::value_error("expected a place for what each rank gives");
  without_gil([&] { return self.exchange(from.ptr, to.ptr, bytes(from), seconds); });
}

}  // namespace

void bind_exchange(py::module_& m) {
  py::class_<Board>(m, "Board")
      .def(py::init(&board), py::arg("path"), py::arg("rank"), py::arg("processes"))
      .def_static("bytes", &Board::bytes, py::arg("ranks"))
      .def("exchange", &exchange_by, py::arg("given"), py::arg("into"), py::arg("seconds"));
  py::class_<Communicator, CommunicatorPointer>(m, "Communicator")
      .def(py::init(&communicator), py::arg("device"), py::arg("rank"), py::arg("ranks"))
      .def("address", [](const Communicator& self) { return py::bytes(self.address()); })
      .def(
          "open",
          [](Communicator& self, const std::vector<std::string>& addresses) {
            raise_if(self.open(addresses));
          },
          py::arg("addresses"))
      .def("use_mailboxes", &Communicator::use_mailboxes)
      .def(
          "use_library",
          [](Communicator& self, const py::bytes& id) {
            without_gil([&, text = std::string(id)] { return self.use_library(text); });
          },
          py::arg("id"))
      .def("abort", &Communicator::abort, py::call_guard<py::gil_scoped_release>())
      .def("check", [](const Communicator& self) { raise_if(self.state()); });
  m.def("communicator_id", [] {
    std::string id;
    raise_if(communicator_id(&id));
    return py::bytes(id);
  });
  m.def("use_communicators", [](const Communicators& those) {
    const Communicators before = communicators();
    communicators() = those;
    return before;
  });
  m.def(
      "use_exchange",
      [](const py::object& function) {
        exchanger() = function;
        use_exchange(&exchange_in_python);
      },
      py::arg("function"));
}

}  // namespace aicf::bindings
