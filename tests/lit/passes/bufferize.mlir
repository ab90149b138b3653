// RUN: aicf-opt %s --select-kernels --bufferize --split-input-file | filecheck %s

// Arguments and results have a slot of their role; the gradient is read from its slot; the update writes the very
// slots of the argument. Names that are no symbols are changed, and double ones numbered.
// CHECK-LABEL: plan.program @roles target "cpu" {
// CHECK-NEXT:    plan.slot @x : memref<4x4xf32> input "x"
// CHECK-NEXT:    plan.slot @_0.weight : memref<4x4xf32> param "0.weight"
// CHECK-NEXT:    plan.slot @a_b : memref<4x4xf32> buffer "a-b"
// CHECK-NEXT:    plan.slot @state.a_b : memref<4x4xf32> state "a b"
// CHECK-NEXT:    plan.slot @lr : memref<f64> host_scalar "lr"
// CHECK-NEXT:    plan.slot @loss : memref<f32> output "loss"
// CHECK-NEXT:    plan.slot @_0.weight.grad : memref<4x4xf32> grad "0.weight"
// CHECK-NEXT:    plan.slot @output.temp : memref<4x4xf32> output "temp"
// CHECK-NEXT:    plan.launch @k0 "add_cpu" add x(@x) y(@a_b) -> z(@output.temp)
// CHECK-NEXT:    plan.launch @k1 "mse_loss_cpu" mse_loss y(@output.temp) t(@_0.weight) -> loss(@loss) {reduction = "mean"} after @k0
// CHECK-NEXT:    plan.launch @k2 "mse_grad_cpu" mse_grad dloss(@loss) y(@_0.weight) t(@output.temp) -> dy(@_0.weight.grad)
// CHECK-NEXT:      {reduction = "mean"} after @k1
func.func @roles(
    %x: tensor<4x4xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<4x4xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %f: tensor<4x4xf32> {aicf.role = "buffer", aicf.name = "a-b"},
    %s: tensor<4x4xf32> {aicf.role = "state", aicf.name = "a b"},
    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4x4xf32> {aicf.role = "grad", aicf.name = "0.weight"},
        tensor<4x4xf32> {aicf.role = "output", aicf.name = "temp"}, tensor<4x4xf32> {aicf.role = "update", aicf.name = "0.weight"}) {
  %y = kernel.add x(%x) y(%f) : tensor<4x4xf32>
  %loss = kernel.mse_loss y(%y) t(%w) {reduction = "mean"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<f32>
  %g = kernel.mse_grad dloss(%loss) y(%w) t(%y) {reduction = "mean"} : (tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %w1 = kernel.sgd_step p(%w) g(%g) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %loss, %g, %y, %w1 : tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Without labels everything is input and output.
// CHECK-LABEL: plan.program @no_labels
// CHECK-NEXT:    plan.slot @x : memref<4xf32> input "x"
// CHECK-NEXT:    plan.slot @result0 : memref<4xf32> output "result0"
func.func @no_labels(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = kernel.relu x(%x) : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

// The old value is read after the new one is known: the update waits in a temporary.
// CHECK-LABEL: plan.program @old_value_is_read
// CHECK:         plan.slot @new : memref<4xf32> temp
// CHECK-NEXT:    plan.launch @k0 "neg_cpu" neg x(@p) -> y(@new)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add x(@p) y(@new) -> z(@y) after @k0
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy x(@new) -> y(@p) after @k1
func.func @old_value_is_read(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "output", aicf.name = "y"}) {
  %new = kernel.neg x(%p) : tensor<4xf32>
  %y = kernel.add x(%p) y(%new) : tensor<4xf32>
  func.return %new, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// The op cannot work in place: a product reads its operands to the end.
// CHECK-LABEL: plan.program @not_in_place
// CHECK:         plan.launch @k0 "gemm_cpu_blas" gemm a(@p) b(@p) -> out(@new)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy x(@new) -> y(@p) after @k0
func.func @not_in_place(%p: tensor<4x4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4x4xf32> {aicf.role = "update", aicf.name = "p"}) {
  %new = kernel.gemm a(%p) b(%p) : tensor<4x4xf32>
  func.return %new : tensor<4x4xf32>
}

// -----

// Two parameters change places: each old value is read before it is overwritten.
// CHECK-LABEL: plan.program @swap
// CHECK:         plan.launch @k0 "copy_cpu" copy x(@q) -> y(@v0)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy x(@p) -> y(@q) after @k0
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy x(@v0) -> y(@p) after @k1
func.func @swap(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<4xf32> {aicf.role = "param", aicf.name = "q"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "update", aicf.name = "q"}) {
  %0 = kernel.copy x(%q) : tensor<4xf32>
  %1 = kernel.copy x(%p) : tensor<4xf32>
  func.return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// An argument that is its own update needs nothing.
// CHECK-LABEL: plan.program @same
// CHECK-NEXT:    plan.slot @p : memref<4xf32> param "p"
// CHECK-NEXT:  }
func.func @same(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}) {
  func.return %p : tensor<4xf32>
}

// -----

// A temporary that is not needed any more is overwritten; one that is, is not; nor is one of another shape.
// CHECK-LABEL: plan.program @temporaries
// CHECK:         plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v0)
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg x(@v0) -> y(@v1) after @k0
// CHECK-NEXT:    plan.launch @k2 "add_cpu" add x(@v0) y(@v1) -> z(@v0) after @k1
// CHECK-NEXT:    plan.launch @k3 "reduce_sum_cpu" reduce_sum x(@v0) -> y(@v2) {dims = array<i64: 0>} after @k2
// CHECK-NEXT:    plan.launch @k4 "add_cpu" add x(@v2) y(@x) -> z(@v3) after @k3
// CHECK-NEXT:    plan.launch @k5 "gemm_cpu_blas" gemm a(@v3) b(@v3) -> out(@result0) after @k4
func.func @temporaries(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kernel.relu x(%x) : tensor<4x4xf32>
  %1 = kernel.neg x(%0) : tensor<4x4xf32>
  %2 = kernel.add x(%0) y(%1) : tensor<4x4xf32>
  %3 = kernel.reduce_sum x(%2) {dims = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %4 = kernel.add x(%3) y(%x) : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = kernel.gemm a(%4) b(%4) : tensor<4x4xf32>
  func.return %5 : tensor<4x4xf32>
}

// -----

// Equal constants share a slot; reshapes are aliases of the owner of the memory, and the owner itself in its shape.
// CHECK-LABEL: plan.program @constants_and_views
// CHECK:         plan.slot @c0 : memref<f32> const 1.0
// CHECK-NEXT:    plan.slot @c1 : memref<f32> const -0.0
// CHECK-NEXT:    plan.slot @v : memref<2x2xf32> input alias @x
// CHECK-NEXT:    plan.slot @y : memref<2x2xf32> temp
// CHECK-NEXT:    plan.slot @f : memref<4xf32> temp alias @y
// CHECK-NEXT:    plan.launch @k0 "mul_cpu" mul x(@v) y(@c0) -> z(@y)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add x(@f) y(@x) -> z(@result0) after @k0
// CHECK-NEXT:    plan.launch @k2 "add_cpu" add x(@c0) y(@c1) -> z(@result1)
func.func @constants_and_views(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %same = kernel.constant {value = 1.0} : tensor<f32>
  %zero = kernel.constant {value = -0.0} : tensor<f32>
  %v = kernel.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>
  %y = kernel.mul x(%v) y(%one) : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %f = kernel.reshape %y : (tensor<2x2xf32>) -> tensor<4xf32>
  %back = kernel.reshape %v : (tensor<2x2xf32>) -> tensor<4xf32>
  %z = kernel.add x(%f) y(%back) : tensor<4xf32>
  %c = kernel.add x(%same) y(%zero) : tensor<f32>
  func.return %z, %c : tensor<4xf32>, tensor<f32>
}

// -----

// An alias of an argument that is updated keeps the old value in use.
// CHECK-LABEL: plan.program @view_of_old_value
// CHECK:         plan.launch @k0 "neg_cpu" neg x(@p) -> y(@new)
// CHECK-NEXT:    plan.launch @k1 "relu_cpu" relu x(@view) -> y(@y)
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy x(@new) -> y(@p) after @k0, @k1
func.func @view_of_old_value(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<2x2xf32> {aicf.role = "output", aicf.name = "y"}) {
  %view = kernel.reshape %p : (tensor<4xf32>) -> tensor<2x2xf32>
  %new = kernel.neg x(%p) : tensor<4xf32>
  %y = kernel.relu x(%view) : tensor<2x2xf32>
  func.return %new, %y : tensor<4xf32>, tensor<2x2xf32>
}

// -----

// Launches wait for those whose results they read, and an update for every reader of the old value; an edge that
// follows from others is left out.
// CHECK-LABEL: plan.program @order
// CHECK:         plan.launch @k0 "relu_cpu" relu x(@p) -> y(@a)
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg x(@p) -> y(@b)
// CHECK-NEXT:    plan.launch @k2 "mul_cpu" mul x(@a) y(@b) -> z(@y) after @k0, @k1
// CHECK-NEXT:    plan.launch @k3 "sgd_step_cpu" sgd_step p(@p) g(@y) lr(@lr) weight_decay(@lr) -> p(@p) {groups = array<i64: 0>}
// CHECK-NEXT: after @k2
// CHECK-NEXT:    plan.launch @k4 "add_cpu" add x(@a) y(@p) -> z(@z) after @k3
func.func @order(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "output", aicf.name = "y"}, tensor<4xf32> {aicf.role = "output", aicf.name = "z"}) {
  %a = kernel.relu x(%p) : tensor<4xf32>
  %b = kernel.neg x(%p) : tensor<4xf32>
  %y = kernel.mul x(%a) y(%b) : tensor<4xf32>
  %new = kernel.sgd_step p(%p) g(%y) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %z = kernel.add x(%a) y(%new) : tensor<4xf32>
  func.return %new, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A result that is a reshape needs no copy: its launch writes to the slot in its own shape.
// CHECK-LABEL: plan.program @view_is_returned
// CHECK:         plan.slot @y : memref<2x2xf32> output "y"
// CHECK-NEXT:    plan.slot @v0 : memref<4xf32> output alias @y
// CHECK-NEXT:    plan.slot @v1 : memref<4xf32> param alias @p
// CHECK-NEXT:    plan.launch @k0 "neg_cpu" neg x(@x) -> y(@v0)
// CHECK-NEXT:    plan.launch @k1 "relu_cpu" relu x(@v0) -> y(@v1) after @k0
func.func @view_is_returned(%x: tensor<4xf32>, %p: tensor<2x2xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<2x2xf32> {aicf.role = "output", aicf.name = "y"}, tensor<2x2xf32> {aicf.role = "update", aicf.name = "p"}) {
  %0 = kernel.neg x(%x) : tensor<4xf32>
  %y = kernel.reshape %0 : (tensor<4xf32>) -> tensor<2x2xf32>
  %1 = kernel.relu x(%0) : tensor<4xf32>
  %q = kernel.reshape %1 : (tensor<4xf32>) -> tensor<2x2xf32>
  func.return %y, %q : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// A buffer is updated in its slot, as a parameter is; one whose old value is read later, by a copy at the end.
// CHECK-LABEL: plan.program @running
// CHECK:         plan.launch @k0 "add_cpu" add x(@mean) y(@x) -> z(@mean)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add x(@last) y(@x) -> z(@v0)
// CHECK-NEXT:    plan.launch @k2 "mul_cpu" mul x(@last) y(@x) -> z(@y)
// CHECK-NEXT:    plan.launch @k3 "copy_cpu" copy x(@v0) -> y(@last) after @k1, @k2
func.func @running(
    %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
    %mean: tensor<4xf32> {aicf.role = "buffer", aicf.name = "mean"},
    %last: tensor<4xf32> {aicf.role = "buffer", aicf.name = "last"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"},
        tensor<4xf32> {aicf.role = "update", aicf.name = "mean"}, tensor<4xf32> {aicf.role = "update", aicf.name = "last"}) {
  %0 = kernel.add x(%mean) y(%x) : tensor<4xf32>
  %1 = kernel.add x(%last) y(%x) : tensor<4xf32>
  %y = kernel.mul x(%last) y(%x) : tensor<4xf32>
  func.return %y, %0, %1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
