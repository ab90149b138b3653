// What the dialect refuses: rules on shapes and attributes come from the schemas of the runtime.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x9xf32>)
// expected-error@below {{gemm: expected equal inner dimensions, got 8 of a f32[4, 8] and 9 of b f32[2, 9] transposed}}
%y = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x9xf32>) -> tensor<4x2xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{relu: y: expected f32[4, 8], got f32[8, 4]}}
%y = kernel.relu x(%x) : (tensor<4x8xf32>) -> tensor<8x4xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{relu has no operand 'extra' here; it takes x(…)}}
%y = kernel.relu x(%x) extra(%x) : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{relu has no attribute trans_a; it takes none}}
%y = kernel.relu x(%x) {trans_a = true} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{relu has no attribute nonsense; it takes none}}
%y = kernel.relu x(%x) {nonsense = true} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{reduce_sum needs the attribute dims}}
%y = kernel.reduce_sum x(%x) : (tensor<4x8xf32>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{reduce_sum: dims: expected ascending dimensions without repetition, got 0 after 1}}
%y = kernel.reduce_sum x(%x) {dims = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<f32>

// -----

%x, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<8xf32>)
// expected-error@below {{attribute 'act': expected one of none, relu, gelu, gelu_tanh, silu, tanh, sigmoid; got 'softmax'}}
%y = kernel.gemm_epilogue a(%x) b(%x) bias(%b) -> out {trans_b = true, act = "softmax"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x4xf32>

// -----

%x, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xf32>)
// expected-error@below {{attribute 'trans_b': expected a bool, got 1 of type int}}
%y = kernel.gemm_epilogue a(%x) b(%x) bias(%b) -> out {trans_b = 1} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x4xf32>

// -----

%x, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xf32>)
// expected-error@below {{attribute 'trans_b' must be true, false, an integer, a float, a string or array<i64: ...>, got dense<1> : tensor<1xi32>}}
%y = kernel.gemm_epilogue a(%x) b(%x) bias(%b) -> out {trans_b = dense<1> : tensor<1xi32>} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x4xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xi16>
// expected-error@below {{expected element type f16, bf16, f32, f64, i32 or i64, got tensor<4x8xi16>}}
%y = kernel.copy x(%x) : (tensor<4x8xi16>) -> tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{add: z: expected f32[4, 8], got f16[4, 8]}}
%y = kernel.add x(%x) y(%x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{a reshape keeps the number of elements, got [4, 8] (32) -> [4, 9] (36)}}
%y = kernel.reshape %x : (tensor<4x8xf32>) -> tensor<4x9xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{a reshape keeps the element type, got f32 -> f16; use kernel.copy to cast}}
%y = kernel.reshape %x : (tensor<4x8xf32>) -> tensor<4x8xf16>

// -----

// expected-error@below {{1 : i64 should be of base attribute float}}
%c = kernel.constant {value = 1} : tensor<f32>

// -----

// expected-error@below {{expected element type f16, bf16, f32, f64, i32 or i64, got tensor<2xindex>}}
%c = kernel.constant {value = 1.0} : tensor<2xindex>

// -----

%x = "test.op"() : () -> tensor<?x8xf32>
// expected-error@below {{expected static shapes, got tensor<?x8xf32>}}
%y = kernel.relu x(%x) : tensor<?x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected static shapes, got tensor<?x8xf32>}}
%y = kernel.reshape %x : (tensor<4x8xf32>) -> tensor<?x8xf32>

// -----

%p, %h = "test.op"() : () -> (tensor<4xf32>, tensor<f64>)
// expected-error@below {{sgd_step: groups: expected indices from 0 to 0, one for each lr, got 1}}
%q = kernel.sgd_step p(%p) g(%p) lr(%h) weight_decay(%h) {groups = array<i64: 1>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>

// -----

%s, %i = "test.op"() : () -> (tensor<3xi64>, tensor<4xi64>)
// expected-error@below {{check_index needs the attribute classes}}
%t = kernel.check_index status(%s) target(%i) {code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{gemm: expected 'b(…)'; its operands are a(…), b(…)}}
%y = kernel.gemm a(%x) : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{relu: 'x' is one tensor, got 2}}
%y = kernel.relu x(%x, %x) : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{gemm_epilogue has no result 'post'; it has out, pre, bias_grad}}
%y, %z = kernel.gemm_epilogue a(%x) b(%x) -> out, post : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{gemm_epilogue has no operand 'a' here; it takes a(…), b(…), bias(…), saved(…)}}
%y = kernel.gemm_epilogue a(%x) b(%x) a(%x) -> out : tensor<8x8xf32>

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{sgd_step: p': expected 1 tensor, as many as p has, got 2}}
%y, %z = "kernel.sgd_step"(%x, %x) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0>}> {groups = array<i64: 0>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{gemm_epilogue: the counts of a, b, [bias], [saved] do not add up to 2 tensors}}
%y = "kernel.gemm_epilogue"(%x, %x) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{gemm_epilogue: expected a count for each of a, b, [bias], [saved], got 1}}
%y = "kernel.gemm_epilogue"(%x, %x) <{operandSegmentSizes = array<i32: 2>, resultSegmentSizes = array<i32: 1>}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>

// -----

%x = "test.op"() : () -> tensor<8x8xf32>
// expected-error@below {{gemm_epilogue takes a, b, [bias], [saved] and gives out, [pre], [bias_grad]: say by name which tensors are which}}
%y = "kernel.gemm_epilogue"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
