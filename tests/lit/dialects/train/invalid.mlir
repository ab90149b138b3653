// Every rule of the verifiers of train, broken once.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

%l, %w = "test.op"() : () -> (tensor<2xf32>, tensor<4xf32>)
// expected-error@below {{expected a 0-d floating-point loss, got tensor<2xf32>}}
%g = train.backward %l, %w : (tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>

// -----

%l, %w = "test.op"() : () -> (tensor<f32>, tensor<4xf32>)
// expected-error@below {{expected result 0 to be tensor<4xf32>, got tensor<2xf32>}}
%g = train.backward %l, %w : (tensor<f32>, tensor<4xf32>) -> tensor<2xf32>

// -----

%l, %w = "test.op"() : () -> (tensor<f32>, tensor<4xi64>)
// expected-error@below {{expected value 0 of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%g = train.backward %l, %w : (tensor<f32>, tensor<4xi64>) -> tensor<4xi64>

// -----

%l, %w = "test.op"() : () -> (tensor<f32>, tensor<4xf32>)
// expected-error@below {{expected one result for each of one or more values, got 2 for 1}}
%g, %h = train.backward %l, %w : (tensor<f32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)

// -----

%w, %g = "test.op"() : () -> (tensor<4xf32>, tensor<4xf32>)
// expected-error@below {{expected a parameter and a gradient for each of 2 names, got 2 operands}}
%n = train.update %w, %g {names = ["a", "b"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>

// -----

%w, %g, %taken = "test.op"() : () -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>)
// expected-error@below {{expected a last operand of tensor<i1>, got tensor<f32>}}
%n = train.update %w, %g, %taken {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>

// -----

%w, %g = "test.op"() : () -> (tensor<4xf32>, tensor<2xf32>)
// expected-error@below {{expected a gradient of the type of its parameter, tensor<4xf32>, got tensor<2xf32>}}
%n = train.update %w, %g {names = ["a"]} : (tensor<4xf32>, tensor<2xf32>) -> tensor<4xf32>

// -----

%w, %g = "test.op"() : () -> (tensor<4xf32>, tensor<4xf32>)
// expected-error@below {{expected names that differ}}
%n, %m = train.update %w, %w, %g, %g {names = ["a", "a"]}
  : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)

// -----

%y, %w = "test.op"() : () -> (tensor<2xf32>, tensor<4xf32>)
// expected-error@below {{expected one seed for each value to differentiate, of its type}}
%g = train.gradient of(%y) wrt(%w) : (tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>

// -----

%y, %w = "test.op"() : () -> (tensor<2xf32>, tensor<4xf32>)
// expected-error@below {{expected one seed for each value to differentiate, of its type}}
%g = train.gradient of(%y) seeds(%w) wrt(%w) : (tensor<2xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>

// -----

%w = "test.op"() : () -> tensor<4xi64>
// expected-error@below {{expected value 0 of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%g = train.input %w : tensor<4xi64>
