// How ops of nn are written: custom text and generic text read back as the same op. Those of all samples do: test_nn_samples.py.
// RUN: aicf-opt %s | filecheck %s
// RUN: ROUNDTRIP
// RUN: GENERIC

%x, %w, %b, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>, tensor<4x2xf32>)
%n, %i, %s, %d = "test.op"() : () -> (tensor<3x4x8xbf16>, tensor<4xi64>, tensor<f32>, tensor<3x8x5xbf16>)

// Constants, one value everywhere
// CHECK: %c0 = nn.constant {value = 1.0} : tensor<f32>
%c0 = nn.constant {value = 1.0} : tensor<f32>
// CHECK: %c1 = nn.constant {value = -2.5e-07} : tensor<4x8xf16>
%c1 = nn.constant {value = -2.5e-07} : tensor<4x8xf16>
// CHECK: %c2 = nn.constant {value = 0x7FF0000000000000 : f64} : tensor<2xf64>
%c2 = nn.constant {value = 0x7FF0000000000000 : f64} : tensor<2xf64>
// CHECK: %c3 = nn.constant {value = 3.0} : tensor<4xi64>
%c3 = nn.constant {value = 3.0} : tensor<4xi64>
// CHECK: %detach = nn.detach %x : tensor<4x8xf32>
%detach = nn.detach %x : tensor<4x8xf32>
// CHECK: %variance, %mean = nn.var_mean %x {dims = array<i64: 0>, correction = 1.0}
// CHECK-NEXT: : (tensor<4x8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
%variance, %mean = nn.var_mean %x {dims = array<i64: 0>, correction = 1.0} : (tensor<4x8xf32>) -> (tensor<8xf32>, tensor<8xf32>)

// Arithmetic, broadcasting as NumPy does; sums and differences of integers too
// CHECK: %count = nn.add %i, %c3 : tensor<4xi64>
%count = nn.add %i, %c3 : tensor<4xi64>
// CHECK: %add = nn.add %x, %x : tensor<4x8xf32>
%add = nn.add %x, %x : tensor<4x8xf32>
// CHECK: %sub = nn.sub %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%sub = nn.sub %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %mul = nn.mul %s, %x : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
%mul = nn.mul %s, %x : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %div = nn.div %x, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
%div = nn.div %x, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK: %neg = nn.neg %n : tensor<3x4x8xbf16>
%neg = nn.neg %n : tensor<3x4x8xbf16>

// Activations and their gradients
// CHECK: %relu = nn.relu %x : tensor<4x8xf32>
%relu = nn.relu %x : tensor<4x8xf32>
// CHECK: %gelu = nn.gelu %x : tensor<4x8xf32>
// GENERIC: %gelu = "nn.gelu"(%x) <{approximate = "none"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%gelu = nn.gelu %x : tensor<4x8xf32>
// CHECK: %gelu_tanh = nn.gelu %x {approximate = "tanh"} : tensor<4x8xf32>
%gelu_tanh = nn.gelu %x {approximate = "tanh"} : tensor<4x8xf32>
// CHECK: %silu = nn.silu %x : tensor<4x8xf32>
%silu = nn.silu %x : tensor<4x8xf32>
// CHECK: %tanh = nn.tanh %x : tensor<4x8xf32>
%tanh = nn.tanh %x : tensor<4x8xf32>
// CHECK: %sigmoid = nn.sigmoid %x : tensor<4x8xf32>
%sigmoid = nn.sigmoid %x : tensor<4x8xf32>
// CHECK: %relu_grad = nn.relu_grad %x, %relu : tensor<4x8xf32>
%relu_grad = nn.relu_grad %x, %relu : tensor<4x8xf32>
// CHECK: %gelu_grad = nn.gelu_grad %x, %x : tensor<4x8xf32>
%gelu_grad = nn.gelu_grad %x, %x : tensor<4x8xf32>
// CHECK: %gelu_tanh_grad = nn.gelu_grad %x, %x {approximate = "tanh"} : tensor<4x8xf32>
%gelu_tanh_grad = nn.gelu_grad %x, %x {approximate = "tanh"} : tensor<4x8xf32>
// CHECK: %silu_grad = nn.silu_grad %x, %x : tensor<4x8xf32>
%silu_grad = nn.silu_grad %x, %x : tensor<4x8xf32>
// CHECK: %tanh_grad = nn.tanh_grad %x, %tanh : tensor<4x8xf32>
%tanh_grad = nn.tanh_grad %x, %tanh : tensor<4x8xf32>
// CHECK: %sigmoid_grad = nn.sigmoid_grad %x, %sigmoid : tensor<4x8xf32>
%sigmoid_grad = nn.sigmoid_grad %x, %sigmoid : tensor<4x8xf32>

