// Limits between the gradients and the optimizer: they are host scalars, and the norm is an output.
// RUN: aicf-opt %s --clip-gradients="norm=2" --split-input-file | filecheck %s
// RUN: aicf-opt %s --clip-gradients="norm=inf value per-group" --split-input-file | filecheck %s --check-prefix=GROUPS
// RUN: aicf-opt %s --clip-gradients=value --split-input-file | filecheck %s --check-prefix=VALUE
// RUN: aicf-opt %s --check-finite --clip-gradients="norm=2" --split-input-file | filecheck %s --check-prefix=CHECKED
// RUN: not aicf-opt %s --clip-gradients 2>&1 | filecheck %s --check-prefix=NOTHING
// RUN: not aicf-opt %s --clip-gradients="norm=-1" 2>&1 | filecheck %s --check-prefix=ORDER
// RUN: not aicf-opt %s --clip-gradients="value per-group" 2>&1 | filecheck %s --check-prefix=ALONE

// NOTHING: expected value, norm or both
// ORDER: expected a norm of an order above 0, got -1.0
// ALONE: expected norm beside per-group

// 16-bit gradients are summed and scaled in f32; %c is of no param group, so it stays as it is.
// CHECK-LABEL: func.func @groups
// CHECK:         %clip_grad_norm: tensor<f64> {aicf.role = "host_scalar", aicf.name = "clip_grad_norm"}
// CHECK-NEXT:  ) -> (
// CHECK-NEXT:    tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:    tensor<4xf32> {aicf.role = "grad", aicf.name = "a"},
// CHECK-NEXT:    tensor<2x3xbf16> {aicf.role = "grad", aicf.name = "b"},
// CHECK-NEXT:    tensor<4xf32> {aicf.role = "grad", aicf.name = "c"},
// CHECK-NEXT:    tensor<f32> {aicf.role = "output", aicf.name = "grad_norm"}
// CHECK:         %l, %da, %db, %dc = "test.op"()
// CHECK-NEXT:    %vector_norm = nn.vector_norm %da {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
// CHECK-NEXT:    %da.norm = nn.reshape %vector_norm
// CHECK-NEXT:    %cast = nn.cast %db : (tensor<2x3xbf16>) -> tensor<2x3xf32>
// CHECK-NEXT:    %vector_norm_1 = nn.vector_norm %cast {dims = array<i64: 0, 1>}
// CHECK-NEXT:    %db.norm = nn.reshape %vector_norm_1
// CHECK-NEXT:    %concat = nn.concat %da.norm, %db.norm {dim = 0}
// CHECK-NEXT:    %grad_norm = nn.vector_norm %concat {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
// CHECK-NEXT:    %constant = nn.constant {value = 1.0e-06} : tensor<f32>
// CHECK-NEXT:    %add = nn.add %grad_norm, %constant
// CHECK-NEXT:    %reciprocal = nn.reciprocal %add
// CHECK-NEXT:    %cast_1 = nn.cast %clip_grad_norm : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT:    %mul = nn.mul %reciprocal, %cast_1
// CHECK-NEXT:    %constant_1 = nn.constant {value = 1.0} : tensor<f32>
// CHECK-NEXT:    %clip = nn.minimum %mul, %constant_1
// CHECK-NEXT:    %da.clipped = nn.mul %da, %clip : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %cast_2 = nn.cast %db
// CHECK-NEXT:    %mul_1 = nn.mul %cast_2, %clip
// CHECK-NEXT:    %db.clipped = nn.cast %mul_1 : (tensor<2x3xf32>) -> tensor<2x3xbf16>
// CHECK-NEXT:    func.return %l, %da.clipped, %db.clipped, %dc, %grad_norm

// Values come first; the second group marks what is its own.
// GROUPS-LABEL: func.func @groups
// GROUPS:         aicf.name = "clip_grad_value"
// GROUPS:         aicf.name = "clip_grad_norm"
// GROUPS:         aicf.name = "clip_grad_norm.1"
// GROUPS:         tensor<f32> {aicf.role = "output", aicf.name = "grad_norm"},
// GROUPS-NEXT:    tensor<f32> {aicf.role = "output", aicf.name = "grad_norm.1"}
// GROUPS:         %maximum = nn.maximum %da, %neg
// GROUPS-NEXT:    %da.within = nn.minimum %maximum, %cast
// GROUPS:         %vector_norm = nn.vector_norm %da.within {ord = 0x7FF0000000000000 : f64, dims = array<i64: 0>}
// GROUPS:         %da.within.clipped = nn.mul %da.within, %clip
// GROUPS:         %db.within.clipped =
// GROUPS-NEXT:    func.return %l, %da.within.clipped, %db.within.clipped, %dc, %grad_norm, %grad_norm.1

// VALUE-LABEL: func.func @groups
// VALUE-NOT:     grad_norm
// VALUE:         %cast = nn.cast %clip_grad_value : (tensor<f64>) -> tensor<f32>
// VALUE-NEXT:    %neg = nn.neg %cast
// VALUE-NEXT:    %maximum = nn.maximum %da, %neg
// VALUE-NEXT:    %da.within = nn.minimum %maximum, %cast
// VALUE:         func.return %l, %da.within, %db.within, %dc

// CHECKED:       nn.check_finite %failed, %l, %da, %db, %dc
func.func @groups(
    %a: tensor<4xf32> {aicf.role = "param", aicf.name = "a"},
    %b: tensor<2x3xbf16> {aicf.role = "param", aicf.name = "b"},
    %c: tensor<4xf32> {aicf.role = "param", aicf.name = "c"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "a"},
        tensor<2x3xbf16> {aicf.role = "grad", aicf.name = "b"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "c"})
    attributes {aicf.optimizer = [{kind = "sgd", params = ["a"]}, {kind = "sgd", params = ["b"]}]} {
  %l, %da, %db, %dc = "test.op"() : () -> (tensor<f32>, tensor<4xf32>, tensor<2x3xbf16>, tensor<4xf32>)
  func.return %l, %da, %db, %dc : tensor<f32>, tensor<4xf32>, tensor<2x3xbf16>, tensor<4xf32>
}
