// How ops of kernel are written: custom text and generic text read back as the same op. Those of all samples do: test_nn_samples.py.
// RUN: aicf-opt %s | filecheck %s
// RUN: ROUNDTRIP
// RUN: GENERIC

%x, %w, %b, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>, tensor<4x2xf32>)
%n, %d, %i = "test.op"() : () -> (tensor<3x4x8xbf16>, tensor<3x8x5xbf16>, tensor<4xi64>)
%s, %h, %step = "test.op"() : () -> (tensor<f32>, tensor<f64>, tensor<2xf32>)

// Not launches: a value everywhere, one that launches read and no body takes in, another shape
// CHECK: %c = kernel.constant {value = 2.0} : tensor<f32>
// GENERIC: %c = "kernel.constant"() <{value = 2.000000e+00 : f64}> : () -> tensor<f32>
%c = kernel.constant {value = 2.0} : tensor<f32>
// CHECK: %site = kernel.constant {value = 3.0, data} : tensor<i64>
// GENERIC: %site = "kernel.constant"() <{value = 3.000000e+00 : f64, data}> : () -> tensor<i64>
%site = kernel.constant {value = 3.0, data} : tensor<i64>
// CHECK: %r = kernel.reshape %n : (tensor<3x4x8xbf16>) -> tensor<12x8xbf16>
%r = kernel.reshape %n : (tensor<3x4x8xbf16>) -> tensor<12x8xbf16>

// Arithmetic, broadcasting as NumPy does
// CHECK: %add = kernel.add x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%add = kernel.add x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %sub = kernel.sub x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%sub = kernel.sub x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %mul = kernel.mul x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%mul = kernel.mul x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %div = kernel.div x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%div = kernel.div x(%y) y(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %neg = kernel.neg x(%n) : tensor<3x4x8xbf16>
%neg = kernel.neg x(%n) : tensor<3x4x8xbf16>

// Activations and their gradients
// CHECK: %relu = kernel.relu x(%x) : tensor<4x8xf32>
%relu = kernel.relu x(%x) : tensor<4x8xf32>
// CHECK: %gelu = kernel.gelu x(%x) : tensor<4x8xf32>
%gelu = kernel.gelu x(%x) : tensor<4x8xf32>
// CHECK: %gelu_tanh = kernel.gelu_tanh x(%x) : tensor<4x8xf32>
%gelu_tanh = kernel.gelu_tanh x(%x) : tensor<4x8xf32>
// CHECK: %silu = kernel.silu x(%x) : tensor<4x8xf32>
%silu = kernel.silu x(%x) : tensor<4x8xf32>
// CHECK: %tanh = kernel.tanh x(%x) : tensor<4x8xf32>
%tanh = kernel.tanh x(%x) : tensor<4x8xf32>
// CHECK: %sigmoid = kernel.sigmoid x(%x) : tensor<4x8xf32>
%sigmoid = kernel.sigmoid x(%x) : tensor<4x8xf32>
// CHECK: %relu_bwd = kernel.relu_bwd dy(%x) saved(%relu) : tensor<4x8xf32>
%relu_bwd = kernel.relu_bwd dy(%x) saved(%relu) : tensor<4x8xf32>
// CHECK: %gelu_bwd = kernel.gelu_bwd dy(%x) saved(%x) : tensor<4x8xf32>
%gelu_bwd = kernel.gelu_bwd dy(%x) saved(%x) : tensor<4x8xf32>
// CHECK: %gelu_tanh_bwd = kernel.gelu_tanh_bwd dy(%x) saved(%x) : tensor<4x8xf32>
%gelu_tanh_bwd = kernel.gelu_tanh_bwd dy(%x) saved(%x) : tensor<4x8xf32>
// CHECK: %silu_bwd = kernel.silu_bwd dy(%x) saved(%x) : tensor<4x8xf32>
%silu_bwd = kernel.silu_bwd dy(%x) saved(%x) : tensor<4x8xf32>
// CHECK: %tanh_bwd = kernel.tanh_bwd dy(%x) saved(%tanh) : tensor<4x8xf32>
%tanh_bwd = kernel.tanh_bwd dy(%x) saved(%tanh) : tensor<4x8xf32>
// CHECK: %sigmoid_bwd = kernel.sigmoid_bwd dy(%x) saved(%sigmoid) : tensor<4x8xf32>
%sigmoid_bwd = kernel.sigmoid_bwd dy(%x) saved(%sigmoid) : tensor<4x8xf32>

