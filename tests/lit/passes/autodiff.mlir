// RUN: aicf-opt %s --autodiff --split-input-file --verify-diagnostics | filecheck %s

// A linear layer is one product each for x and w, and a sum for the bias; x is no param, so its product is not made.
// CHECK-LABEL: func.func @mlp
// CHECK:         -> (
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:      tensor<8x4xf32> {aicf.role = "grad", aicf.name = "0.weight"},
// CHECK-NEXT:      tensor<8xf32> {aicf.role = "grad", aicf.name = "0.bias"},
// CHECK-NEXT:      tensor<2x8xf32> {aicf.role = "grad", aicf.name = "2.weight"}
// CHECK-NEXT:    )
// CHECK:         %loss = nn.mse_loss %y, %t
// CHECK-NEXT:    %dloss = nn.constant {value = 1.0} : tensor<f32>
// CHECK-NEXT:    %dy = nn.mse_loss_grad %dloss, %y, %t : (tensor<f32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
// CHECK-NEXT:    %da = nn.matmul %dy, %w1 : (tensor<3x2xf32>, tensor<2x8xf32>) -> tensor<3x8xf32>
// CHECK-NEXT:    %dw1 = nn.matmul %dy, %a {trans_a = true} : (tensor<3x2xf32>, tensor<3x8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT:    %dh = nn.relu_grad %da, %a : tensor<3x8xf32>
// CHECK-NEXT:    %dw0 = nn.matmul %dh, %x {trans_a = true} : (tensor<3x8xf32>, tensor<3x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:    %db0 = nn.sum %dh {dims = array<i64: 0>} : (tensor<3x8xf32>) -> tensor<8xf32>
// CHECK-NEXT:    func.return %loss, %dw0, %db0, %dw1
func.func @mlp(
    %x: tensor<3x4xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<3x2xf32> {aicf.role = "input", aicf.name = "t"},
    %w0: tensor<8x4xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %b0: tensor<8xf32> {aicf.role = "param", aicf.name = "0.bias"},
    %w1: tensor<2x8xf32> {aicf.role = "param", aicf.name = "2.weight"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %h = nn.linear %x, %w0, %b0 : (tensor<3x4xf32>, tensor<8x4xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  %a = nn.relu %h : tensor<3x8xf32>
  %y = nn.linear %a, %w1 : (tensor<3x8xf32>, tensor<2x8xf32>) -> tensor<3x2xf32>
  %loss = nn.mse_loss %y, %t : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// Leading dimensions are folded into rows, so that every product stays 2-D.
// CHECK-LABEL: func.func @batched_linear
// CHECK:         %[[DY:.*]] = nn.broadcast_to
// CHECK-NEXT:    %[[X:.*]] = nn.reshape %x : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
// CHECK-NEXT:    %[[G:.*]] = nn.reshape %[[DY]] : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT:    %[[DX:.*]] = nn.matmul %[[G]], %w : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
// CHECK-NEXT:    %dx = nn.reshape %[[DX]] : (tensor<6x4xf32>) -> tensor<2x3x4xf32>
// CHECK-NEXT:    %dw = nn.matmul %[[G]], %[[X]] {trans_a = true} : (tensor<6x8xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:    %db = nn.sum %[[G]] {dims = array<i64: 0>} : (tensor<6x8xf32>) -> tensor<8xf32>
func.func @batched_linear(
    %x: tensor<2x3x4xf32> {aicf.role = "param", aicf.name = "x"},
    %w: tensor<8x4xf32> {aicf.role = "param", aicf.name = "w"},
    %b: tensor<8xf32> {aicf.role = "param", aicf.name = "b"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %y = nn.linear %x, %w, %b : (tensor<2x3x4xf32>, tensor<8x4xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  %loss = nn.sum %y {dims = array<i64: 0, 1, 2>} : (tensor<2x3x8xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// A value with two users adds up; a broadcast operand is summed back to its shape, the mean divides before it spreads.
// CHECK-LABEL: func.func @broadcast
// CHECK:         %[[SEED:.*]] = nn.constant {value = 1.0} : tensor<f32>
// CHECK-NEXT:    %[[N:.*]] = nn.constant {value = 32.0} : tensor<f32>
// CHECK-NEXT:    %[[G:.*]] = nn.div %[[SEED]], %[[N]] : tensor<f32>
// CHECK-NEXT:    %[[G2:.*]] = nn.reshape %[[G]] : (tensor<f32>) -> tensor<1x1xf32>
// CHECK-NEXT:    %[[DZ:.*]] = nn.broadcast_to %[[G2]] : (tensor<1x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[DY:.*]] = nn.mul %[[DZ]], %s : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[DS:.*]] = nn.mul %[[DZ]], %y : tensor<4x8xf32>
// CHECK-NEXT:    %ds = nn.sum %[[DS]] {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
// CHECK-NEXT:    %[[DB1:.*]] = nn.sum %[[DY]] {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
// CHECK-NEXT:    %[[DB2:.*]] = nn.sum %[[DY]] {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
// CHECK-NEXT:    %db = nn.add %[[DB1]], %[[DB2]] : tensor<8xf32>
// CHECK-NEXT:    func.return %loss, %db, %ds
func.func @broadcast(
    %x: tensor<4x8xf32> {aicf.role = "input", aicf.name = "x"},
    %b: tensor<8xf32> {aicf.role = "param", aicf.name = "b"},
    %s: tensor<4x1xf32> {aicf.role = "param", aicf.name = "s"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %once = nn.add %x, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %y = nn.add %once, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %z = nn.mul %y, %s : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %loss = nn.mean %z {dims = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// relu, tanh and sigmoid are differentiated by their results, gelu and silu by their operands.
// CHECK-LABEL: func.func @activations
// CHECK:         nn.relu_grad %{{.*}}, %relu
// CHECK-NEXT:    nn.sigmoid_grad %{{.*}}, %sigmoid
// CHECK-NEXT:    nn.tanh_grad %{{.*}}, %tanh
// CHECK-NEXT:    nn.silu_grad %{{.*}}, %gelu
// CHECK-NEXT:    nn.gelu_grad %{{.*}}, %w {approximate = "tanh"}
func.func @activations(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %gelu = nn.gelu %w {approximate = "tanh"} : tensor<4xf32>
  %silu = nn.silu %gelu : tensor<4xf32>
  %tanh = nn.tanh %silu : tensor<4xf32>
  %sigmoid = nn.sigmoid %tanh : tensor<4xf32>
  %relu = nn.relu %sigmoid : tensor<4xf32>
  %loss = nn.sum %relu {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// The flags of a product decide those of its gradients; no transpose is ever made.
// CHECK-LABEL: func.func @matmul
// CHECK:         %[[G:.*]] = nn.broadcast_to
// CHECK-NEXT:    %da = nn.matmul %b, %[[G]] {trans_a = true, trans_b = true}
// CHECK-NEXT:      : (tensor<5x3x2xf32>, tensor<5x4x3xf32>) -> tensor<5x2x4xf32>
// CHECK-NEXT:    %db = nn.matmul %[[G]], %a {trans_a = true, trans_b = true}
// CHECK-NEXT:      : (tensor<5x4x3xf32>, tensor<5x2x4xf32>) -> tensor<5x3x2xf32>
func.func @matmul(
    %a: tensor<5x2x4xf32> {aicf.role = "param", aicf.name = "a"},
    %b: tensor<5x3x2xf32> {aicf.role = "param", aicf.name = "b"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %y = nn.matmul %a, %b {trans_a = true, trans_b = true} : (tensor<5x2x4xf32>, tensor<5x3x2xf32>) -> tensor<5x4x3xf32>
  %loss = nn.sum %y {dims = array<i64: 0, 1, 2>} : (tensor<5x4x3xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// Class indices get no gradient; the attributes go along. A cast is undone by a cast.
// CHECK-LABEL: func.func @cross_entropy
// CHECK:         %[[D:.*]] = nn.cross_entropy_grad %{{.*}}, %half, %t {reduction = "sum", ignore_index = -1, label_smoothing = 0.1}
// CHECK-NEXT:      : (tensor<f16>, tensor<4x8xf16>, tensor<4xi64>) -> tensor<4x8xf16>
// CHECK-NEXT:    %dw = nn.cast %[[D]] : (tensor<4x8xf16>) -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %loss, %dw
func.func @cross_entropy(
    %w: tensor<4x8xf32> {aicf.role = "param", aicf.name = "w"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"}) -> (tensor<f16> {aicf.role = "loss"}) {
  %half = nn.cast %w : (tensor<4x8xf32>) -> tensor<4x8xf16>
  %loss = nn.cross_entropy %half, %t {reduction = "sum", ignore_index = -1, label_smoothing = 0.1} : (tensor<4x8xf16>, tensor<4xi64>) -> tensor<f16>
  func.return %loss : tensor<f16>
}

// -----

// A param that does not reach the loss has no gradient. Other results stay where they are.
// CHECK-LABEL: func.func @dead
// CHECK:         -> (
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "output", aicf.name = "y"},
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}
// CHECK-NEXT:    )
// CHECK:         func.return %y, %loss, %dw
func.func @dead(
    %unused: tensor<4xf32> {aicf.role = "param", aicf.name = "unused"},
    %beside: tensor<4xf32> {aicf.role = "param", aicf.name = "beside"},
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"}, tensor<f32> {aicf.role = "loss"}) {
  %y = nn.mul %w, %beside : tensor<4xf32>
  %loss = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %y, %loss : tensor<4xf32>, tensor<f32>
}

// -----

// A fused gradient is written by other ops where it is differentiated again, and only there.
// CHECK-LABEL: func.func @second_derivative
// CHECK:         %mul = nn.mul %y, %y
// CHECK:         %sub = nn.sub %constant, %mul
// CHECK-NEXT:    %dw = nn.mul %one, %sub
// CHECK:         %dw_1 = nn.tanh_grad %dy, %y
func.func @second_derivative(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %y = nn.tanh %w : tensor<4xf32>
  %one = nn.constant {value = 1.0} : tensor<4xf32>
  %dw = train.gradient of(%y) seeds(%one) wrt(%w) {create_graph = true} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %loss = nn.sum %dw {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// A gradient without create_graph is a constant to later ones.
// CHECK-LABEL: func.func @constant_gradient
// CHECK:         %dw = nn.tanh_grad %one, %y
// CHECK:         %dw_1 = nn.mul %dp, %dw
// CHECK-NEXT:    func.return %loss, %dw_1
func.func @constant_gradient(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %y = nn.tanh %w : tensor<4xf32>
  %one = nn.constant {value = 1.0} : tensor<4xf32>
  %dw = train.gradient of(%y) seeds(%one) wrt(%w) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %p = nn.mul %dw, %w : tensor<4xf32>
  %loss = nn.sum %p {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// Of two equal values only the one that is asked for counts.
// CHECK-LABEL: func.func @one_of_two
// CHECK:         %da1 = nn.mul %one, %b
// CHECK:         func.return %loss, %da1, %dw
func.func @one_of_two(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "output", aicf.name = "g"}) {
  %a = nn.neg %w : tensor<4xf32>
  %a1 = train.input %a : tensor<4xf32>
  %b = nn.neg %w : tensor<4xf32>
  %b1 = train.input %b : tensor<4xf32>
  %y = nn.mul %a1, %b1 : tensor<4xf32>
  %one = nn.constant {value = 1.0} : tensor<4xf32>
  %da = train.gradient of(%y) seeds(%one) wrt(%a1) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %loss = nn.sum %y {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss, %da : tensor<f32>, tensor<4xf32>
}

// -----

// An op without a gradient beside the way does no harm.
// CHECK-LABEL: func.func @beside
// CHECK:         func.return %loss, %dw
func.func @beside(
    %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %m = nn.relu_grad %x, %x : tensor<4xf32>
  %y = nn.mul %w, %m : tensor<4xf32>
  %loss = nn.sum %y {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// expected-error@below {{expected one result of @no_loss with aicf.role = "loss", got 0}}
func.func @no_loss(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> tensor<f32> {
  func.return %w : tensor<f32>
}

// -----

// expected-error@below {{expected one result of @two_losses with aicf.role = "loss", got 2}}
func.func @two_losses(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "a"}, tensor<f32> {aicf.role = "loss", aicf.name = "b"}) {
  func.return %w, %w : tensor<f32>, tensor<f32>
}

// -----

// expected-error@below {{expected a 0-d floating-point loss of @vector, got tensor<4xf32>}}
func.func @vector(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "loss"}) {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{expected a 0-d floating-point loss of @no_tensor, got f32}}
func.func @no_tensor(%w: f32 {aicf.role = "input", aicf.name = "w"}) -> (f32 {aicf.role = "loss"}) {
  func.return %w : f32
}

// -----

func.func @foreign(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  // expected-error@below {{'test.op' is on the way from a parameter to the loss but has no gradient: it has no vector-Jacobian product}}
  %i, %y = "test.op"(%w) : (tensor<f32>) -> (i32, tensor<f32>)
  func.return %y : tensor<f32>
}

// -----

// expected-error@below {{the loss of @frozen depends on no argument with aicf.role = "param"}}
func.func @frozen(
    %x: tensor<f32> {aicf.role = "buffer", aicf.name = "x"},
    %w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  func.return %x : tensor<f32>
}

// -----

// expected-error@below {{@twice has gradients among its results: it is differentiated already}}
func.func @twice(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}, tensor<f32> {aicf.role = "grad", aicf.name = "w"}) {
  func.return %w, %w : tensor<f32>, tensor<f32>
}

// -----

// An update stays among the results. No gradient flows through a detach, which gives way to its operand.
// CHECK-LABEL: func.func @running_mean
// CHECK:         -> (
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "update", aicf.name = "mean"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}
// CHECK-NEXT:    ) {
// CHECK:         %h = nn.mul %x, %w : tensor<4xf32>
// CHECK-NEXT:    %new = nn.add %mean, %h : tensor<4xf32>
// CHECK-NEXT:    %y = nn.sub %h, %new : tensor<4xf32>
// CHECK-NEXT:    %loss = nn.sum %y
// CHECK-NOT:     nn.neg
// CHECK-NOT:     nn.detach
// CHECK:         func.return %loss, %new, %dw
func.func @running_mean(
    %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %mean: tensor<4xf32> {aicf.role = "buffer", aicf.name = "mean"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "update", aicf.name = "mean"}) {
  %h = nn.mul %x, %w : tensor<4xf32>
  %now = nn.detach %h : tensor<4xf32>
  %new = nn.add %mean, %now : tensor<4xf32>
  %y = nn.sub %h, %new : tensor<4xf32>
  %loss = nn.sum %y {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss, %new : tensor<f32>, tensor<4xf32>
}

// -----

// A loss that reaches its parameters through a detach only has no gradient.
// expected-error@below {{the loss of @cut depends on no argument with aicf.role = "param"}}
func.func @cut(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %loss = nn.detach %w : tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// Of several results only one reaches the loss: nothing is computed for the other.
// CHECK-LABEL: func.func @mean_of_two
// CHECK:         %variance, %mean = nn.var_mean %w
// CHECK:         %loss = nn.sum %mean
// CHECK-NEXT:    %[[ONE:.*]] = nn.constant {value = 1.0} : tensor<f32>
// CHECK-NEXT:    nn.reshape %[[ONE]]
// CHECK-NOT:     nn.sub
// CHECK:         func.return %loss, %dw
func.func @mean_of_two(%w: tensor<4x3xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %variance, %mean = nn.var_mean %w {dims = array<i64: 0>, correction = 1.0} : (tensor<4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %loss = nn.sum %mean {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// A count that a 16-bit type may not have divides in float32.
// CHECK-LABEL: func.func @mean_of_halves
// CHECK:         %[[ONE:.*]] = nn.constant {value = 1.0} : tensor<f16>
// CHECK-NEXT:    %[[WIDE:.*]] = nn.cast %[[ONE]] : (tensor<f16>) -> tensor<f32>
// CHECK-NEXT:    %[[COUNT:.*]] = nn.constant {value = 100000.0} : tensor<f32>
// CHECK-NEXT:    %[[G:.*]] = nn.div %[[WIDE]], %[[COUNT]] : tensor<f32>
// CHECK-NEXT:    nn.cast %[[G]] : (tensor<f32>) -> tensor<f16>
func.func @mean_of_halves(%w: tensor<100000xf16> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f16> {aicf.role = "loss"}) {
  %loss = nn.mean %w {dims = array<i64: 0>} : (tensor<100000xf16>) -> tensor<f16>
  func.return %loss : tensor<f16>
}

// -----

// The mask of a dropout is drawn again
// CHECK-LABEL: func.func @dropout
// CHECK:         %b = nn.dropout %a, %r {p = 0.1, site = 3}
// CHECK:         %da = nn.dropout %db, %r {p = 0.1, site = 3}
// CHECK-NEXT:    nn.matmul %x, %da {trans_a = true}
func.func @dropout(%x: tensor<8x4xf32> {aicf.role = "input", aicf.name = "x"}, %w: tensor<4x6xf32> {aicf.role = "param", aicf.name = "w"}, %r: tensor<2xi64> {aicf.role = "buffer", aicf.name = "random"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}) {
  %a = nn.matmul %x, %w : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %b = nn.dropout %a, %r {p = 0.1, site = 3} : (tensor<8x6xf32>, tensor<2xi64>) -> tensor<8x6xf32>
  %l = nn.sum %b {dims = array<i64: 0, 1>} : (tensor<8x6xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// What a gradient or an update gives is a constant to every later gradient, as in torch.
// CHECK-LABEL: func.func @constant
// CHECK:         %dw = nn.broadcast_to
// CHECK-NEXT:    %y = nn.mul %dw, %dw
// CHECK-NEXT:    %b = nn.sum %y
// CHECK-NEXT:    %dw_1 = nn.constant {value = 0.0} : tensor<4xf32>
// CHECK-NEXT:    func.return %a, %dw_1
func.func @constant(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "output", aicf.name = "g"}) {
  %a = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw = train.backward %a, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %y = nn.mul %dw, %dw : tensor<4xf32>
  %b = nn.sum %y {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %none = train.backward %b, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %none : tensor<f32>, tensor<4xf32>
}

// -----

// A gradient that is written down stands where the gradients are taken; what it is of gets none, and it goes. Two that are equal
// are two, for a clamp of a sum is not the sum of the clamps.
// CHECK-LABEL: func.func @custom_gradient
// CHECK:         %r = nn.round %w : tensor<4xf32>
// CHECK-NOT:     nn.custom_gradient
// CHECK:         %limited{{[0-9_]*}} = nn.neg
// CHECK:         %limited{{[0-9_]*}} = nn.neg
// CHECK-NEXT:    %dw = nn.add
func.func @custom_gradient(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %r = nn.round %w : tensor<4xf32>
  %a = nn.custom_gradient of(%r) wrt(%w) : tensor<4xf32> {
  ^bb0(%da: tensor<4xf32>):
    %limited = nn.neg %da : tensor<4xf32>
    train.yield %limited : (tensor<4xf32>) -> ()
  }
  %b = nn.custom_gradient of(%r) wrt(%w) : tensor<4xf32> {
  ^bb0(%db: tensor<4xf32>):
    %limited = nn.neg %db : tensor<4xf32>
    train.yield %limited : (tensor<4xf32>) -> ()
  }
  %p = nn.mul %a, %b : tensor<4xf32>
  %loss = nn.sum %p {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// A second argument is the result itself: a gradient of the gradient flows through it. Each derivative of an exponential
// function is its value.
// CHECK-LABEL: func.func @differentiated_again
// CHECK-NOT:     nn.custom_gradient
// CHECK:         [[FIRST:%[a-z0-9_.]+]] = nn.mul %{{[a-z0-9_]+}}, %raw
// CHECK:         [[SECOND:%[a-z0-9_.]+]] = nn.mul %{{[a-z0-9_]+}}, %raw
// CHECK:         func.return %dw, [[SECOND]]
func.func @differentiated_again(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %raw = nn.exp %w : tensor<f32>
  %cut = nn.detach %raw : tensor<f32>
  %y = nn.custom_gradient of(%cut) wrt(%w) : tensor<f32> {
  ^bb0(%dy: tensor<f32>, %saved: tensor<f32>):
    %dw = nn.mul %dy, %saved : tensor<f32>
    train.yield %dw : (tensor<f32>) -> ()
  }
  %one = nn.constant {value = 1.0} : tensor<f32>
  %loss = train.gradient of(%y) seeds(%one) wrt(%w) {create_graph = true} : tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// The two gradients of a product with itself are one product.
// CHECK-LABEL: func.func @with_itself
// CHECK:         %[[FLIPPED:.*]] = nn.transpose %[[G:.*]] {perm = array<i64: 0, 2, 1>}
// CHECK:         %[[BOTH:.*]] = nn.add %[[G]], %[[FLIPPED]]
// CHECK:         nn.matmul %[[BOTH]], %x
// CHECK-NOT:     nn.matmul
func.func @with_itself(%x: tensor<5x3x4xf32> {aicf.role = "param", aicf.name = "x"}, %t: tensor<5x3x3xf32> {aicf.role = "input", aicf.name = "t"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}) {
  %y = nn.matmul %x, %x {trans_b = true} : (tensor<5x3x4xf32>, tensor<5x3x4xf32>) -> tensor<5x3x3xf32>
  %loss = nn.mse_loss %y, %t : (tensor<5x3x3xf32>, tensor<5x3x3xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// -----

// The gradient of a take by an index with an inverse is a take.
// CHECK-LABEL: func.func @taken_once
// CHECK:         %[[FOUND:.*]] = nn.take %[[G:.*]], %back, %i {dim = 0}
// CHECK:         nn.where
// CHECK-NOT:     nn.scatter_add
func.func @taken_once(%x: tensor<5x4xf32> {aicf.role = "param", aicf.name = "x"}, %t: tensor<3x4xf32> {aicf.role = "input", aicf.name = "t"}, %i: tensor<3xi64> {aicf.role = "input", aicf.name = "i"}, %back: tensor<5xi64> {aicf.role = "input", aicf.name = "back"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}) {
  %y = nn.take %x, %i, %back {dim = 0} : (tensor<5x4xf32>, tensor<3xi64>, tensor<5xi64>) -> tensor<3x4xf32>
  %loss = nn.mse_loss %y, %t : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}
