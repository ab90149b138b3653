// scatter_add: rows added to the rows that an index names, as the gradient of an embedding is.
#include "kernels/common/rows.h"
#include "kernels/scatter/launch.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x, index, src) -> (y)
Status check_scatter_add(const OpDesc& op) {
  const TensorDesc &x = op.in("x"), &index = op.in("index"), &src = op.in("src");
  AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(expect_rank(op, "x", x, 2));
  AICF_TRY(expect_dtype(op, "index", index, DType::I64));
  AICF_TRY(expect_rank(op, "index", index, 1));
  AICF_TRY(expect_tensor(op, "src", src, expected_tensor(x.dtype, {index.shape[0], x.shape[1]})));
  return expect_tensor(op, "y", op.outputs[0], x);
}

constexpr Prepare on_cpu = prepare_with<scatter_add_of, scatter_add_cpu>;
constexpr Prepare on_cuda = AICF_CUDA((prepare_with<scatter_add_of, scatter_add_cuda>));

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("scatter_add_cuda", "scatter_add", kSmAny, on_cuda, needs_dense),
    cpu_row("scatter_add_cpu", "scatter_add", on_cpu, needs_dense, scatter_add_cpu_workspace),
};

}  // namespace

ScatterAdd scatter_add_of(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  return {x.dtype,
          x.shape[0],
          x.shape[1],
          op.in("index").shape[0],
          x.data,
          op.in("index").ptr<const int64_t>(),
          op.in("src").data,
          op.outputs[0].data};
}

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{38,
                        "ScatterAdd",
                        "scatter_add",
                        "x, and src[i] added to its row index[i]; an index outside of x adds nothing",
                        {{"x"}, {"index"}, {"src"}},
                        {{"y"}},
                        {},
                        {{"y", "x"}},
                        "added in the order of src, in f32 (f64 for f64); each result rounded once",
                        check_scatter_add});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
