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
// expected-error@below {{attribute 'trans_b' must be true, false, an integer, a float, a string, a symbol, a list of strings or of symbols, or array<i64: ...>, got dense<1> : tensor<1xi32>}}
%y = kernel.gemm_epilogue a(%x) b(%x) bias(%b) -> out {trans_b = dense<1> : tensor<1xi32>} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x4xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xi16>
// expected-error@below {{expected element type i1, i32, i64, f16, bf16, f32 or f64, got tensor<4x8xi16>}}
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

// expected-error@below {{expected element type i1, i32, i64, f16, bf16, f32 or f64, got tensor<2xindex>}}
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

%p, %g, %h = "test.op"() : () -> (tensor<4xf32>, tensor<4xf64>, tensor<f64>)
// expected-error@below {{sgd_step: g[0]: expected element type f32, f16 or bf16 beside a parameter of f32, got f64[4]}}
%q = kernel.sgd_step p(%p) g(%g) lr(%h) weight_decay(%h) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf64>, tensor<f64>, tensor<f64>) -> tensor<4xf32>

// -----

%p, %g, %h = "test.op"() : () -> (tensor<4xf16>, tensor<4xf32>, tensor<f64>)
// expected-error@below {{sgd_step: g[0]: expected f16[4], got f32[4]}}
%q = kernel.sgd_step p(%p) g(%g) lr(%h) weight_decay(%h) {groups = array<i64: 0>} : (tensor<4xf16>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf16>

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
%y, %z = "kernel.sgd_step"(%x, %x) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 2, 0, 0>}> {groups = array<i64: 0>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)

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

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
// expected-error@below {{expected a view of a dense tensor with a layout, got tensor<4x6xf32> -> tensor<4x2xf32>}}
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[6, 1]>>
// expected-error@below {{expected a view of a dense tensor with a layout, got tensor<4x2xf32, strided<[6, 1]>> -> tensor<2xf32, strided<[1]>>}}
%z = kernel.view %y : (tensor<4x2xf32, strided<[6, 1]>>) -> tensor<2xf32, strided<[1]>>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
// expected-error@below {{a view keeps the element type, got f32 -> f64; use kernel.copy to cast}}
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf64, strided<[6, 1]>>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
// expected-error@below {{expected a view inside the 24 elements of tensor<4x6xf32>, got tensor<4x2xf32, strided<[6, 1], offset: 5>>, which ends at 25}}
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[6, 1], offset: 5>>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
// expected-error@below {{expected strides and an offset from 0 on, and an end below 2^62, got tensor<4x2xf32, strided<[4611686018427387903, 1]>>}}
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[4611686018427387903, 1]>>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[6, 1]>>
// expected-error@below {{expected dense tensors, got tensor<4x2xf32, strided<[6, 1]>>}}
%z = kernel.reshape %y : (tensor<4x2xf32, strided<[6, 1]>>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> tensor<4x6xf32>
%y = kernel.view %x : (tensor<4x6xf32>) -> tensor<4x2xf32, strided<[6, 1]>>
// expected-error@below {{input 0: non-contiguous: got strides [6, 1] for shape [4, 2], expected [2, 1]; call .contiguous() on x: relu takes x dense}}
%z = kernel.relu x(%y) : (tensor<4x2xf32, strided<[6, 1]>>) -> tensor<4x2xf32>

// -----

%x = "test.op"() : () -> tensor<4x2xf32>
// expected-error@below {{expected a kernel.join that gives tensor<4x2xf32, strided<[6, 1]>> its memory}}
%y = kernel.copy x(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[6, 1]>>

// -----

func.func @argument(%x: tensor<4x2xf32, strided<[6, 1]>>) -> tensor<4x2xf32> {
  // expected-error@below {{expected a dense argument, got tensor<4x2xf32, strided<[6, 1]>>; make a kernel.view of it}}
  %y = kernel.copy x(%x) : (tensor<4x2xf32, strided<[6, 1]>>) -> tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}

// -----

%x = "test.op"() : () -> tensor<4x2xf32>
%y = kernel.copy x(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[3, 1]>>
// expected-error@below {{expected operands that fill tensor<4x3xf32> together}}
%z = kernel.join %y : (tensor<4x2xf32, strided<[3, 1]>>) -> tensor<4x3xf32>

// -----

%x = "test.op"() : () -> tensor<4x2xf32>
%y = kernel.copy x(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[3, 1]>>
%z = kernel.copy x(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[3, 1], offset: 1>>
// expected-error@below {{expected operands inside tensor<4x3xf32> and apart from each other, got tensor<4x2xf32, strided<[3, 1], offset: 1>>}}
%j = kernel.join %y, %z : (tensor<4x2xf32, strided<[3, 1]>>, tensor<4x2xf32, strided<[3, 1], offset: 1>>) -> tensor<4x3xf32>

// -----

%x = "test.op"() : () -> tensor<4x2xf32>
%y = kernel.copy x(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[1, 4]>>
// expected-error@below {{expected a tensor to be joined once, got tensor<4x2xf32, strided<[1, 4]>> more often}}
%z = kernel.join %y : (tensor<4x2xf32, strided<[1, 4]>>) -> tensor<2x4xf32>
%j = kernel.join %y : (tensor<4x2xf32, strided<[1, 4]>>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> tensor<4x2xf32>
// expected-error@below {{expected the results of launches at their places in tensor<4x2xf32>, got tensor<4x2xf32>}}
%j = kernel.join %x : tensor<4x2xf32>

// -----

%x = "test.op"() : () -> tensor<8x8xf64>
// expected-error@below {{gemm: allow_tf32: expected operands of f32, got f64}}
%y = kernel.gemm a(%x) b(%x) {allow_tf32 = true} : tensor<8x8xf64>

// -----

%x = "test.op"() : () -> tensor<8x8xbf16>
// expected-error@below {{gemm_epilogue: allow_tf32: expected operands of f32, got bf16}}
%y = kernel.gemm_epilogue a(%x) b(%x) -> out {act = "relu", allow_tf32 = true} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>

// -----

%x = "test.op"() : () -> tensor<8x8xbf16>
// expected-error@below {{back_to_back: links[0]: there is no b1 here; of b there are 1}}
%y = kernel.back_to_back a(%x) b(%x) {bodies = [@any], links = ["b1 -> write"]} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>

// -----

%x = "test.op"() : () -> tensor<8x8xbf16>
// expected-error@below {{expected bodies to be symbols of scalar.bodies, got ('any',)}}
%y = kernel.back_to_back a(%x) b(%x) {bodies = ["any"], links = ["b0 -> write"]} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>

// -----

%x = "test.op"() : () -> tensor<8x8xbf16>
// expected-error@below {{attribute 'links' must be true, false, an integer, a float, a string, a symbol, a list of strings or of symbols, or array<i64: ...>, got ["b0 -> write", @any]}}
%y = kernel.back_to_back a(%x) b(%x) {bodies = [@any], links = ["b0 -> write", @any]} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>

// -----

%x = "test.op"() : () -> tensor<8x8xf64>
// expected-error@below {{gemm_map: allow_tf32: expected operands of f32, got f64}}
%y = kernel.gemm_map a(%x) b(%x) x(%x) {allow_tf32 = true, body = @any} : tensor<8x8xf64>
