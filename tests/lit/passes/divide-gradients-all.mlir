// Passes that look at all gradients, where each rank has its own: the ranks gather a number of each, and the codes of a check are
// those of all.
// RUN: aicf-opt %s -p "divide-gradients{rank=1 ranks=2},check-finite" | filecheck %s --check-prefix=FINITE
// RUN: aicf-opt %s -p "divide-gradients{rank=1 ranks=2},clip-gradients{norm=2.0}" | filecheck %s --check-prefix=NORM
// RUN: aicf-opt %s -p "divide-gradients{rank=1 ranks=2},clip-gradients{norm=2.0 per-group}" | filecheck %s --check-prefix=GROUPS
// RUN: aicf-opt %s -p "divide-gradients{rank=3 ranks=4},clip-gradients{norm=2.0},apply-optimizer" | filecheck %s --check-prefix=NONE
// RUN: aicf-opt %s -p "divide-gradients{rank=1 ranks=2},scale-loss" | filecheck %s --check-prefix=SCALE
// RUN: aicf-opt %s -p "divide-gradients{rank=0 ranks=2},apply-optimizer,gather-updates{ranks=2}" | filecheck %s --check-prefix=UPDATE

// FINITE:      %[[ZERO:.*]] = nn.constant {value = 0.0} : tensor<f32>
// FINITE-NEXT: nn.check_finite %failed, %l, %[[ZERO]], %dv.mean, %du.mean {code = 1}

// The norms are put in the order in which one rank that has all gradients has them.
// NORM:      %du.mean.norm = nn.reshape
// NORM-NEXT: %part = nn.concat %dv.mean.norm, %du.mean.norm {dim = 0}
// NORM-NEXT: %part.of_ranks = nn.all_gather %part {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
// NORM:      %[[W:.*]], %{{.*}} = nn.split {{.*}} {dim = 0, sizes = array<i64: 1, 1>} : (tensor<2xf32>) -> (tensor<1xf32>, tensor<1xf32>)
// NORM-NEXT: %[[V:.*]], %[[U:.*]] = nn.split {{.*}} {dim = 0, sizes = array<i64: 1, 1>} : (tensor<2xf32>) -> (tensor<1xf32>, tensor<1xf32>)
// NORM-NEXT: %concat = nn.concat %[[W]], %[[V]], %[[U]] {dim = 0}
// NORM-NEXT: %grad_norm = nn.vector_norm %concat
// NORM:      %dv.mean.clipped = nn.mul %dv.mean, %clip
// NORM-NEXT: %du.mean.clipped = nn.mul %du.mean, %clip
// NORM-NEXT: func.return %l, %dv.mean.clipped, %du.mean.clipped, %grad_norm

// A group of which this rank has nothing.
// GROUPS:      %[[FILL:.*]] = nn.constant {value = 0.0} : tensor<1xf32>
// GROUPS-NEXT: nn.all_gather %[[FILL]] {group = "dp", ranks = 2}
// GROUPS:      %grad_norm = nn.vector_norm
// GROUPS:      %grad_norm.1 = nn.vector_norm

// NONE:        nn.all_gather %constant
// NONE:        func.return %l, %grad_norm

// SCALE:       %part.of_ranks = nn.all_gather %part {group = "dp", ranks = 2} : (tensor<2xi1>) -> tensor<2x2xi1>
// SCALE:       %all_finite = nn.all

// UPDATE-NOT:  aicf.parts
// UPDATE-NOT:  aicf.gradients
// UPDATE:      %w.next = optim.sgd %w, %dw.mean
// UPDATE-NOT:  optim.sgd
// UPDATE:      %voted = nn.check_ranks
// UPDATE:      func.return %l, %w.gathered, %v.gathered, %u.gathered, %voted
func.func @step(
    %w: tensor<9xf32> {aicf.role = "param", aicf.name = "w"}, %v: tensor<2xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<2x2xf32> {aicf.role = "param", aicf.name = "u"}, %x: tensor<f32> {aicf.role = "input", aicf.name = "x"},
    %loss_scale: tensor<f32> {aicf.role = "buffer", aicf.name = "loss_scale"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<9xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<2xf32> {aicf.role = "grad", aicf.name = "v"}, tensor<2x2xf32> {aicf.role = "grad", aicf.name = "u"})
    attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], momentum = false, nesterov = false, maximize = false},
                                  {kind = "sgd", params = ["v", "u"], momentum = false, nesterov = false, maximize = false}]} {
  %l = nn.neg %x : tensor<f32>
  %dv = nn.mul %v, %x : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %dw = nn.mul %w, %x : (tensor<9xf32>, tensor<f32>) -> tensor<9xf32>
  %du = nn.mul %u, %x : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  func.return %l, %dw, %dv, %du : tensor<f32>, tensor<9xf32>, tensor<2xf32>, tensor<2x2xf32>
}