// Products
// CHECK: %bias_add = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%bias_add = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %gemm = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// GENERIC: %gemm = "kernel.gemm"(%x, %w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
%gemm = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK: %batched = kernel.gemm a(%n) b(%d) : (tensor<3x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<3x4x5xbf16>
%batched = kernel.gemm a(%n) b(%d) : (tensor<3x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<3x4x5xbf16>

// An epilogue: bias and activation, and the value before the activation as second result
// CHECK: %out, %pre = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out, pre {act = "gelu", trans_b = true}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
%out, %pre = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out, pre {act = "gelu", trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)

// The gradient of an activation in the product that makes its dy; the gradient of a bias beside that of a weight
// CHECK: %dx = kernel.gemm_epilogue a(%y) b(%w) saved(%relu) -> out {act_grad = "relu"}
// CHECK-NEXT: : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
%dx = kernel.gemm_epilogue a(%y) b(%w) saved(%relu) -> out {act_grad = "relu"} : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %dw, %db = kernel.gemm_epilogue a(%y) b(%x) -> out, bias_grad {trans_a = true}
// CHECK-NEXT: : (tensor<4x2xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>)
%dw, %db = kernel.gemm_epilogue a(%y) b(%x) -> out, bias_grad {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>)

// Reductions and losses
// CHECK: %sum = kernel.reduce_sum x(%n) {dims = array<i64: 0, 2>, divisor = 8.0} : (tensor<3x4x8xbf16>) -> tensor<4xbf16>
%sum = kernel.reduce_sum x(%n) {dims = array<i64: 0, 2>, divisor = 8.0} : (tensor<3x4x8xbf16>) -> tensor<4xbf16>
// CHECK: %kept = kernel.reduce_sum x(%n) {dims = array<i64: 0, 2>} : (tensor<3x4x8xbf16>) -> tensor<1x4x1xbf16>
%kept = kernel.reduce_sum x(%n) {dims = array<i64: 0, 2>} : (tensor<3x4x8xbf16>) -> tensor<1x4x1xbf16>
// CHECK: %mse = kernel.mse_loss y(%x) t(%x) {reduction = "mean"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
%mse = kernel.mse_loss y(%x) t(%x) {reduction = "mean"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
// CHECK: %dmse = kernel.mse_grad dloss(%s) y(%x) t(%x) {reduction = "sum"}
// CHECK-NEXT: : (tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
%dmse = kernel.mse_grad dloss(%s) y(%x) t(%x) {reduction = "sum"} : (tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %ce = kernel.cross_entropy logits(%x) target(%i) {ignore_index = -100, label_smoothing = 0.1, reduction = "mean"}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>
%ce = kernel.cross_entropy logits(%x) target(%i) {ignore_index = -100, label_smoothing = 0.1, reduction = "mean"} : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>
// CHECK: %dce = kernel.cross_entropy_grad dloss(%s) logits(%x) target(%i) {ignore_index = 0, reduction = "sum"}
// CHECK-NEXT: : (tensor<f32>, tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
%dce = kernel.cross_entropy_grad dloss(%s) logits(%x) target(%i) {ignore_index = 0, reduction = "sum"} : (tensor<f32>, tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>

// Moves
// CHECK: %copy = kernel.copy x(%x) : (tensor<4x8xf32>) -> tensor<4x8xf16>
%copy = kernel.copy x(%x) : (tensor<4x8xf32>) -> tensor<4x8xf16>
// CHECK: %view = kernel.view %n : (tensor<3x4x8xbf16>) -> tensor<8x3x4xbf16, strided<[1, 32, 8]>>
%view = kernel.view %n : (tensor<3x4x8xbf16>) -> tensor<8x3x4xbf16, strided<[1, 32, 8]>>
// CHECK: %turned = kernel.copy x(%view) : (tensor<8x3x4xbf16, strided<[1, 32, 8]>>) -> tensor<8x3x4xbf16>
%turned = kernel.copy x(%view) : (tensor<8x3x4xbf16, strided<[1, 32, 8]>>) -> tensor<8x3x4xbf16>
// CHECK: %copies, %copies_1 = kernel.multi_tensor_copy x(%x, %b)
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>)
%copies, %copies_1 = kernel.multi_tensor_copy x(%x, %b) : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>)
// CHECK: %wide = kernel.view %b : (tensor<2xf32>) -> tensor<4x2xf32, strided<[0, 1]>>
%wide = kernel.view %b : (tensor<2xf32>) -> tensor<4x2xf32, strided<[0, 1]>>
// CHECK: %left = kernel.copy x(%wide) : (tensor<4x2xf32, strided<[0, 1]>>) -> tensor<4x2xf32, strided<[3, 1], offset: 1>>
%left = kernel.copy x(%wide) : (tensor<4x2xf32, strided<[0, 1]>>) -> tensor<4x2xf32, strided<[3, 1], offset: 1>>
%column = kernel.view %b : (tensor<2xf32>) -> tensor<4x1xf32, strided<[0, 1]>>
%first = kernel.copy x(%column) : (tensor<4x1xf32, strided<[0, 1]>>) -> tensor<4x1xf32, strided<[3, 1]>>
// CHECK: %joined = kernel.join %left, %first
// CHECK-NEXT:  : (tensor<4x2xf32, strided<[3, 1], offset: 1>>, tensor<4x1xf32, strided<[3, 1]>>) -> tensor<4x3xf32>
%joined = kernel.join %left, %first : (tensor<4x2xf32, strided<[3, 1], offset: 1>>, tensor<4x1xf32, strided<[3, 1]>>) -> tensor<4x3xf32>

// Updates: tensors first, then the scalars of each param group
// CHECK: %step1 = kernel.advance step(%step) -> step : tensor<2xf32>
%step1 = kernel.advance step(%step) -> step : tensor<2xf32>
// CHECK: %step2, %bc1, %bc2 = kernel.advance step(%step) beta1(%h) beta2(%h) bc1_pin(%h) bc2_pin(%h) -> step, bc1_inv, bc2_inv
// CHECK-NEXT: : (tensor<2xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<2xf32>, tensor<2xf64>,
// CHECK-NEXT: tensor<2xf64>)
%step2, %bc1, %bc2 = kernel.advance step(%step) beta1(%h) beta2(%h) bc1_pin(%h) bc2_pin(%h) -> step, bc1_inv, bc2_inv : (tensor<2xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<2xf32>, tensor<2xf64>, tensor<2xf64>)
// CHECK: %p1 = kernel.sgd_step p(%x) g(%x) lr(%h) weight_decay(%h) {groups = array<i64: 0>}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>
%p1 = kernel.sgd_step p(%x) g(%x) lr(%h) weight_decay(%h) {groups = array<i64: 0>} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>
// CHECK: %p2, %q2, %buf, %buf2 = kernel.sgd_step p(%x, %b) g(%x, %b) buf(%x, %b) lr(%h, %h) weight_decay(%h, %h)
// CHECK-NEXT:   momentum(%h, %h) dampening(%h, %h) step(%step1, %step1) {groups = array<i64: 0, 1>, indices = array<i64: 1, 0>}
// CHECK-NEXT:   : (tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>, tensor<f64>,
// CHECK-NEXT:   tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>,
// CHECK-NEXT:   tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>)
%p2, %q2, %buf, %buf2 = kernel.sgd_step p(%x, %b) g(%x, %b) buf(%x, %b) lr(%h, %h) weight_decay(%h, %h) momentum(%h, %h) dampening(%h, %h) step(%step1, %step1) {groups = array<i64: 0, 1>, indices = array<i64: 1, 0>} : (tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>, tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>, tensor<4x8xf32>, tensor<2xf32>)
// CHECK: %p3, %m3, %v3 = kernel.adam_step p(%x) g(%x) m(%x) v(%x) lr(%h) beta1(%h) beta2(%h) eps(%h) weight_decay(%h)
// CHECK-NEXT:   bc1_inv(%bc1) bc2_inv(%bc2) {decoupled = true, groups = array<i64: 0>, indices = array<i64: 1>}
// CHECK-NEXT:   : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT:   tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
%p3, %m3, %v3 = kernel.adam_step p(%x) g(%x) m(%x) v(%x) lr(%h) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%bc1) bc2_inv(%bc2) {decoupled = true, groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// What select-kernels adds
// CHECK: %chosen = kernel.relu x(%x) id "relu_f32_vec4" : tensor<4x8xf32>
// GENERIC: %chosen = "kernel.relu"(%x) <{kernel_id = "relu_f32_vec4"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%chosen = kernel.relu x(%x) id "relu_f32_vec4" : tensor<4x8xf32>
// CHECK: %scratch = kernel.gemm a(%x) b(%w) {trans_b = true} id "gemm_of_elsewhere" workspace 1024
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// GENERIC: %scratch = "kernel.gemm"(%x, %w) <{kernel_id = "gemm_of_elsewhere", workspace = 1024 : i64}> {trans_b = true} :
%scratch = kernel.gemm a(%x) b(%w) {trans_b = true} id "gemm_of_elsewhere" workspace 1024 : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>

// Checks: a status from the one before
%status = "test.op"() : () -> tensor<3xi64>
// CHECK: %index = kernel.check_index status(%status) target(%i)
// CHECK-NEXT: {classes = array<i64: 2>, code = 1, ignore_index = array<i64: -100>}
// CHECK-NEXT: : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
%index = kernel.check_index status(%status) target(%i) {classes = array<i64: 2>, code = 1, ignore_index = array<i64: -100>} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
// CHECK: %finite = kernel.check_finite status(%index) x(%s, %x) {code = 2}
// CHECK-NEXT: : (tensor<3xi64>, tensor<f32>, tensor<4x8xf32>) -> tensor<3xi64>
%finite = kernel.check_finite status(%index) x(%s, %x) {code = 2} : (tensor<3xi64>, tensor<f32>, tensor<4x8xf32>) -> tensor<3xi64>

// Rows
// CHECK: %soft = kernel.softmax x(%x) : tensor<4x8xf32>
%soft = kernel.softmax x(%x) : tensor<4x8xf32>
// CHECK: %dsoft = kernel.softmax_grad dy(%x) saved(%soft) : tensor<4x8xf32>
%dsoft = kernel.softmax_grad dy(%x) saved(%soft) : tensor<4x8xf32>
// CHECK: %added = kernel.scatter_add x(%x) index(%i) src(%x)
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
%added = kernel.scatter_add x(%x) index(%i) src(%x) : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %keys, %places = kernel.sort_rows index(%i) at(%i) {rows = 4, source_rows = 4}
%keys, %places = kernel.sort_rows index(%i) at(%i) {rows = 4, source_rows = 4} : (tensor<4xi64>, tensor<4xi64>) -> (tensor<4xi32>, tensor<4xi32>)
// CHECK: %summed = kernel.scatter_add x(%x) index(%keys) src(%x) at(%places)
%summed = kernel.scatter_add x(%x) index(%keys) src(%x) at(%places) : (tensor<4x8xf32>, tensor<4xi32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
// CHECK: %placed = kernel.scatter_rows x(%x) index(%i) src(%x) {include_self = false, kind = "max"}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
%placed = kernel.scatter_rows x(%x) index(%i) src(%x) {include_self = false, kind = "max"} : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %order = kernel.argsort x(%x) {count = 3, descending = true} : (tensor<4x8xf32>) -> tensor<4x3xi64>
%order = kernel.argsort x(%x) {count = 3, descending = true} : (tensor<4x8xf32>) -> tensor<4x3xi64>
// CHECK: %walked = kernel.scan x(%x) factor(%x) {dim = 1, kind = "linear", reverse = true} : tensor<4x8xf32>
%walked = kernel.scan x(%x) factor(%x) {dim = 1, kind = "linear", reverse = true} : tensor<4x8xf32>

// Convolutions, channels last.
%image, %filter = "test.op"() : () -> (tensor<2x5x5x4xf32>, tensor<6x3x3x4xf32>)
// CHECK: %seen = kernel.convolution x(%image) w(%filter) {channels_last = true,
%seen = kernel.convolution x(%image) w(%filter) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x5x5x4xf32>, tensor<6x3x3x4xf32>) -> tensor<2x3x3x6xf32>
// CHECK: kernel.convolution x(%image) w(%filter) bias(%of_six) {act = "relu",
%of_six = "test.op"() : () -> tensor<6xf32>
%seen_with_bias = kernel.convolution x(%image) w(%filter) bias(%of_six) {act = "relu", channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x5x5x4xf32>, tensor<6x3x3x4xf32>, tensor<6xf32>) -> tensor<2x3x3x6xf32>
// CHECK: kernel.convolution_input_grad dy(%seen) w(%filter)
%dimage = kernel.convolution_input_grad dy(%seen) w(%filter) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 5, 5>} : (tensor<2x3x3x6xf32>, tensor<6x3x3x4xf32>) -> tensor<2x5x5x4xf32>
// CHECK: kernel.convolution_weight_grad x(%image) dy(%seen)
%dfilter = kernel.convolution_weight_grad x(%image) dy(%seen) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x5x5x4xf32>, tensor<2x3x3x6xf32>) -> tensor<6x3x3x4xf32>

// Attention: of heads of one projection, with the mask where there is one
%q, %k, %m = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<1x4x3x5xi1>)
// CHECK: %attended, %largest, %total = kernel.attention query(%q) key(%k) value(%k) {causal = true, scale = 0.5}
// GENERIC: %attended, %largest, %total = "kernel.attention"(%q, %k, %k) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1>}>
%attended, %largest, %total = kernel.attention query(%q) key(%k) value(%k) {causal = true, scale = 0.5} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>) -> (tensor<2x4x3x8xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
// CHECK: kernel.attention_grad dout(%attended) query(%q) key(%k) value(%k) out(%attended) largest(%largest)
// CHECK-NEXT: total(%total) mask(%m) {scale = 0.5}
%dq, %dk, %dv = kernel.attention_grad dout(%attended) query(%q) key(%k) value(%k) out(%attended) largest(%largest) total(%total) mask(%m) {scale = 0.5} : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x4x3x5xi1>) -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>)

