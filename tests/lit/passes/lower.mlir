// RUN: aicf-opt %s --lower --split-input-file | filecheck %s

// A linear layer is a product with the transposed weight, then the bias.
// CHECK-LABEL: func.func @linear
// CHECK-NEXT:    %y = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    %[[Y:.*]] = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    %z = kernel.gemm a(%x) b(%w) {trans_b = true} :
// CHECK-NEXT:    func.return %[[Y]], %z
func.func @linear(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = nn.linear %x, %w, %b : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %z = nn.linear %x, %w : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  func.return %y, %z : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// Leading dimensions are folded into rows, so that every linear layer is one 2-D product; none are one row.
// CHECK-LABEL: func.func @ranks
// CHECK-NEXT:      tensor<2xf32>) {
// CHECK-NEXT:    %[[ROWS:.*]] = kernel.reshape %x : (tensor<3x4x8xf32>) -> tensor<12x8xf32>
// CHECK-NEXT:    %[[GEMM:.*]] = kernel.gemm a(%[[ROWS]]) b(%w) {trans_b = true} : (tensor<12x8xf32>, tensor<2x8xf32>) -> tensor<12x2xf32>
// CHECK-NEXT:    %[[BIAS:.*]] = kernel.bias_add x(%[[GEMM]]) bias(%b)
// CHECK-NEXT:    %[[Y:.*]] = kernel.reshape %[[BIAS]] : (tensor<12x2xf32>) -> tensor<3x4x2xf32>
// CHECK-NEXT:    %[[ROW:.*]] = kernel.reshape %v : (tensor<8xf32>) -> tensor<1x8xf32>
// CHECK-NEXT:    %[[PRODUCT:.*]] = kernel.gemm a(%[[ROW]]) b(%w) {trans_b = true} : (tensor<1x8xf32>, tensor<2x8xf32>) -> tensor<1x2xf32>
// CHECK-NEXT:    %[[Z:.*]] = kernel.reshape %[[PRODUCT]] : (tensor<1x2xf32>) -> tensor<2xf32>
// CHECK-NEXT:    func.return %[[Y]], %[[Z]]
func.func @ranks(%x: tensor<3x4x8xf32>, %v: tensor<8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> (tensor<3x4x2xf32>, tensor<2xf32>) {
  %y = nn.linear %x, %w, %b : (tensor<3x4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<3x4x2xf32>
  %z = nn.linear %v, %w : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2xf32>
  func.return %y, %z : tensor<3x4x2xf32>, tensor<2xf32>
}

// -----

// CHECK-LABEL: func.func @matmul
// CHECK-NEXT:    %c = kernel.gemm a(%a) b(%b) {trans_a = true} : (tensor<3x8x4xf64>, tensor<3x8x2xf64>) -> tensor<3x4x2xf64>
// CHECK-NEXT:    %d = kernel.gemm a(%a) b(%a) {trans_b = true} :
func.func @matmul(%a: tensor<3x8x4xf64>, %b: tensor<3x8x2xf64>) -> (tensor<3x4x2xf64>, tensor<3x8x8xf64>) {
  %c = nn.matmul %a, %b {trans_a = true} : (tensor<3x8x4xf64>, tensor<3x8x2xf64>) -> tensor<3x4x2xf64>
  %d = nn.matmul %a, %a {trans_b = true} : (tensor<3x8x4xf64>, tensor<3x8x4xf64>) -> tensor<3x8x8xf64>
  func.return %c, %d : tensor<3x4x2xf64>, tensor<3x8x8xf64>
}

// -----

// The exact gelu and its approximation are two launches; both pass their name on to the gradient.
// CHECK-LABEL: func.func @elementwise
// CHECK-NEXT:    %0 = kernel.gelu x(%x) : tensor<4xf16>
// CHECK-NEXT:    %1 = kernel.gelu_tanh x(%0) : tensor<4xf16>
// CHECK-NEXT:    %2 = kernel.gelu_bwd dy(%1) saved(%x) : tensor<4xf16>
// CHECK-NEXT:    %3 = kernel.gelu_tanh_bwd dy(%2) saved(%x) : tensor<4xf16>
// CHECK-NEXT:    %4 = kernel.relu x(%3) : tensor<4xf16>
// CHECK-NEXT:    %5 = kernel.relu_bwd dy(%4) saved(%4) : tensor<4xf16>
// CHECK-NEXT:    %6 = kernel.silu x(%5) : tensor<4xf16>
// CHECK-NEXT:    %7 = kernel.silu_bwd dy(%6) saved(%6) : tensor<4xf16>
// CHECK-NEXT:    %8 = kernel.tanh x(%7) : tensor<4xf16>
// CHECK-NEXT:    %9 = kernel.tanh_bwd dy(%8) saved(%8) : tensor<4xf16>
// CHECK-NEXT:    %10 = kernel.sigmoid x(%9) : tensor<4xf16>
// CHECK-NEXT:    %11 = kernel.sigmoid_bwd dy(%10) saved(%10) : tensor<4xf16>
// CHECK-NEXT:    %12 = kernel.neg x(%11) : tensor<4xf16>
// CHECK-NEXT:    %13 = kernel.add x(%12) y(%x) : tensor<4xf16>
// CHECK-NEXT:    %14 = kernel.sub x(%13) y(%x) : tensor<4xf16>
// CHECK-NEXT:    %15 = kernel.mul x(%14) y(%x) : tensor<4xf16>
// CHECK-NEXT:    %16 = kernel.div x(%15) y(%s) : (tensor<4xf16>, tensor<f16>) -> tensor<4xf16>
func.func @elementwise(%x: tensor<4xf16>, %s: tensor<f16>) -> tensor<4xf16> {
  %0 = nn.gelu %x : tensor<4xf16>
  %1 = nn.gelu %0 {approximate = "tanh"} : tensor<4xf16>
  %2 = nn.gelu_grad %1, %x : tensor<4xf16>
  %3 = nn.gelu_grad %2, %x {approximate = "tanh"} : tensor<4xf16>
  %4 = nn.relu %3 : tensor<4xf16>
  %5 = nn.relu_grad %4, %4 : tensor<4xf16>
  %6 = nn.silu %5 : tensor<4xf16>
  %7 = nn.silu_grad %6, %6 : tensor<4xf16>
  %8 = nn.tanh %7 : tensor<4xf16>
  %9 = nn.tanh_grad %8, %8 : tensor<4xf16>
  %10 = nn.sigmoid %9 : tensor<4xf16>
  %11 = nn.sigmoid_grad %10, %10 : tensor<4xf16>
  %12 = nn.neg %11 : tensor<4xf16>
  %13 = nn.add %12, %x : tensor<4xf16>
  %14 = nn.sub %13, %x : tensor<4xf16>
  %15 = nn.mul %14, %x : tensor<4xf16>
  %16 = nn.div %15, %s : (tensor<4xf16>, tensor<f16>) -> tensor<4xf16>
  func.return %16 : tensor<4xf16>
}

// -----

// A mean is a sum with a divisor; a cast is a copy, a transpose that of a view; dimensions that are kept are in the result type.
// CHECK-LABEL: func.func @shapes
// CHECK-NEXT:      tensor<4x8xbf16>, tensor<32xf32>) {
// CHECK-NEXT:    %c = kernel.constant {value = 0.5} : tensor<f32>
// CHECK-NEXT:    %sum = kernel.reduce_sum x(%x) {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<1x8xf32>
// CHECK-NEXT:    %mean = kernel.reduce_sum x(%x) {dims = array<i64: 0, 1>, divisor = 32.0} : (tensor<4x8xf32>) -> tensor<f32>
// CHECK-NEXT:    %view = kernel.view %x : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
// CHECK-NEXT:    %transpose = kernel.copy x(%view) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
// CHECK-NEXT:    %view_1 = kernel.view %c : (tensor<f32>) -> tensor<4x8xf32, strided<[0, 0]>>
// CHECK-NEXT:    %broadcast = kernel.copy x(%view_1) : (tensor<4x8xf32, strided<[0, 0]>>) -> tensor<4x8xf32>
// CHECK-NEXT:    %cast = kernel.copy x(%x) : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// CHECK-NEXT:    %flat = kernel.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>
// CHECK-NEXT:    %double = kernel.add x(%flat) y(%flat) : tensor<32xf32>
// CHECK-NEXT:    func.return %sum, %mean, %transpose, %broadcast, %cast, %double
func.func @shapes(%x: tensor<4x8xf32>) -> (tensor<1x8xf32>, tensor<f32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xbf16>, tensor<32xf32>) {
  %c = nn.constant {value = 0.5} : tensor<f32>
  %sum = nn.sum %x {dims = array<i64: 0>, keepdim = true} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %mean = nn.mean %x {dims = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %transpose = nn.transpose %x {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %broadcast = nn.broadcast_to %c : (tensor<f32>) -> tensor<4x8xf32>
  %cast = nn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %flat = nn.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>
  %double = nn.add %flat, %flat : tensor<32xf32>
  func.return %sum, %mean, %transpose, %broadcast, %cast, %double : tensor<1x8xf32>, tensor<f32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xbf16>, tensor<32xf32>
}

// -----

// Attributes of losses are written out, defaults too.
// CHECK-LABEL: func.func @losses
// CHECK:         %mse = kernel.mse_loss y(%y) t(%y) {reduction = "mean"} :
// CHECK-NEXT:    %dmse = kernel.mse_grad dloss(%mse) y(%y) t(%y) {reduction = "sum"}
// CHECK-NEXT:      : (tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %ce = kernel.cross_entropy logits(%y) target(%t) {ignore_index = -100, label_smoothing = 0.0, reduction = "mean"}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>
// CHECK-NEXT:    %dce = kernel.cross_entropy_grad dloss(%ce) logits(%y) target(%t)
// CHECK-NEXT: {ignore_index = 1, label_smoothing = 0.1, reduction = "sum"}
// CHECK-NEXT:      : (tensor<f32>, tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
func.func @losses(%y: tensor<4x8xf32>, %t: tensor<4xi64>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %mse = nn.mse_loss %y, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  %dmse = nn.mse_loss_grad %mse, %y, %y {reduction = "sum"} : (tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %ce = nn.cross_entropy %y, %t : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>
  %dce = nn.cross_entropy_grad %ce, %y, %t {reduction = "sum", ignore_index = 1, label_smoothing = 0.1} : (tensor<f32>, tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  func.return %dmse, %dce : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Updates: the tensors first, then the scalars of their group.
// CHECK-LABEL: func.func @updates
// CHECK:         %s, %b1, %b2 = kernel.advance step(%step) beta1(%h) beta2(%h) bc1_pin(%pin) bc2_pin(%pin) -> step, bc1_inv, bc2_inv
// CHECK-NEXT:      : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>,
// CHECK-NEXT:        tensor<3xf64>)
// CHECK-NEXT:    %p1 = kernel.sgd_step p(%p) g(%g) lr(%lr) weight_decay(%h) {groups = array<i64: 0>, maximize = true}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
// CHECK-NEXT:    %p2, %buf = kernel.sgd_step p(%p1) g(%g) buf(%m) lr(%lr) weight_decay(%h) momentum(%mu) dampening(%h) step(%s)
// CHECK-NEXT:      {groups = array<i64: 0>, indices = array<i64: 0>, nesterov = true}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>)
func.func @updates(%p: tensor<4xf32>, %g: tensor<4xf32>, %m: tensor<4xf32>, %lr: tensor<f64>, %mu: tensor<f64>, %h: tensor<f64>, %pin: tensor<f64>, %step: tensor<3xf32>) -> tensor<4xf32> {
  %s, %b1, %b2 = optim.advance %step, %h, %h, %pin, %pin : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf64>)
  %p1 = optim.sgd %p, %g, %lr, %h {maximize = true} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %p2, %buf = optim.sgd %p1, %g, %lr, %h, %m, %mu, %h, %s {index = 0, nesterov = true} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %p3, %m3, %v3, %x3 = optim.adam %p2, %g, %m, %buf, %lr, %h, %h, %h, %h, %b1, %b2, %m {index = 2, amsgrad = true, decoupled = true} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return %p3 : tensor<4xf32>
}

// -----

// Every result has memory of its own: an argument, a constant and what is returned already are copied, also through
// a reshape, but not an argument that stays as it is. Arguments are copied first, so that updates may take their places.
// CHECK-LABEL: func.func @results
// CHECK-NEXT:      %x: tensor<2x2xf32> {aicf.role = "input", aicf.name = "x"},
// CHECK-NEXT:      %p: tensor<2x2xf32> {aicf.role = "param", aicf.name = "p"},
// CHECK-NEXT:      %q: tensor<2x2xf32> {aicf.role = "param", aicf.name = "q"}
// CHECK-NEXT:    ) -> (
// CHECK-NEXT:      tensor<2x2xf32> {aicf.role = "output", aicf.name = "a"},
// CHECK-NEXT:      tensor<f32> {aicf.role = "output", aicf.name = "b"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "output", aicf.name = "c"},
// CHECK-NEXT:      tensor<2x2xf32> {aicf.role = "output", aicf.name = "d"},
// CHECK-NEXT:      tensor<2x2xf32> {aicf.role = "output", aicf.name = "e"},
// CHECK-NEXT:      tensor<2x2xf32> {aicf.role = "update", aicf.name = "p"},
// CHECK-NEXT:      tensor<2x2xf32> {aicf.role = "update", aicf.name = "q"}
// CHECK-NEXT:    ) {
// CHECK-NEXT:    %[[OTHER:.*]] = kernel.copy x(%p) : tensor<2x2xf32>
// CHECK-NEXT:    %[[ARGUMENT:.*]] = kernel.copy x(%x) : tensor<2x2xf32>
// CHECK-NEXT:    %c = kernel.constant {value = 1.0}
// CHECK-NEXT:    %y = kernel.relu x(%x)
// CHECK-NEXT:    %flat = kernel.reshape %x
// CHECK-NEXT:    %[[ALIAS:.*]] = kernel.copy x(%flat) : tensor<4xf32>
// CHECK-NEXT:    %[[CONSTANT:.*]] = kernel.copy x(%c) : tensor<f32>
// CHECK-NEXT:    %[[SECOND:.*]] = kernel.copy x(%y) : tensor<2x2xf32>
// CHECK-NEXT:    func.return %[[ARGUMENT]], %[[CONSTANT]], %[[ALIAS]], %y, %[[SECOND]], %p, %[[OTHER]]
func.func @results(
    %x: tensor<2x2xf32> {aicf.role = "input", aicf.name = "x"},
    %p: tensor<2x2xf32> {aicf.role = "param", aicf.name = "p"},
    %q: tensor<2x2xf32> {aicf.role = "param", aicf.name = "q"})
    -> (tensor<2x2xf32> {aicf.role = "output", aicf.name = "a"}, tensor<f32> {aicf.role = "output", aicf.name = "b"},
        tensor<4xf32> {aicf.role = "output", aicf.name = "c"}, tensor<2x2xf32> {aicf.role = "output", aicf.name = "d"},
        tensor<2x2xf32> {aicf.role = "output", aicf.name = "e"}, tensor<2x2xf32> {aicf.role = "update", aicf.name = "p"},
        tensor<2x2xf32> {aicf.role = "update", aicf.name = "q"}) {
  %c = nn.constant {value = 1.0} : tensor<f32>
  %y = nn.relu %x : tensor<2x2xf32>
  %flat = nn.reshape %x : (tensor<2x2xf32>) -> tensor<4xf32>
  func.return %x, %c, %flat, %y, %y, %p, %p : tensor<2x2xf32>, tensor<f32>, tensor<4xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// Checks are launches; a status that is returned as it came needs none.
// CHECK-LABEL: func.func @checks
// CHECK-NEXT:    %[[INDEX:.*]] = kernel.check_index status(%s) target(%t) {classes = array<i64: 2>, code = 1, ignore_index = array<i64: -1>}
// CHECK-NEXT:        : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
// CHECK-NEXT:    %[[FINITE:.*]] = kernel.check_finite status(%[[INDEX]]) x(%x) {code = 2}
// CHECK-NEXT:    func.return %[[FINITE]]
// CHECK-LABEL: func.func @unchecked
// CHECK-NEXT:      tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}
// CHECK-NEXT:    ) {
// CHECK-NEXT:    func.return %s
func.func @checks(%s: tensor<3xi64>, %t: tensor<4xi64>, %x: tensor<4xf32>) -> tensor<3xi64> {
  %index = nn.check_index %s, %t {classes = 2, code = 1, ignore_index = -1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %finite = nn.check_finite %index, %x {code = 2} : (tensor<3xi64>, tensor<4xf32>) -> tensor<3xi64>
  func.return %finite : tensor<3xi64>
}
func.func @unchecked(%s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) -> (tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  func.return %s : tensor<3xi64>
}

// -----

// Integers are computed in their own type, by a generated kernel; a number is repeated by a view.
// CHECK-LABEL: func.func @count
// CHECK:         %one = kernel.constant {value = 1.0} : tensor<i64>
// CHECK-NEXT:    %[[ONE:.*]] = kernel.view %one : (tensor<i64>) -> tensor<4xi64, strided<[0]>>
// CHECK-NEXT:    %next = kernel.map x(%n, %[[ONE]]) {body = @add, shape = array<i64: 4>}
// CHECK:         func.return %next
func.func @count(%n: tensor<4xi64> {aicf.role = "buffer", aicf.name = "n"}) -> (tensor<4xi64> {aicf.role = "update", aicf.name = "n"}) {
  %one = nn.constant {value = 1.0} : tensor<i64>
  %next = nn.add %n, %one : (tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
  func.return %next : tensor<4xi64>
}

// -----

// A detach that is not differentiated sees the memory of its operand.
// CHECK-LABEL: func.func @detached
// CHECK-NEXT:    %y = kernel.relu x(%x)
// CHECK-NEXT:    %z = kernel.reshape %y
// CHECK-NEXT:    func.return %z
func.func @detached(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.relu %x : tensor<4xf32>
  %z = nn.detach %y : tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// -----

// A copy of each part; and each part copied to its place in what they are joined to.
// CHECK-LABEL: func.func @slices
// CHECK-NEXT:    %view = kernel.view %x : (tensor<4x8xf32>) -> tensor<4x3xf32, strided<[8, 1]>>
// CHECK-NEXT:    %view_1 = kernel.view %x : (tensor<4x8xf32>) -> tensor<4x5xf32, strided<[8, 1], offset: 3>>
// CHECK-NEXT:    %a = kernel.copy x(%view) : (tensor<4x3xf32, strided<[8, 1]>>) -> tensor<4x3xf32>
// CHECK-NEXT:    %b = kernel.copy x(%view_1) : (tensor<4x5xf32, strided<[8, 1], offset: 3>>) -> tensor<4x5xf32>
// CHECK-NEXT:    %y = kernel.copy x(%b) : (tensor<4x5xf32>) -> tensor<4x5xf32, strided<[8, 1]>>
// CHECK-NEXT:    %y_1 = kernel.copy x(%a) : (tensor<4x3xf32>) -> tensor<4x3xf32, strided<[8, 1], offset: 5>>
// CHECK-NEXT:    %y_2 = kernel.join %y, %y_1
// CHECK-NEXT:      : (tensor<4x5xf32, strided<[8, 1]>>, tensor<4x3xf32, strided<[8, 1], offset: 5>>) -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %y_2
func.func @slices(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a, %b = nn.split %x {dim = 1, sizes = array<i64: 3, 5>} : (tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32>)
  %y = nn.concat %b, %a {dim = 1} : (tensor<4x5xf32>, tensor<4x3xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// -----

// A product that may round its operands to TF32 says so to its launch.
// CHECK-LABEL: func.func @tf32
// CHECK-NEXT:    %c = kernel.gemm a(%a) b(%b) {allow_tf32 = true, trans_a = true}{{$}}
// CHECK:         %d = kernel.gemm a(%b) b(%b) {allow_tf32 = true, trans_b = true}{{$}}
// CHECK:         %e = kernel.gemm a(%b) b(%b) {trans_b = true} :
func.func @tf32(%a: tensor<8x4xf32>, %b: tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = nn.matmul %a, %b {trans_a = true, allow_tf32 = true} : (tensor<8x4xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %d = nn.linear %b, %b {allow_tf32 = true} : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x8xf32>
  %e = nn.linear %b, %b : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x8xf32>
  func.return %c, %d, %e : tensor<4x2xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
