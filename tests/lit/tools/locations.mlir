// Lines and layers are read, handed on by every pass, printed, and read again.
// RUN: aicf-opt %s --autodiff --print-debuginfo | filecheck %s --check-prefix=GRAD
// RUN: aicf-opt %s --lower --fuse --select-kernels --bufferize --print-debuginfo | filecheck %s --check-prefix=PLAN
// RUN: aicf-opt %s --stage plan --print-debuginfo | aicf-opt - --print-debuginfo | filecheck %s --check-prefix=PLAN

// GRAD:      %h = nn.linear %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
// GRAD-NEXT:   loc("encoder.3.attn: Linear"("model.py":12:1))
// GRAD-NEXT: %a = nn.relu %h : tensor<2x4xf32> loc("encoder.3: Block"("model.py":12:5))
// GRAD:      %da = nn.mse_loss_grad
// GRAD-NEXT:   loc("loss.py":3:1)
// GRAD-NEXT: %dh = nn.relu_grad %da, %a : tensor<2x4xf32> loc("encoder.3: Block"("model.py":12:5))
// GRAD-NEXT: %dw = nn.matmul %dh, %x {trans_a = true} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
// GRAD-NEXT:   loc("encoder.3.attn: Linear"("model.py":12:1))

// PLAN:      plan.launch @k0 "gemm_epilogue_cpu_blas" gemm_epilogue a(@x) b(@w) -> out(@a) {act = "relu", trans_b = true}
// PLAN-NEXT:   loc(fused["encoder.3.attn: Linear"("model.py":12:1), "encoder.3: Block"("model.py":12:5)])
// PLAN-NEXT: plan.launch @k1 "mse_loss_cpu" mse_loss y(@a) t(@t) -> loss(@loss) {reduction = "mean"} after @k0 loc("loss.py":3:1)
func.func @step(
    %x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<2x4xf32> {aicf.role = "input", aicf.name = "t"},
    %w: tensor<4x4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}) {
  %h = nn.linear %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("encoder.3.attn: Linear"("model.py":12:1))
  %a = nn.relu %h : tensor<2x4xf32> loc("encoder.3: Block"("model.py":12:5))
  %loss = nn.mse_loss %a, %t : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<f32> loc("loss.py":3:1)
  func.return %loss : tensor<f32>
}
