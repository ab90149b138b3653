// aicf-trace writes what the front end sees; the other tools read it.
// RUN: aicf-trace %examples/mlp.py:classifier | filecheck %s
// RUN: aicf-trace %examples/mlp.py:classifier --locations | filecheck %s --check-prefix=LOCATION
// RUN: aicf-trace %examples/mlp.py:mlp --name mlp | aicf-opt --stage grad | filecheck %s --check-prefix=GRAD
// RUN: not aicf-trace %examples/mlp.py:missing 2>&1 | filecheck %s --check-prefix=MISSING

// CHECK:      func.func @step(
// CHECK-NEXT:   %image: tensor<32x64xf32> {aicf.role = "input", aicf.name = "image"}
// CHECK:      %p0.weight: tensor<128x64xf32> {aicf.role = "param", aicf.name = "0.weight"}
// CHECK:      %failed: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}
// CHECK-NEXT: -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
// CHECK-NEXT: aicf.optimizer = [
// CHECK-NEXT:   {kind = "adam", params = ["0.weight", "2.weight", "4.weight"], amsgrad = false, decoupled = true, maximize = false}
// CHECK-NEXT: {kind = "adam", params = ["0.bias", "2.bias", "4.bias"]
// CHECK-NEXT:      ]
// CHECK-NEXT:    } {
// CHECK-NEXT: %linear = nn.linear %image, %p0.weight, %p0.bias
// CHECK-NEXT:        : (tensor<32x64xf32>, tensor<128x64xf32>, tensor<128xf32>) -> tensor<32x128xf32>
// CHECK-NEXT: %gelu = nn.gelu %linear : tensor<32x128xf32>
// CHECK:      %loss = nn.cross_entropy %linear2, %label
// CHECK-NEXT: %check_index = nn.check_index %failed, %label {classes = 10, ignore_index = -100, code = 1}
// CHECK-NEXT:        : (tensor<3xi64>, tensor<32xi64>) -> tensor<3xi64>
// CHECK-NEXT: func.return %loss, %check_index : tensor<f32>, tensor<3xi64>

// LOCATION: nn.cross_entropy {{.*}}
// LOCATION-NEXT: loc("{{.*}}examples/mlp.py":{{[0-9]+}}:1)

// GRAD:      func.func @mlp(
// GRAD:      nn.mse_loss_grad
// GRAD:      nn.relu_grad

// MISSING: aicf-trace: error: {{.*}}mlp.py: there is no function 'missing'; there are mlp, classifier
