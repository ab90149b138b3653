// RUN: aicf-opt %s --bufferize --split-input-file --verify-diagnostics

// expected-error@below {{@f has no aicf.target; run select-kernels first}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = kernel.relu x(%x) : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {aicf.target = "cpu"} {
  // expected-error@below {{'kernel.relu' has no kernel id; run select-kernels first}}
  %y = kernel.relu x(%x) : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {aicf.target = "cpu"} {
  // expected-error@below {{expected ops of the kernel dialect, got 'nn.relu'; run lower first}}
  %y = nn.relu %x : tensor<4xf32>
  %z = kernel.neg x(%y) id "neg_cpu" : tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {aicf.target = "cpu"} {
  // expected-error@below {{expected a launch behind every result; run lower first}}
  func.return %x : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {aicf.target = "cpu"} {
  %y = kernel.relu x(%x) id "relu_cpu" : tensor<4xf32>
  // expected-error@below {{expected every result of a launch to be returned once; run lower first}}
  func.return %y, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error@below {{expected @f to be one block that ends in func.return}}
func.func private @f(tensor<4xf32>) -> tensor<4xf32>

// -----

func.func @f(%p: tensor<2x2xf32> {aicf.role = "param", aicf.name = "p"}) -> tensor<2x2xf32> attributes {aicf.target = "cpu"} {
  // expected-error@below {{expected ops of the kernel dialect, got 'func.call'; run lower first}}
  func.call @f(%p) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = kernel.relu x(%p) id "relu_cpu" : tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}

// -----

func.func @f(%s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}, %t: tensor<3xi64> {aicf.role = "input", aicf.name = "t"}) -> (tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) attributes {aicf.target = "cpu"} {
  %u = kernel.copy x(%t) id "copy_cpu" : tensor<3xi64>
  // expected-error@below {{expected the status to be that of a chain of checks, from the status argument to the result}}
  func.return %u : tensor<3xi64>
}
