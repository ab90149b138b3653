// A rank keeps the parameters of its part in the param groups; the largest go first, each to the rank with the fewest bytes.
// RUN: aicf-opt %s --divide-updates="rank=0 ranks=2" --split-input-file --verify-diagnostics | filecheck %s
// RUN: aicf-opt %s --divide-updates="rank=1 ranks=2" --split-input-file --verify-diagnostics | filecheck %s --check-prefix=OTHER
// RUN: not aicf-opt %s --divide-updates="rank=2 ranks=2" 2>&1 | filecheck %s --check-prefix=RANK

// RANK: expected a rank from 0 to below 2, got 2

// A parameter without a gradient belongs to no rank.
// CHECK-LABEL: func.func @step
// CHECK:         params = ["w"]
// CHECK:         params = []
// CHECK:         aicf.parts = {{\[}}["w"], ["v", "u"]]
// OTHER-LABEL: func.func @step
// OTHER:         params = ["v"]
// OTHER:         params = ["u"]
// OTHER:         aicf.parts = {{\[}}["w"], ["v", "u"]]
func.func @step(
    %w: tensor<9xf32> {aicf.role = "param", aicf.name = "w"}, %v: tensor<2xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<4xf32> {aicf.role = "param", aicf.name = "u"}, %n: tensor<4xf32> {aicf.role = "param", aicf.name = "n"})
    -> (tensor<9xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "v"},
        tensor<4xf32> {aicf.role = "grad", aicf.name = "u"})
    attributes {aicf.optimizer = [{kind = "adam", params = ["w", "n", "v"], amsgrad = false, decoupled = true, maximize = false},
                                  {kind = "adam", params = ["u"], amsgrad = false, decoupled = true, maximize = false}]} {
  func.return %w, %v, %u : tensor<9xf32>, tensor<2xf32>, tensor<4xf32>
}

// -----

// expected-error@+1 {{@undifferentiated has no gradients or no aicf.optimizer; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "output", aicf.name = "o"}) {
  func.return %w : tensor<4xf32>
}
