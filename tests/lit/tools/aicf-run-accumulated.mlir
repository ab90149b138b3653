// A step of two micro-batches with checked and clipped gradients, run at two levels: the limits are 1 where nothing else is said.
// RUN: aicf-opt %s --autodiff --accumulate=count=2 --check-finite --clip-gradients="norm=2 value" --apply-optimizer=kind=sgd > %t.step
// RUN: aicf-opt %t.step --decompose --lower --fuse --elide-copies --select-kernels --bufferize --plan-memory > %t.plan
// RUN: aicf-run %t.step | filecheck %s --check-prefix=STEP
// RUN: aicf-run %t.plan --compare=interp | filecheck %s

// STEP: grad_norm
// CHECK: grad_norm{{.*}}ok
// CHECK: w{{ .*}}ok
func.func @step(
    %x: tensor<4x3xf32> {aicf.role = "input", aicf.name = "x"}, %w: tensor<3x2xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}) {
  %y = nn.matmul %x, %w : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %s = nn.mul %y, %y : tensor<4x2xf32>
  %l = nn.sum %s {dims = array<i64: 0, 1>} : (tensor<4x2xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}
