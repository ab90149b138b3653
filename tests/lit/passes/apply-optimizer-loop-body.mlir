// RUN: aicf-opt %s --autodiff --apply-optimizer --canonicalize --cse --dce --split-input-file --verify-diagnostics | filecheck %s

// Two losses, two optimizers: what is updated in between is what the second loss reads, and the first stops at nn.detach.
// CHECK-LABEL: func.func @gan
// CHECK:         %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"},
// CHECK:         %lr.1: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr.1"},
// CHECK:         %da = nn.mse_loss_grad %dld, %a, %b
// CHECK:         %dd = nn.add
// CHECK:         %d.next, %d.exp_avg.next, %d.exp_avg_sq.next = optim.adam
// CHECK-NEXT:      %d, %dd,
// CHECK:         %c = nn.linear %fake, %d.next
// CHECK-NEXT:    %lg = nn.mse_loss %c, %b
// CHECK-NEXT:    %dc = nn.mse_loss_grad
// CHECK-NEXT:    %dfake = nn.matmul %dc, %d.next
// CHECK-NEXT:    %dg = nn.matmul %dfake, %z {trans_a = true}
// CHECK-NEXT:    %g.next = optim.sgd %g, %dg, %lr.1
// CHECK:         func.return %lg, %d.next, %g.next,
func.func @gan(
    %z: tensor<3x4xf32> {aicf.role = "input", aicf.name = "z"},
    %x: tensor<3x4xf32> {aicf.role = "input", aicf.name = "x"},
    %g: tensor<4x4xf32> {aicf.role = "param", aicf.name = "G"},
    %d: tensor<1x4xf32> {aicf.role = "param", aicf.name = "D"}) -> (tensor<f32> {aicf.role = "loss"}, 
     tensor<1x4xf32> {aicf.role = "update", aicf.name = "D"}, tensor<4x4xf32> {aicf.role = "update", aicf.name = "G"})
   attributes {aicf.optimizer = [{kind = "adam", params = ["D"], amsgrad = false, decoupled = false, maximize = false}, {kind = "sgd", params = ["G"], maximize = false, momentum = false, nesterov = false}]} {
  %fake = nn.linear %z, %g : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
  %cut = nn.detach %fake : tensor<3x4xf32>
  %a = nn.linear %cut, %d : (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x1xf32>
  %b = nn.linear %x, %d : (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x1xf32>
  %ld = nn.mse_loss %a, %b : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<f32>
  %dd = train.backward %ld, %d : (tensor<f32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %d1 = train.update %d, %dd {names = ["D"]} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %c = nn.linear %fake, %d1 : (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x1xf32>
  %lg = nn.mse_loss %c, %b : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<f32>
  %dg = train.backward %lg, %g : (tensor<f32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %g1 = train.update %g, %dg {names = ["G"]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %lg, %d1, %g1 : tensor<f32>, tensor<1x4xf32>, tensor<4x4xf32>
}

// -----

// Two steps of one optimizer: the second goes on where the first has left off, its counter and its state too.
// CHECK-LABEL: func.func @twice
// CHECK:         %step.next, %bc1_inv.next, %bc2_inv.next = optim.advance %step,
// CHECK:         %w.next, %w.exp_avg.next, %w.exp_avg_sq.next = optim.adam
// CHECK-NEXT:      %w, %dw, %w.exp_avg, %w.exp_avg_sq,
// CHECK:         %step.next_1, %bc1_inv.next_1, %bc2_inv.next_1 = optim.advance %step.next,
// CHECK:         optim.adam %w.next, %dw1, %w.exp_avg.next, %w.exp_avg_sq.next,
func.func @twice(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %y = nn.mul %w, %w : tensor<4xf32>
  %a = nn.sum %y {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw = train.backward %a, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %w1 = train.update %w, %dw {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %z = nn.mul %w1, %w1 : tensor<4xf32>
  %b = nn.sum %z {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw1 = train.backward %b, %w1 : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %w2 = train.update %w1, %dw1 {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %b, %w2 : tensor<f32>, tensor<4xf32>
}

// A step that may be left out: parameter, states and counter are the old ones then.
// CHECK-LABEL: func.func @maybe
// CHECK:         %step.next, %bc1_inv.next, %bc2_inv.next = optim.advance %step,
// CHECK:         %w.next, %w.exp_avg.next, %w.exp_avg_sq.next = optim.adam
// CHECK-DAG:     nn.where %taken, %w.next, %w
// CHECK-DAG:     nn.where %taken, %w.exp_avg.next, %w.exp_avg
// CHECK-DAG:     nn.where %taken, %w.exp_avg_sq.next, %w.exp_avg_sq
// CHECK-DAG:     nn.where %taken, %step.next, %step
func.func @maybe(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %taken: tensor<i1> {aicf.role = "buffer", aicf.name = "taken"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %a = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw = train.backward %a, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %w1 = train.update %w, %dw, %taken {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>, tensor<i1>) -> tensor<4xf32>
  func.return %a, %w1 : tensor<f32>, tensor<4xf32>
}

// -----

func.func @parts(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %b: tensor<4xf32> {aicf.role = "param", aicf.name = "b"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) attributes {aicf.optimizer =
    [{kind = "sgd", params = ["w", "b"], maximize = false, momentum = false, nesterov = false}]} {
  %a = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw = train.backward %a, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-error@below {{expected the parameters of whole groups of aicf.optimizer, the same at each step, got w}}
  %w1 = train.update %w, %dw {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %w2, %b2 = train.update %w1, %b, %dw, %dw {names = ["w", "b"]}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %a, %w2 : tensor<f32>, tensor<4xf32>
}

// -----

// By hand: with an empty attribute there is nothing to apply.
// CHECK-LABEL: func.func @by_hand
// CHECK:         %[[G:.*]] = nn.constant
// CHECK-NEXT:    %[[NEW:.*]] = nn.sub %w, %[[G]]
// CHECK-NEXT:    func.return %a, %[[NEW]]
func.func @by_hand(%w: tensor<4xf32> {aicf.role = "buffer", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"},
    tensor<4xf32> {aicf.role = "update", aicf.name = "w", aicf.target_role = "buffer"}) attributes {aicf.optimizer = []} {
  %a = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %dw = train.backward %a, %w : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %w1 = nn.sub %w, %dw : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %w1 : tensor<f32>, tensor<4xf32>
}
