// A two-layer perceptron, forward only: batch 64, width 256, mean squared error.
//
//   aicf-opt --lower --fuse examples/mlp.mlir
//   aicf-run examples/mlp.mlir --print
func.func @mlp(
    %x: tensor<64x256xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<64x256xf32> {aicf.role = "input", aicf.name = "t"},
    %w0: tensor<256x256xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %b0: tensor<256xf32> {aicf.role = "param", aicf.name = "0.bias"},
    %w1: tensor<256x256xf32> {aicf.role = "param", aicf.name = "2.weight"},
    %b1: tensor<256xf32> {aicf.role = "param", aicf.name = "2.bias"})
    -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"},
        tensor<64x256xf32> {aicf.role = "output", aicf.name = "y"}) {
  %h = nn.linear %x, %w0, %b0 : (tensor<64x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
  %a = nn.relu %h : tensor<64x256xf32>
  %y = nn.linear %a, %w1, %b1 : (tensor<64x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
  %loss = nn.mse_loss %y, %t : (tensor<64x256xf32>, tensor<64x256xf32>) -> tensor<f32>
  func.return %loss, %y : tensor<f32>, tensor<64x256xf32>
}
