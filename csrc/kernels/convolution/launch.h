// Launchers of convolution, convolution_input_grad and convolution_weight_grad.
#pragma once
#include "kernels/convolution/problem.h"

namespace aicf {

// Plain loops, for what no library takes and as the definition of the others.
Status convolution_cpu(const Convolution& c, const LaunchContext& ctx);
Status convolution_cuda(const Convolution& c, const LaunchContext& ctx);

// By cuDNN.
Status supports_cudnn(const OpDesc& op);
size_t cudnn_workspace(const OpDesc& op);
Status prepare_cudnn(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                     LaunchPointer* out);
Status choices_of_cudnn(const OpDesc& op, std::vector<std::string>* out);

}  // namespace aicf
