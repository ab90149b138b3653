// RUN: aicf-opt %s --select-kernels --bufferize --split-input-file | filecheck %s

// Arguments and results have a slot of their role; the gradient is read from its slot; the update writes the very
// slots of the argument. Names that are no symbols are changed, and double ones numbered.
// CHECK-LABEL: plan.program @roles target "cpu" {
// CHECK-NEXT:    plan.slot @x : memref<4x4xf32> input "x"
// CHECK-NEXT:    plan.slot @_0.weight : memref<4x4xf32> param "0.weight"
// CHECK-NEXT:    plan.slot @a_b : memref<4x4xf32> buffer "a-b"
// CHECK-NEXT:    plan.slot @state.a_b : memref<4x4xf32> state "a b"
// CHECK-NEXT:    plan.slot @lr : memref<f64> meta "lr"
// CHECK-NEXT:    plan.slot @loss : memref<f32> output "loss"
// CHECK-NEXT:    plan.slot @_0.weight.grad : memref<4x4xf32> grad "0.weight"
// CHECK-NEXT:    plan.slot @output.temp : memref<4x4xf32> output "temp"
// CHECK-NEXT:    plan.launch @k0 "add_cpu" add(@x, @a_b) -> (@output.temp)
// CHECK-NEXT:    plan.launch @k1 "mse_loss_cpu" mse_loss(@output.temp, @_0.weight) -> (@loss) {reduction = "mean"} after @k0
// CHECK-NEXT:    plan.launch @k2 "mse_grad_cpu" mse_grad(@loss, @_0.weight, @output.temp) -> (@_0.weight.grad) {reduction = "mean"} after @k1
// CHECK-NEXT:    plan.launch @k3 "sgd_step_cpu" sgd_step(@_0.weight, @_0.weight.grad, @lr, @lr) -> (@_0.weight) {groups = array<i64: 0>} after @k2
// CHECK-NEXT:  }
func.func @roles(
    %x: tensor<4x4xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<4x4xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %f: tensor<4x4xf32> {aicf.role = "buffer", aicf.name = "a-b"},
    %s: tensor<4x4xf32> {aicf.role = "state", aicf.name = "a b"},
    %lr: tensor<f64> {aicf.role = "meta", aicf.name = "lr"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4x4xf32> {aicf.role = "grad", aicf.name = "0.weight"},
        tensor<4x4xf32> {aicf.role = "output", aicf.name = "temp"}, tensor<4x4xf32> {aicf.role = "update", aicf.name = "0.weight"}) {
  %y = kernel.add %x, %f : tensor<4x4xf32>
  %loss = kernel.mse_loss %y, %w {reduction = "mean"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<f32>
  %g = kernel.mse_grad %loss, %w, %y {reduction = "mean"} : (tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %w1 = kernel.sgd_step %w, %g, %lr, %lr {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %loss, %g, %y, %w1 : tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Without labels everything is input and output.
// CHECK-LABEL: plan.program @no_labels
// CHECK-NEXT:    plan.slot @x : memref<4xf32> input "x"
// CHECK-NEXT:    plan.slot @result0 : memref<4xf32> output "result0"
func.func @no_labels(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = kernel.relu %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

// The old value is read after the new one is known: the update waits in a temporary.
// CHECK-LABEL: plan.program @old_value_is_read
// CHECK:         plan.slot @v0 : memref<4xf32> temp
// CHECK-NEXT:    plan.launch @k0 "neg_cpu" neg(@p) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add(@p, @v0) -> (@y) after @k0
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy(@v0) -> (@p) after @k1
func.func @old_value_is_read(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "output", aicf.name = "y"}) {
  %new = kernel.neg %p : tensor<4xf32>
  %y = kernel.add %p, %new : tensor<4xf32>
  func.return %new, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// The op cannot work in place: a product reads its operands to the end.
// CHECK-LABEL: plan.program @not_in_place
// CHECK:         plan.launch @k0 "gemm_cpu_blas" gemm(@p, @p) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy(@v0) -> (@p) after @k0
func.func @not_in_place(%p: tensor<4x4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4x4xf32> {aicf.role = "update", aicf.name = "p"}) {
  %new = kernel.gemm %p, %p : tensor<4x4xf32>
  func.return %new : tensor<4x4xf32>
}

// -----

// Two parameters change places: each old value is read before it is overwritten.
// CHECK-LABEL: plan.program @swap
// CHECK:         plan.launch @k0 "copy_cpu" copy(@q) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy(@p) -> (@q) after @k0
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy(@v0) -> (@p) after @k1
func.func @swap(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<4xf32> {aicf.role = "param", aicf.name = "q"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "update", aicf.name = "q"}) {
  %0 = kernel.copy %q : tensor<4xf32>
  %1 = kernel.copy %p : tensor<4xf32>
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
// CHECK:         plan.launch @k0 "relu_cpu" relu(@x) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg(@v0) -> (@v1) after @k0
// CHECK-NEXT:    plan.launch @k2 "add_cpu" add(@v0, @v1) -> (@v0) after @k1
// CHECK-NEXT:    plan.launch @k3 "reduce_sum_cpu" reduce_sum(@v0) -> (@v2) {dims = array<i64: 0>} after @k2
// CHECK-NEXT:    plan.launch @k4 "add_cpu" add(@v2, @x) -> (@v3) after @k3
// CHECK-NEXT:    plan.launch @k5 "gemm_cpu_blas" gemm(@v3, @v3) -> (@result0) after @k4
func.func @temporaries(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kernel.relu %x : tensor<4x4xf32>
  %1 = kernel.neg %0 : tensor<4x4xf32>
  %2 = kernel.add %0, %1 : tensor<4x4xf32>
  %3 = kernel.reduce_sum %2 {dims = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %4 = kernel.add %3, %x : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = kernel.gemm %4, %4 : tensor<4x4xf32>
  func.return %5 : tensor<4x4xf32>
}

// -----

// Equal constants share a slot; reshapes are aliases of the owner of the memory, and the owner itself in its shape.
// CHECK-LABEL: plan.program @constants_and_views
// CHECK:         plan.slot @c0 : memref<f32> const 1.0
// CHECK-NEXT:    plan.slot @c1 : memref<f32> const -0.0
// CHECK-NEXT:    plan.slot @v0 : memref<2x2xf32> input alias @x
// CHECK-NEXT:    plan.slot @v1 : memref<2x2xf32> temp
// CHECK-NEXT:    plan.slot @v2 : memref<4xf32> temp alias @v1
// CHECK-NEXT:    plan.launch @k0 "mul_cpu" mul(@v0, @c0) -> (@v1)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add(@v2, @x) -> (@result0) after @k0
// CHECK-NEXT:    plan.launch @k2 "add_cpu" add(@c0, @c1) -> (@result1)
func.func @constants_and_views(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %same = kernel.constant {value = 1.0} : tensor<f32>
  %zero = kernel.constant {value = -0.0} : tensor<f32>
  %v = kernel.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>
  %y = kernel.mul %v, %one : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %f = kernel.reshape %y : (tensor<2x2xf32>) -> tensor<4xf32>
  %back = kernel.reshape %v : (tensor<2x2xf32>) -> tensor<4xf32>
  %z = kernel.add %f, %back : tensor<4xf32>
  %c = kernel.add %same, %zero : tensor<f32>
  func.return %z, %c : tensor<4xf32>, tensor<f32>
}

// -----

// An alias of an argument that is updated keeps the old value in use.
// CHECK-LABEL: plan.program @view_of_old_value
// CHECK:         plan.launch @k0 "neg_cpu" neg(@p) -> (@v1)
// CHECK-NEXT:    plan.launch @k1 "relu_cpu" relu(@v0) -> (@y)
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy(@v1) -> (@p) after @k0, @k1
func.func @view_of_old_value(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<2x2xf32> {aicf.role = "output", aicf.name = "y"}) {
  %view = kernel.reshape %p : (tensor<4xf32>) -> tensor<2x2xf32>
  %new = kernel.neg %p : tensor<4xf32>
  %y = kernel.relu %view : tensor<2x2xf32>
  func.return %new, %y : tensor<4xf32>, tensor<2x2xf32>
}

// -----

// Launches wait for those whose results they read, and an update for every reader of the old value; an edge that
// follows from others is left out.
// CHECK-LABEL: plan.program @order
// CHECK:         plan.launch @k0 "relu_cpu" relu(@p) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg(@p) -> (@v1)
// CHECK-NEXT:    plan.launch @k2 "mul_cpu" mul(@v0, @v1) -> (@y) after @k0, @k1
// CHECK-NEXT:    plan.launch @k3 "sgd_step_cpu" sgd_step(@p, @y, @lr, @lr) -> (@p) {groups = array<i64: 0>} after @k2
// CHECK-NEXT:    plan.launch @k4 "add_cpu" add(@v0, @p) -> (@z) after @k3
func.func @order(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}, %lr: tensor<f64> {aicf.role = "meta", aicf.name = "lr"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "output", aicf.name = "y"}, tensor<4xf32> {aicf.role = "output", aicf.name = "z"}) {
  %a = kernel.relu %p : tensor<4xf32>
  %b = kernel.neg %p : tensor<4xf32>
  %y = kernel.mul %a, %b : tensor<4xf32>
  %new = kernel.sgd_step %p, %y, %lr, %lr {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %z = kernel.add %a, %new : tensor<4xf32>
  func.return %new, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A result that is a reshape needs no copy: its launch writes to the slot in its own shape.
// CHECK-LABEL: plan.program @view_is_returned
// CHECK:         plan.slot @y : memref<2x2xf32> output "y"
// CHECK-NEXT:    plan.slot @v0 : memref<4xf32> output alias @y
// CHECK-NEXT:    plan.slot @v1 : memref<4xf32> param alias @p
// CHECK-NEXT:    plan.launch @k0 "neg_cpu" neg(@x) -> (@v0)
// CHECK-NEXT:    plan.launch @k1 "relu_cpu" relu(@v0) -> (@v1) after @k0
func.func @view_is_returned(%x: tensor<4xf32>, %p: tensor<2x2xf32> {aicf.role = "param", aicf.name = "p"})
    -> (tensor<2x2xf32> {aicf.role = "output", aicf.name = "y"}, tensor<2x2xf32> {aicf.role = "update", aicf.name = "p"}) {
  %0 = kernel.neg %x : tensor<4xf32>
  %y = kernel.reshape %0 : (tensor<4xf32>) -> tensor<2x2xf32>
  %1 = kernel.relu %0 : tensor<4xf32>
  %q = kernel.reshape %1 : (tensor<4xf32>) -> tensor<2x2xf32>
  func.return %y, %q : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// A buffer is updated in its slot, as a parameter is; one whose old value is read later, by a copy at the end.
// CHECK-LABEL: plan.program @running
// CHECK:         plan.launch @k0 "add_cpu" add(@mean, @x) -> (@mean)
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add(@last, @x) -> (@v0)
// CHECK-NEXT:    plan.launch @k2 "mul_cpu" mul(@last, @x) -> (@y)
// CHECK-NEXT:    plan.launch @k3 "copy_cpu" copy(@v0) -> (@last) after @k1, @k2
func.func @running(
    %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
    %mean: tensor<4xf32> {aicf.role = "buffer", aicf.name = "mean"},
    %last: tensor<4xf32> {aicf.role = "buffer", aicf.name = "last"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"},
        tensor<4xf32> {aicf.role = "update", aicf.name = "mean"}, tensor<4xf32> {aicf.role = "update", aicf.name = "last"}) {
  %0 = kernel.add %mean, %x : tensor<4xf32>
  %1 = kernel.add %last, %x : tensor<4xf32>
  %y = kernel.mul %last, %x : tensor<4xf32>
  func.return %y, %0, %1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