%bias = "test.op"() : () -> tensor<1x4x3x5xf32>
// CHECK: kernel.attention_mask_grad dout(%attended) query(%q) key(%k) value(%k) out(%attended) largest(%largest)
// CHECK-NEXT: total(%total) mask(%bias) {scale = 0.5}
%dbias = kernel.attention_mask_grad dout(%attended) query(%q) key(%k) value(%k) out(%attended) largest(%largest) total(%total) mask(%bias) {scale = 0.5} : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x4x3x5xf32>) -> tensor<1x4x3x5xf32>

// Generated kernels: of every element, of rows, of columns, with a body beside them; results are as many as the body gives
// CHECK: %each = kernel.map x(%x) {body = @halves, shape = array<i64: 4, 8>} : tensor<4x8xf32>
// GENERIC: %each = "kernel.map"(%x) <{operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1>}>
%each = kernel.map x(%x) {body = @halves, shape = array<i64: 4, 8>} : tensor<4x8xf32>
// CHECK: %part, %row = kernel.rowwise x(%x) {body = @parts, reduced = 1, shape = array<i64: 4, 8>}
// CHECK-NEXT: : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
%part, %row = kernel.rowwise x(%x) {body = @parts, reduced = 1, shape = array<i64: 4, 8>} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
// CHECK: %near, %mean = kernel.rowwise x(%x) {body = @with_columns, reduced = 1, shape = array<i64: 4, 8>}
// CHECK-NEXT: : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
%near, %mean = kernel.rowwise x(%x) {body = @with_columns, reduced = 1, shape = array<i64: 4, 8>} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
// CHECK: %totals = kernel.colwise x(%x) {body = @total, reduced = 1, shape = array<i64: 4, 8>}
// CHECK-NEXT: : (tensor<4x8xf32>) -> tensor<8xf32>
%totals = kernel.colwise x(%x) {body = @total, reduced = 1, shape = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<8xf32>
// CHECK: %shifted, %product = kernel.gemm_map a(%x) b(%w) x(%u) {body = @shifted, trans_b = true}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
%u = "test.op"() : () -> tensor<4x2xf32>
%shifted, %product = kernel.gemm_map a(%x) b(%w) x(%u) {body = @shifted, trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// Of many tensors: one segment after the other, each of its own shape
// CHECK: %doubled, %doubled_1 = kernel.multi_tensor_map x(%x, %b) {body = @halves, segments = 2}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>)
// GENERIC: %doubled, %doubled_1 = "kernel.multi_tensor_map"(%x, %b) <{operandSegmentSizes = array<i32: 2>, resultSegmentSizes = array<i32: 2>}>
%doubled, %doubled_1 = kernel.multi_tensor_map x(%x, %b) {body = @halves, segments = 2} : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>)
// CHECK: %norm, %norm_1 = kernel.multi_tensor_rowwise x(%x, %b) {body = @norm, segments = 2}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<f32>, tensor<f32>)
%norm, %norm_1 = kernel.multi_tensor_rowwise x(%x, %b) {body = @norm, segments = 2} : (tensor<4x8xf32>, tensor<2xf32>) -> (tensor<f32>, tensor<f32>)
// Products one behind the other: a body for each, and what it takes and gives
// CHECK: %hidden, %error, %sums = kernel.back_to_back a(%narrow) b(%weight) x(%target)
// CHECK-NEXT: {bodies = [@halves, @shifted], links = ["b0.T -> write next", "b0 x0 -> keep bf16, write sum"]}
// CHECK-NEXT: : (tensor<4x8xbf16>, tensor<2x8xbf16>, tensor<4x8xf32>) -> (tensor<4x2xbf16>, tensor<4x8xf32>, tensor<8xf32>)
// GENERIC: %hidden, %error, %sums = "kernel.back_to_back"(%narrow, %weight, %target) <{operandSegmentSizes = array<i32: 1, 1, 1>, resultSegmentSizes = array<i32: 3>}>
// GENERIC-SAME: {bodies = [@halves, @shifted], links = ["b0.T -> write next", "b0 x0 -> keep bf16, write sum"]}
%narrow, %weight, %target = "test.op"() : () -> (tensor<4x8xbf16>, tensor<2x8xbf16>, tensor<4x8xf32>)
%hidden, %error, %sums = kernel.back_to_back a(%narrow) b(%weight) x(%target) {bodies = [@halves, @shifted], links = ["b0.T -> write next", "b0 x0 -> keep bf16, write sum"]} : (tensor<4x8xbf16>, tensor<2x8xbf16>, tensor<4x8xf32>) -> (tensor<4x2xbf16>, tensor<4x8xf32>, tensor<8xf32>)
// Several launches: the operands and results of one after the other
// CHECK: %alike, %rows = kernel.horizontal x(%x, %x) {body = @both, members = "map(1 -> 1), rowwise(1 -> 1, reduced 1)"}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
%alike, %rows = kernel.horizontal x(%x, %x) {body = @both, members = "map(1 -> 1), rowwise(1 -> 1, reduced 1)"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
// CHECK: %taken = kernel.map x(%i) table(%b) {body = @take, shape = array<i64: 4>}
// CHECK-NEXT: : (tensor<4xi64>, tensor<2xf32>) -> tensor<4xf32>
%taken = kernel.map x(%i) table(%b) {body = @take, shape = array<i64: 4>} : (tensor<4xi64>, tensor<2xf32>) -> tensor<4xf32>

scalar.body @both(%of_one: f32, %of_other: f32) -> (f32, f32) {
  %negative = arith.negf %of_one : f32
  %whole = scalar.sum %of_other : f32
  scalar.yield %negative, %whole : f32, f32
}

scalar.body @norm(%of_n: f32) -> f32 {
  %of_square = arith.mulf %of_n, %of_n : f32
  %of_sum = scalar.sum %of_square : f32
  scalar.yield %of_sum : f32
}
scalar.body @halves(%of_e: f32) -> f32 {
  %of_two = arith.constant 2.000000e+00 : f32
  %of_half = arith.divf %of_e, %of_two : f32
  scalar.yield %of_half : f32
}
scalar.body @shifted(%of_z: f32, %of_u: f32) -> (f32, f32) {
  %of_shifted = arith.addf %of_z, %of_u : f32
  scalar.yield %of_shifted, %of_z : f32, f32
}
scalar.body @with_columns(%of_e: f32) -> (f32, f32) {
  %of_largest = scalar.max %of_e : f32
  %of_rest = arith.subf %of_e, %of_largest : f32
  %of_column = scalar.column_sum %of_e : f32
  scalar.yield %of_rest, %of_column : f32, f32
}
scalar.body @total(%of_e: f32) -> f32 {
  %of_sum = scalar.sum %of_e : f32
  scalar.yield %of_sum : f32
}
scalar.body @parts(%of_e: f32) -> (f32, f32) {
  %of_sum = scalar.sum %of_e : f32
  %of_quotient = arith.divf %of_e, %of_sum : f32
  scalar.yield %of_quotient, %of_sum : f32, f32
}
scalar.body @take(%of_at: i64, %of_values: memref<?xf32>) -> f32 {
  %of_value = scalar.load %of_values[%of_at] : memref<?xf32>
  scalar.yield %of_value : f32
}
