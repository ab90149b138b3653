#include "runtime/code.h"

#include "bindings/bindings.h"
#include "kernels/gemm/tiles.h"
#include "runtime/cuda_headers.h"

namespace aicf::bindings {
namespace {

using PhaseRow = std::tuple<std::string, int64_t, int64_t, int, int>;

Phase make_phase(const PhaseRow& row) {
  const auto& [function, count, grain, threads, shared] = row;
  return {function, count, grain, threads, shared};
}

CodeSpec make_spec(const std::string& id, const std::vector<PhaseRow>& phases, const py::iterable& in_place,
                   size_t workspace) {
  CodeSpec spec;
  spec.id = id;
  for (const PhaseRow& row : phases) spec.phases.push_back(make_phase(row));
  for (const py::handle pair : in_place) spec.in_place.push_back(pair.cast<std::pair<size_t, size_t>>());
  spec.workspace = workspace;
  return spec;
}

CodePointer cpu_code(const std::string& id, const py::bytes& object, const std::vector<PhaseRow>& phases,
                     const py::iterable& in_place, size_t workspace, const std::vector<std::string>& called) {
  CodeSpec spec = make_spec(id, phases, in_place, workspace);
  const std::string bytes = object;
  CodePointer code;
  without_gil([&] { return load_cpu_code(std::move(spec), bytes, called, &code); });
  return code;
}

CodePointer cuda_code(const std::string& id, int sm, const py::bytes& image,
                      const std::vector<PhaseRow>& phases, const py::iterable& in_place, size_t workspace,
                      bool one_table, bool waits, const std::optional<PhaseRow>& together) {
  CodeSpec spec = make_spec(id, phases, in_place, workspace);
  if (together) spec.together = make_phase(*together);
  spec.one_table = one_table;
  spec.waits = waits;
  const std::string bytes = image;
  CodePointer code;
  without_gil([&] { return load_cuda_code(std::move(spec), sm, bytes, &code); });
  return code;
}

py::dict described(const ProductTile& tile) {
  py::dict result;
  result["header"] = tile.header;
  result["product"] = tile.product;
  result["format"] = tile.format;
  result["shape"] = tile.shape;
  result["rows"] = tile.rows;
  result["columns"] = tile.columns;
  result["threads"] = tile.threads;
  result["resident"] = tile.resident;
  result["shared"] = tile.shared;
  result["neighbours"] = tile.neighbours;
  return result;
}

py::dict tile_of_product(const std::string& dtype, int sm, int64_t m, int64_t n, int64_t batch, bool trans_a,
                         bool trans_b, bool allow_tf32, int64_t k) {
  ProductTile tile{};
  raise_if(product_tile(parse_dtype(dtype), sm, m, n, k, batch, trans_a, trans_b, allow_tf32, &tile));
  return described(tile);
}

py::list tiles_of_product(const std::string& dtype, int sm, int64_t n, int64_t k, bool trans_a, bool trans_b,
                          bool allow_tf32) {
  py::list result;
  for (const ProductTile& tile : product_tiles(parse_dtype(dtype), sm, n, k, trans_a, trans_b, allow_tf32))
    result.append(described(tile));
  return result;
}

}  // namespace

void bind_code(py::module_& m) {
  py::class_<KernelCode, std::shared_ptr<KernelCode>>(m, "Code")
      .def_static("cpu", &cpu_code, py::arg("id"), py::arg("object"), py::arg("phases"),
                  py::arg("in_place") = py::tuple(), py::arg("workspace") = 0,
                  py::arg("called") = py::tuple())
      .def_static("cuda", &cuda_code, py::arg("id"), py::arg("sm"), py::arg("image"), py::arg("phases"),
                  py::arg("in_place") = py::tuple(), py::arg("workspace") = 0, py::arg("one_table") = false,
                  py::arg("waits") = false, py::arg("together") = py::none())
      .def_property_readonly("id", &KernelCode::id)
      .def_property_readonly("target", [](const KernelCode& c) { return Target{c.device(), c.sm()}.str(); })
      .def_property_readonly("workspace", &KernelCode::workspace)
      .def_property_readonly("waits", &KernelCode::waits);
  m.def("loaded_cuda_images", &loaded_cuda_images);
  m.def("cuda_headers", &cuda_headers);
  m.def("product_tile", &tile_of_product, py::arg("dtype"), py::arg("sm"), py::arg("m"), py::arg("n"),
        py::arg("batch"), py::arg("trans_a"), py::arg("trans_b"), py::arg("allow_tf32") = false,
        py::arg("k") = 0);
  m.def("product_tiles", &tiles_of_product, py::arg("dtype"), py::arg("sm"), py::arg("n"), py::arg("k"),
        py::arg("trans_a"), py::arg("trans_b"), py::arg("allow_tf32") = false);
}

}  // namespace aicf::bindings
