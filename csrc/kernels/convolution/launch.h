// Launchers of convolution, convolution_input_grad and convolution_weight_grad.
#pragma once
#include "kernels/convolution/problem.h"

namespace aicf {

// Plain loops, for what no library takes and as the definition of the others.
Status convolution_cpu(const Convolution& c, const LaunchContext& ctx);
Status convolution_cuda(const Convolution& c, const LaunchContext& ctx);
// What is left to do where y has the sums.
Status convolution_epilogue_cuda(const Convolution& c, const LaunchContext& ctx);

// f32 on the CPU, channels last: as products of windows and weights, the gradient of w as one of dy and
// windows; and where each group has one channel and one output, a vector of channels at a time.
size_t convolution_products_workspace(const OpDesc& op);
struct WindowProducts;  // how it is divided
std::shared_ptr<const WindowProducts> window_products_of(const OpDesc& op);
Status convolution_products(const std::shared_ptr<const WindowProducts>& products, const LaunchContext& ctx);
size_t convolution_weight_products_workspace(const OpDesc& op);
Status convolution_weight_products(const Convolution& c, const LaunchContext& ctx);
size_t convolution_depthwise_workspace(const OpDesc& op);
Status convolution_depthwise(const Convolution& c, const LaunchContext& ctx);
Status convolution_depthwise_weights(const Convolution& c, const LaunchContext& ctx);

// By cuDNN.
Status supports_cudnn(const OpDesc& op);
Status prefers_cudnn(const OpDesc& op);
size_t cudnn_workspace(const OpDesc& op);
Status prepare_cudnn(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                     LaunchPointer* out);
Status choices_of_cudnn(const OpDesc& op, std::vector<std::string>* out);

}  // namespace aicf