// Products
// CHECK: %l0 = nn.linear %x, %w : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// GENERIC: %l0 = "nn.linear"(%x, %w) <{allow_tf32 = false}> : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
%l0 = nn.linear %x, %w : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK: %l1 = nn.linear %x, %w, %b : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
%l1 = nn.linear %x, %w, %b : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %m0 = nn.matmul %x, %w {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// GENERIC: %m0 = "nn.matmul"(%x, %w) <{trans_a = false, trans_b = true, allow_tf32 = false}> : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
%m0 = nn.matmul %x, %w {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK: %m1 = nn.matmul %x, %y {trans_a = true} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
%m1 = nn.matmul %x, %y {trans_a = true} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
// CHECK: %l2 = nn.linear %x, %w {allow_tf32 = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
%l2 = nn.linear %x, %w {allow_tf32 = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK: %m3 = nn.matmul %x, %y {trans_a = true, allow_tf32 = true} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
%m3 = nn.matmul %x, %y {trans_a = true, allow_tf32 = true} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
// CHECK: %m2 = nn.matmul %n, %d : (tensor<3x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<3x4x5xbf16>
%m2 = nn.matmul %n, %d : (tensor<3x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<3x4x5xbf16>

// Shapes and element types
// CHECK: %reshape = nn.reshape %x : (tensor<4x8xf32>) -> tensor<2x16xf32>
%reshape = nn.reshape %x : (tensor<4x8xf32>) -> tensor<2x16xf32>
// CHECK: %transpose = nn.transpose %n {perm = array<i64: 2, 0, 1>} : (tensor<3x4x8xbf16>) -> tensor<8x3x4xbf16>
%transpose = nn.transpose %n {perm = array<i64: 2, 0, 1>} : (tensor<3x4x8xbf16>) -> tensor<8x3x4xbf16>
// CHECK: %broadcast = nn.broadcast_to %b : (tensor<2xf32>) -> tensor<4x2xf32>
%broadcast = nn.broadcast_to %b : (tensor<2xf32>) -> tensor<4x2xf32>
// CHECK: %cast = nn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xbf16>
%cast = nn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// CHECK: %one_hot = nn.cast %i : (tensor<4xi64>) -> tensor<4xf32>
%one_hot = nn.cast %i : (tensor<4xi64>) -> tensor<4xf32>

// Reductions
// CHECK: %sum = nn.sum %x {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
// GENERIC: %sum = "nn.sum"(%x) <{dims = array<i64: 0>, keepdim = false}> : (tensor<4x8xf32>) -> tensor<8xf32>
%sum = nn.sum %x {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
// CHECK: %total = nn.sum %x {dims = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
%total = nn.sum %x {dims = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
// CHECK: %kept = nn.mean %x {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
%kept = nn.mean %x {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
// CHECK: %none = nn.mean %x {dims = array<i64>} : tensor<4x8xf32>
%none = nn.mean %x {dims = array<i64>} : tensor<4x8xf32>

// Losses and their gradients
// CHECK: %mse = nn.mse_loss %y, %y : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<f32>
%mse = nn.mse_loss %y, %y : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<f32>
// CHECK: %mse_sum = nn.mse_loss %y, %y {reduction = "sum"} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<f32>
%mse_sum = nn.mse_loss %y, %y {reduction = "sum"} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<f32>
// CHECK: %mse_grad = nn.mse_loss_grad %s, %y, %y : (tensor<f32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
%mse_grad = nn.mse_loss_grad %s, %y, %y : (tensor<f32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
// CHECK: %ce = nn.cross_entropy %y, %i : (tensor<4x2xf32>, tensor<4xi64>) -> tensor<f32>
// GENERIC: %ce = "nn.cross_entropy"(%y, %i) <{reduction = "mean", ignore_index = -100 : i64, label_smoothing = 0.000000e+00 : f64}> : (tensor<4x2xf32>, tensor<4xi64>) -> tensor<f32>
%ce = nn.cross_entropy %y, %i : (tensor<4x2xf32>, tensor<4xi64>) -> tensor<f32>
// CHECK: %ce_all = nn.cross_entropy %y, %i {reduction = "sum", ignore_index = -1, label_smoothing = 0.1}
// CHECK-NEXT: : (tensor<4x2xf32>, tensor<4xi64>) -> tensor<f32>
%ce_all = nn.cross_entropy %y, %i {reduction = "sum", ignore_index = -1, label_smoothing = 0.1} : (tensor<4x2xf32>, tensor<4xi64>) -> tensor<f32>
// CHECK: %ce_grad = nn.cross_entropy_grad %s, %y, %i {ignore_index = 0}
// CHECK-NEXT: : (tensor<f32>, tensor<4x2xf32>, tensor<4xi64>) -> tensor<4x2xf32>
%ce_grad = nn.cross_entropy_grad %s, %y, %i {ignore_index = 0} : (tensor<f32>, tensor<4x2xf32>, tensor<4xi64>) -> tensor<4x2xf32>

// Attention: keys and values with a head for two of the queries; a mask that repeats
%q, %k, %v, %seen = "test.op"() : () -> (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<1x1x3x5xi1>)
// CHECK: %attended, %most, %mass = nn.attention %q, %k, %v {scale = 0.25}
// CHECK-NEXT: : (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>) -> (tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>,
// CHECK-NEXT: tensor<2x4x3xf32>)
%attended, %most, %mass = nn.attention %q, %k, %v {scale = 0.25} : (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>) -> (tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
// CHECK: nn.attention %q, %k, %v, %seen {causal = true, scale = 0.25}
%masked, %mlargest, %mtotal = nn.attention %q, %k, %v, %seen {causal = true, scale = 0.25} : (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<1x1x3x5xi1>) -> (tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
// CHECK: %dq, %dk, %dv = nn.attention_grad %attended, %q, %k, %v, %attended, %most, %mass {scale = 0.25}
%dq, %dk, %dv = nn.attention_grad %attended, %q, %k, %v, %attended, %most, %mass {scale = 0.25} : (tensor<2x4x3x6xbf16>, tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>)
// A mask that is added has a gradient for all queries and keys, in the type of the scores where it repeats
%bias = "test.op"() : () -> tensor<1x4x1x5xbf16>
// CHECK: %dmask = nn.attention_mask_grad %attended, %q, %k, %v, %attended, %most, %mass, %bias {scale = 0.25}
%dmask = nn.attention_mask_grad %attended, %q, %k, %v, %attended, %most, %mass, %bias {scale = 0.25} : (tensor<2x4x3x6xbf16>, tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x4x1x5xbf16>) -> tensor<1x4x3x5xf32>

// The same with dropout of the weights
%drawn = "test.op"() : () -> tensor<2xi64>
// CHECK: nn.attention_dropout %q, %k, %v, %drawn {p = 0.1, site = 3, causal = true, scale = 0.25}
%dropped, %dmost, %dmass = nn.attention_dropout %q, %k, %v, %drawn {causal = true, scale = 0.25, p = 0.1, site = 3} : (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<2xi64>) -> (tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
// CHECK: nn.attention_dropout_grad %dropped, %q, %k, %v, %dropped, %dmost, %dmass, %seen, %drawn
// CHECK-NEXT: {p = 0.1, site = 3, scale = 0.25}
%eq, %ek, %ev = nn.attention_dropout_grad %dropped, %q, %k, %v, %dropped, %dmost, %dmass, %seen, %drawn {scale = 0.25, p = 0.1, site = 3} : (tensor<2x4x3x6xbf16>, tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x1x3x5xi1>, tensor<2xi64>) -> (tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>)
%whole = "test.op"() : () -> tensor<1x1x3x5xbf16>
// CHECK: nn.attention_dropout_mask_grad %dropped, %q, %k, %v, %dropped, %dmost, %dmass, %whole, %drawn
%ebias = nn.attention_dropout_mask_grad %dropped, %q, %k, %v, %dropped, %dmost, %dmass, %whole, %drawn {scale = 0.25, p = 0.1, site = 3} : (tensor<2x4x3x6xbf16>, tensor<2x4x3x8xbf16>, tensor<2x2x5x8xbf16>, tensor<2x2x5x6xbf16>, tensor<2x4x3x6xbf16>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x1x3x5xbf16>, tensor<2xi64>) -> tensor<1x1x3x5xbf16>
// CHECK: nn.dropout %scores, %drawn {p = 0.1, site = 3, tiled = true}
%scores = "test.op"() : () -> tensor<2x4x3x5xf32>
%left = nn.dropout %scores, %drawn {p = 0.1, site = 3, tiled = true} : (tensor<2x4x3x5xf32>, tensor<2xi64>) -> tensor<2x4x3x5xf32>

// Checks
%status = "test.op"() : () -> tensor<3xi64>
// CHECK: %index = nn.check_index %status, %i {classes = 2, ignore_index = -100, code = 1}
// CHECK-NEXT: : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
// GENERIC: %index = "nn.check_index"(%status, %i) <{classes = 2 : i64, ignore_index = -100 : i64, code = 1 : i64}> : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
%index = nn.check_index %status, %i {code = 1, classes = 2, ignore_index = -100} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
// CHECK: %probable = nn.check_value %index, %x {rule = "probability", of = "bernoulli", code = 4}
// CHECK-NEXT: : (tensor<3xi64>, tensor<4x8xf32>) -> tensor<3xi64>
%probable = nn.check_value %index, %x {rule = "probability", of = "bernoulli", code = 4} : (tensor<3xi64>, tensor<4x8xf32>) -> tensor<3xi64>
// CHECK: %refused = nn.refused %i {rule = "divisor"} : (tensor<4xi64>) -> tensor<4xi1>
%refused = nn.refused %i {rule = "divisor"} : (tensor<4xi64>) -> tensor<4xi1>
// CHECK: %bare = nn.check_index %index, %i {classes = 2, code = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
%bare = nn.check_index %index, %i {code = 2, classes = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
// CHECK: %finite = nn.check_finite %bare, %s, %x {code = 3} : (tensor<3xi64>, tensor<f32>, tensor<4x8xf32>) -> tensor<3xi64>
%finite = nn.check_finite %bare, %s, %x {code = 3} : (tensor<3xi64>, tensor<f32>, tensor<4x8xf32>) -> tensor<3xi64>

// CHECK: %gathered = nn.all_gather %finite {group = "dp", ranks = 3} : (tensor<3xi64>) -> tensor<3x3xi64>
%gathered = nn.all_gather %finite {group = "dp", ranks = 3} : (tensor<3xi64>) -> tensor<3x3xi64>

// CHECK: %all, %statuses = nn.all_gather_status %x, %finite, %gathered {group = "dp", ranks = 3}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<3xi64>, tensor<3x3xi64>) -> (tensor<3x4x8xf32>, tensor<3x3xi64>)
%all, %statuses = nn.all_gather_status %x, %finite, %gathered {group = "dp", ranks = 3} : (tensor<4x8xf32>, tensor<3xi64>, tensor<3x3xi64>) -> (tensor<3x4x8xf32>, tensor<3x3xi64>)

// CHECK: %rows = nn.all_to_all %gathered, %all {group = "dp", ranks = 3}
// CHECK-NEXT: : (tensor<3x3xi64>, tensor<3x4x8xf32>) -> tensor<3x3xi64>
%rows = nn.all_to_all %gathered, %all {group = "dp", ranks = 3} : (tensor<3x3xi64>, tensor<3x4x8xf32>) -> tensor<3x3xi64>

// CHECK: %summed = nn.sum_of_ranks %s {group = "dp", ranks = 3} : tensor<f32>
%summed = nn.sum_of_ranks %s {group = "dp", ranks = 3} : tensor<f32>

// CHECK: %voted = nn.check_ranks %finite, %gathered {code = 4} : (tensor<3xi64>, tensor<3x3xi64>) -> tensor<3xi64>
%voted = nn.check_ranks %finite, %gathered {code = 4} : (tensor<3xi64>, tensor<3x3xi64>) -> tensor<3xi64>

// A gradient that is written down; the region reads values that are there before the op, and results as its last arguments
// CHECK: %straight = nn.custom_gradient of(%x) wrt(%x) : tensor<4x8xf32> {
// CHECK-NEXT: ^bb0(%dx: tensor<4x8xf32>):
// CHECK-NEXT:   %scaled = nn.mul %dx, %x : tensor<4x8xf32>
// CHECK-NEXT:   train.yield %scaled : (tensor<4x8xf32>) -> ()
// CHECK-NEXT: }
%straight = nn.custom_gradient of(%x) wrt(%x) : tensor<4x8xf32> {
^bb0(%dx: tensor<4x8xf32>):
  %scaled = nn.mul %dx, %x : tensor<4x8xf32>
  train.yield %scaled : (tensor<4x8xf32>) -> ()
}
// CHECK: %stopped = nn.custom_gradient of(%s) : tensor<f32> {
// GENERIC: %stopped = "nn.custom_gradient"(%s) <{operandSegmentSizes = array<i32: 1, 0>}> ({
%stopped = nn.custom_gradient of(%s) : tensor<f32> {
^bb0(%ds: tensor<f32>):
  train.yield : () -> ()
}

// Orders, running results and rows at places
%places = "test.op"() : () -> tensor<4xi64>
// CHECK: %order = nn.argsort %x {count = 3, descending = true} : (tensor<4x8xf32>) -> tensor<4x3xi64>
%order = nn.argsort %x {count = 3, descending = true} : (tensor<4x8xf32>) -> tensor<4x3xi64>
// CHECK: %middle = nn.argsort %x {count = 1, first = 4} : (tensor<4x8xf32>) -> tensor<4x1xi64>
%middle = nn.argsort %x {count = 1, first = 4} : (tensor<4x8xf32>) -> tensor<4x1xi64>
%image, %filter = "test.op"() : () -> (tensor<2x4x5x5xf32>, tensor<6x2x3x3xf32>)
// CHECK: %convolved = nn.convolution %image, %filter
%convolved = nn.convolution %image, %filter {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>, groups = 2} : (tensor<2x4x5x5xf32>, tensor<6x2x3x3xf32>) -> tensor<2x6x3x3xf32>
// CHECK: %with_bias = nn.convolution %image, %filter, %of_six
%of_six = "test.op"() : () -> tensor<6xf32>
%with_bias = nn.convolution %image, %filter, %of_six {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>, groups = 2} : (tensor<2x4x5x5xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<2x6x3x3xf32>
// CHECK: %dimage = nn.convolution_input_grad %convolved, %filter
%dimage = nn.convolution_input_grad %convolved, %filter {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 5, 5>, groups = 2} : (tensor<2x6x3x3xf32>, tensor<6x2x3x3xf32>) -> tensor<2x4x5x5xf32>
// CHECK: %dfilter = nn.convolution_weight_grad %image, %convolved
%dfilter = nn.convolution_weight_grad %image, %convolved {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>, groups = 2} : (tensor<2x4x5x5xf32>, tensor<2x6x3x3xf32>) -> tensor<6x2x3x3xf32>
// CHECK: %walked = nn.scan %x, %x {dim = 1, kind = "linear", reverse = true} : tensor<4x8xf32>
%walked = nn.scan %x, %x {dim = 1, kind = "linear", reverse = true} : tensor<4x8xf32>
// CHECK: %last = nn.scan %x {dim = 0, kind = "argmax"} : (tensor<4x8xf32>) -> tensor<4x8xi64>
%last = nn.scan %x {dim = 0, kind = "argmax"} : (tensor<4x8xf32>) -> tensor<4x8xi64>
// CHECK: %placed = nn.scatter_rows %x, %places, %x : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
%placed = nn.scatter_rows %x, %places, %x : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %joined = nn.scatter_reduce %x, %places, %x {kind = "max", include_self = false}
%joined = nn.scatter_reduce %x, %places, %x {kind = "max", include_self = false} : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>

// Windows: a tap is a position in a kernel
// CHECK: %largest = nn.window_max %image {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>
%largest = nn.window_max %image {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, spread = array<i64: 1, 1>, size = array<i64: 3, 3>} : (tensor<2x4x5x5xf32>) -> tensor<2x4x3x3xf32>
// CHECK: %tap = nn.window_tap %image, %largest
%tap = nn.window_tap %image, %largest {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, spread = array<i64: 1, 1>, size = array<i64: 3, 3>} : (tensor<2x4x5x5xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xi32>
// CHECK: %number = nn.window_index %tap
%number = nn.window_index %tap {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, spread = array<i64: 1, 1>, size = array<i64: 5, 5>} : (tensor<2x4x3x3xi32>) -> tensor<2x4x3x3xi64>
// CHECK: %routed = nn.window_route %largest, %tap
%routed = nn.window_route %largest, %tap {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, spread = array<i64: 1, 1>, size = array<i64: 5, 5>} : (tensor<2x4x3x3xf32>, tensor<2x4x3x3xi32>) -> tensor<2x4x5x5xf32>
