// RUN: aicf-opt %s --lower --split-input-file --verify-diagnostics --allow-unregistered-dialect

func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@below {{has no lowering to kernel ops}}
  %y = "toy.softplus"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
