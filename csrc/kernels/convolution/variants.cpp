// convolution and its gradients: what they accept, and the kernels that run them.
#include "kernels/common/rows.h"
#include "kernels/convolution/groups.h"
#include "kernels/convolution/launch.h"
#include "kernels/gemm/problem.h"  // kAct, kAllowTF32
#include "op/registry.h"

namespace aicf {
namespace {

// `a` and `b` are two of x, w and y; the third is the result, of `size` in its spatial dimensions.
struct Shapes {
  std::vector<int64_t> spatial;
  int64_t first, channels;  // images or outputs, and the others
};

Shapes shapes_of(const TensorDesc& t, bool channels_last) {
  Shapes s;
  s.first = t.shape[0];
  s.channels = t.shape[channels_last ? t.rank - 1 : 1];
  for (int d = 0; d < t.rank - 2; ++d) s.spatial.push_back(t.shape[d + (channels_last ? 1 : 2)]);
  return s;
}

TensorDesc tensor_of(DType dtype, const Shapes& s, bool channels_last) {
  std::vector<int64_t> shape{s.first};
  if (!channels_last) shape.push_back(s.channels);
  shape.insert(shape.end(), s.spatial.begin(), s.spatial.end());
  if (channels_last) shape.push_back(s.channels);
  return expected_tensor(dtype, shape);
}

Status check_numbers(const OpDesc& op, int rank) {
  const auto expect = [&](const Attr<std::vector<int64_t>>& attr, int64_t least) {
    const std::vector<int64_t>& numbers = op.attrs.get(attr);
    if (static_cast<int>(numbers.size()) != rank)
      return refuse(op, attr.name, ": expected ", rank, " numbers, got ", numbers.size());
    for (const int64_t number : numbers)
      if (number < least)
        return refuse(op, attr.name, ": expected numbers from ", least, " on, got ", number);
    return Status::ok();
  };
  AICF_TRY(expect(kStride, 1));
  AICF_TRY(expect(kDilation, 1));
  AICF_TRY(expect(kLow, 0));
  return expect(kSize, 0);
}

// The operands `a` and `b`, of equal type and rank, and numbers for 1 to 3 spatial dimensions.
Status check_operands(const OpDesc& op, const char* a, const char* b) {
  AICF_TRY(expect_float(op, a, op.in(a)));
  AICF_TRY(expect_dtype(op, b, op.in(b), op.in(a).dtype));
  const int rank = op.in(a).rank;
  if (rank < 3 || rank > kMostSpatial + 2)
    return refuse(op, a, ": expected rank 3 to 5, got ", op.in(a).str());
  AICF_TRY(expect_rank(op, b, op.in(b), rank));
  if (op.attrs.get(kAllowTF32) && op.in(a).dtype != DType::F32)
    return refuse(op, "allow_tf32: expected operands of f32, got ", dtype_name(op.in(a).dtype));
  if (op.attrs.get(kGroups) < 1) return refuse(op, "groups: expected 1 or more, got ", op.attrs.get(kGroups));
  return check_numbers(op, rank - 2);
}

Status check_forward(const OpDesc& op) {
  AICF_TRY(check_operands(op, "x", "w"));
  const bool last = op.attrs.get(kChannelsLast);
  const Shapes x = shapes_of(op.in("x"), last), w = shapes_of(op.in("w"), last);
  const int64_t groups = op.attrs.get(kGroups);
  if (w.channels * groups != x.channels || w.first % groups != 0)
    return refuse(op, "w: expected ", x.channels, " channels in ", groups, " groups, got ", op.in("w").str());
  if (op.has_in("bias"))
    AICF_TRY(expect_tensor(op, "bias", op.in("bias"), expected_tensor(op.in("x").dtype, {w.first})));
  const Act act = op.attrs.get(kAct);
  if (act != Act::None && act != Act::Relu)
    return refuse(op, "act: expected none or relu, got ", names_of(act)[static_cast<size_t>(act)]);
  const Shapes y{op.attrs.get(kSize), x.first, w.first};
  return expect_tensor(op, "y", op.out("y"), tensor_of(op.in("x").dtype, y, last));
}

Status check_input_grad(const OpDesc& op) {
  AICF_TRY(check_operands(op, "dy", "w"));
  const bool last = op.attrs.get(kChannelsLast);
  const Shapes dy = shapes_of(op.in("dy"), last), w = shapes_of(op.in("w"), last);
  const int64_t groups = op.attrs.get(kGroups);
  if (w.first != dy.channels || w.first % groups != 0)
    return refuse(op, "w: expected ", dy.channels, " outputs in ", groups, " groups, got ", op.in("w").str());
  const Shapes dx{op.attrs.get(kSize), dy.first, w.channels * groups};
  return expect_tensor(op, "dx", op.out("dx"), tensor_of(op.in("dy").dtype, dx, last));
}

Status check_weight_grad(const OpDesc& op) {
  AICF_TRY(check_operands(op, "x", "dy"));
  const bool last = op.attrs.get(kChannelsLast);
  const Shapes x = shapes_of(op.in("x"), last), dy = shapes_of(op.in("dy"), last);
  const int64_t groups = op.attrs.get(kGroups);
  if (dy.first != x.first || x.channels % groups != 0 || dy.channels % groups != 0)
    return refuse(op, "dy: expected ", x.first, " images, and channels in ", groups, " groups, got x ",
                  op.in("x").str(), " and dy ", op.in("dy").str());
  const Shapes dw{op.attrs.get(kSize), dy.channels, x.channels / groups};
  return expect_tensor(op, "dw", op.out("dw"), tensor_of(op.in("x").dtype, dw, last));
}

template <DType dtype, bool tf32 = false>
Status supports_cudnn_of(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  if (tf32 && !op.attrs.get(kAllowTF32)) return decline("needs allow_tf32");
  return supports_cudnn(op);
}

template <DType dtype>
Status supports_groups_of(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  return supports_groups(op);
}

// With several channels or outputs in a group the library has no fast engine. With one of each, in 16 bits on
// an H200: its gradient of x takes 0.9 to 3 times our time; its forward 0.6 to 0.9, but 1 to 10 times for
// large kernels and for strides without one; its gradient of w 0.4 to 1.6 times, but 0.8 to 62 with a stride.
// In f32 nothing was measured.
Status prefers_groups(const OpDesc& op) {
  constexpr int64_t kLarge = 25;  // positions of a kernel up to which the library's forward engine is faster
  const Convolution c = convolution_of(op);
  if (c.group_channels() > 1 || c.group_outputs() > 1) return Status::ok();
  if (c.dtype == DType::F32) return decline("is not taken for a channel and an output of a group in f32");
  const int64_t positions = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const bool strided = c.stride[0] > 1 || c.stride[1] > 1 || c.stride[2] > 1;
  const bool is_faster =
      c.direction == Convolves::InputGradient ||
      (c.direction == Convolves::Forward ? positions > kLarge || (strided && positions == 1)
                                         : strided || positions == 1);
  return is_faster ? Status::ok() : decline("is not taken where the library is faster");
}

// What reads vectors of channels: of images with channels last, in f32.
Status supports_vectors(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, DType::F32));
  if (has_epilogue(op)) return decline("needs no bias and no act");
  return op.attrs.get(kChannelsLast) ? Status::ok() : decline("needs channels_last");
}

