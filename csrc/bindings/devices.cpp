#include "bindings/bindings.h"
#include "device/buffer.h"
#include "device/libraries/found.h"
#include "device/libraries/open.h"
#include "device/pool.h"
#include "kernels/common/cpu_blas.h"
#include "runtime/cpu_level.h"

namespace aicf::bindings {
namespace {

int device_count(const std::string& kind) {
  if (kind == "cpu") return 1;
  if (kind == "cuda") return cuda_device_count();
  raise_if(Status::invalid("devices are of kind cpu or cuda, got '" + kind + "'"));
  return 0;
}

}  // namespace

void bind_devices(py::module_& m) {
#ifdef AICF_WITH_CUDA
  m.attr("with_cuda") = true;
#else
  m.attr("with_cuda") = false;
#endif
  m.def("device_count", &device_count, py::arg("kind") = "cuda");
  m.def(
      "target_of", [](const std::string& device) { return device_named(device).target().str(); },
      py::arg("device"));
  m.def("find_libraries_in", &find_libraries_in, py::arg("folders"));
  m.def("libraries", [] {
    std::vector<std::tuple<std::string, std::string, size_t>> rows;
    for (const LibraryRow& row : kLibraries) rows.emplace_back(row.name, row.title, version_of(row.library));
    return rows;
  });
  m.def(
      "synchronize",
      [](const std::string& device, uintptr_t stream) {
        Device& d = device_named(device);
        Status status = Status::ok();
        {
          py::gil_scoped_release release;
          status = d.synchronize(as_stream(stream));
        }
        raise_if(status);
      },
      py::arg("device"), py::arg("stream") = 0);
  m.def(
      "memory_stats",
      [](const std::string& device) {
        const MemoryStats stats = memory_stats(device_named(device));
        py::dict result;
        result["allocations"] = stats.allocations;
        result["live_bytes"] = stats.live_bytes;
        return result;
      },
      py::arg("device"));
  m.def("threads", &pool_threads);
  m.def(
      "set_threads",
      [](py::handle n) {
        const int64_t threads = parse_int(n, "threads");
        without_gil([&] { return set_pool_threads(threads); });
      },
      py::arg("n"));
#ifdef AICF_NATIVE
  m.attr("native") = true;
#else
  m.attr("native") = false;
#endif
  m.def(
      "load_cpu_kernels",
      [](const std::string& path, const std::string& blas) { raise_if(load_cpu_kernels(path, blas)); },
      py::arg("path"), py::arg("blas"));
  m.def("load_blas", [](const std::string& path) { raise_if(load_blas(path)); }, py::arg("path"));
}

}  // namespace aicf::bindings
