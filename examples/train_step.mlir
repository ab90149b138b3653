// A classifier with cross-entropy and AdamW: the model and its loss, and the optimizer that trains it.
//
//   aicf-opt --autodiff --apply-optimizer examples/train_step.mlir      the whole step, still pure
//   aicf-opt --stage plan --target sm_90 examples/train_step.mlir       kernel ids, addresses and peak bytes
//   aicf-opt --stage plan examples/train_step.mlir | aicf-run - --compare=interp --steps 3
func.func @train_step(
    %x: tensor<32x64xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<32xi64> {aicf.role = "input", aicf.name = "t"},
    %w0: tensor<48x64xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %b0: tensor<48xf32> {aicf.role = "param", aicf.name = "0.bias"},
    %w1: tensor<10x48xf32> {aicf.role = "param", aicf.name = "2.weight"},
    %b1: tensor<10xf32> {aicf.role = "param", aicf.name = "2.bias"})
    -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"})
    attributes {aicf.optimizer = [{
      kind = "adam", params = ["0.weight", "0.bias", "2.weight", "2.bias"],
      amsgrad = false, decoupled = true, maximize = false}]} {
  %h = nn.linear %x, %w0, %b0 : (tensor<32x64xf32>, tensor<48x64xf32>, tensor<48xf32>) -> tensor<32x48xf32>
  %a = nn.gelu %h : tensor<32x48xf32>
  %y = nn.linear %a, %w1, %b1 : (tensor<32x48xf32>, tensor<10x48xf32>, tensor<10xf32>) -> tensor<32x10xf32>
  %loss = nn.cross_entropy %y, %t : (tensor<32x10xf32>, tensor<32xi64>) -> tensor<f32>
  func.return %loss : tensor<f32>
}