// Groups of fewer channels leave most of a vector empty.
constexpr int64_t kLeastOfGroup = 8;

Status supports_products(const OpDesc& op) {
  AICF_TRY(supports_vectors(op));
  const Convolution c = convolution_of(op);
  if (c.groups == 1 || std::min(c.group_channels(), c.group_outputs()) >= kLeastOfGroup) return Status::ok();
  return decline("needs ", kLeastOfGroup, " channels and outputs in each group, got ", c.group_channels(),
                 " and ", c.group_outputs());
}

Status supports_depthwise(const OpDesc& op) {
  AICF_TRY(supports_vectors(op));
  const Convolution c = convolution_of(op);
  if (c.groups > 1 && c.channels == c.groups && c.outputs == c.groups) return Status::ok();
  return decline("needs groups of one channel and one output");
}

#define AICF_CUDNN_ROW(op, type, supported)                                                               \
  choosing(library_row(Library::Cudnn, op type "_cudnn", op, kSmAny, AICF_CUDA(prepare_cudnn), supported, \
                       prefers_cudnn, cudnn_workspace),                                                   \
           AICF_CUDA(choices_of_cudnn))
#define AICF_GROUPS_ROW(op, type, dtype, prepare, workspace)                                               \
  preferring(                                                                                              \
      cuda_row(op type "_groups", op, kSmAny, AICF_CUDA((prepare)), supports_groups_of<dtype>, workspace), \
      prefers_groups)
