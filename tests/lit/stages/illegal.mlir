// After each stage only ops of its dialects are left; the message names the op and the stage.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics --stage lowered

func.func @f(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"}) {
  // expected-error@+1 {{'test.op' is not legal after stage 'nn', which leaves ops of builtin, func, nn, train only}}
  %y = "test.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"}) {
  // expected-error@+1 {{'kernel.relu' is not legal after stage 'nn', which leaves ops of builtin, func, nn, train only}}
  %y = kernel.relu x(%x) : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