#define AICF_GROUPS_ROWS(op, prepare, workspace)                     \
  AICF_GROUPS_ROW(op, "_f16", DType::F16, prepare, workspace),       \
      AICF_GROUPS_ROW(op, "_bf16", DType::BF16, prepare, workspace), \
      AICF_GROUPS_ROW(op, "_f32", DType::F32, prepare, workspace)
#define AICF_WINDOWS_OF_GROUPS(op) \
  AICF_GROUPS_ROWS(op, (prepare_with<group_windows_of, group_windows>), nullptr)
#define AICF_CONVOLUTION_ROWS(op, depthwise, products, workspace)                                    \
  AICF_CUDNN_ROW(op, "_f16", supports_cudnn_of<DType::F16>),                                         \
      AICF_CUDNN_ROW(op, "_bf16", supports_cudnn_of<DType::BF16>),                                   \
      AICF_CUDNN_ROW(op, "_tf32", (supports_cudnn_of<DType::F32, true>)),                            \
      AICF_CUDNN_ROW(op, "_f32", supports_cudnn_of<DType::F32>),                                     \
      cuda_row(op "_naive", op, kSmAny, AICF_CUDA((prepare_with<convolution_of, convolution_cuda>)), \
               needs_dense),                                                                         \
      cpu_row(op "_cpu_depthwise", op, prepare_with<convolution_of, depthwise>, supports_depthwise,  \
              convolution_depthwise_workspace),                                                      \
      cpu_row(op "_cpu_products", op, products, supports_products, workspace),                       \
      cpu_row(op "_cpu", op, prepare_with<convolution_of, convolution_cpu>)

constexpr Prepare by_windows = prepare_with<window_products_of, convolution_products>;
constexpr Prepare weights_by_windows = prepare_with<convolution_of, convolution_weight_products>;
constexpr KernelVariant kVariants[] = {
    AICF_WINDOWS_OF_GROUPS("convolution"),
    AICF_CONVOLUTION_ROWS("convolution", convolution_depthwise, by_windows, convolution_products_workspace),
    AICF_WINDOWS_OF_GROUPS("convolution_input_grad"),
    AICF_CONVOLUTION_ROWS("convolution_input_grad", convolution_depthwise, by_windows,
                          convolution_products_workspace),
    AICF_GROUPS_ROWS("convolution_weight_grad", (prepare_with<group_weights_of, group_weights>),
                     group_weights_workspace),
    AICF_CONVOLUTION_ROWS("convolution_weight_grad", convolution_depthwise_weights, weights_by_windows,
                          convolution_weight_products_workspace)};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  const std::vector<AttrRow> attrs{required(kStride),   required(kDilation), required(kLow),
                                   required(kSize),     optional(kGroups),   optional(kChannelsLast),
                                   optional(kAllowTF32)};
  std::vector<AttrRow> of_forward = attrs;
  of_forward.push_back(optional(kAct));
  const char* numerics = "in f32 (f64 for f64; plain loops on the CPU always f64), rounded once";
  registry.add(OpSchema{
      53,
      "Convolution",
      "convolution",
      "y[n, o] at each window of x[n]: act of the sum of its elements times w[o] [+ bias[o]]; element "
      "i, window o and position k belong together where i = o * stride + k * dilation - low",
      {{"x"}, {"w"}, maybe("bias")},
      {{"y"}},
      of_forward,
      {},
      numerics,
      check_forward});
  registry.add(OpSchema{54,
                        "ConvolutionInputGrad",
                        "convolution_input_grad",
                        "the gradient of a convolution with respect to x: a transposed convolution of dy",
                        {{"dy"}, {"w"}},
                        {{"dx"}},
                        attrs,
                        {},
                        numerics,
                        check_input_grad});
  registry.add(OpSchema{55,
                        "ConvolutionWeightGrad",
                        "convolution_weight_grad",
                        "the gradient of a convolution with respect to w",
                        {{"x"}, {"dy"}},
                        {{"dw"}},
                        attrs,
                        {},
                        numerics,
                        check_weight_grad});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
