// Every op of optim: custom text and generic text read back as the same op.
// RUN: aicf-opt %s | filecheck %s
// RUN: ROUNDTRIP
// RUN: GENERIC

%p, %g, %m, %v, %vmax = "test.op"() : () -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
%h, %step = "test.op"() : () -> (tensor<f64>, tensor<3xf32>)

// One count per parameter of the group; for Adam, the bias corrections of its step
// CHECK: %step1 = optim.advance %step : tensor<3xf32>
%step1 = optim.advance %step : tensor<3xf32>
// CHECK: %step2, %bc1, %bc2 = optim.advance %step, %h, %h, %h, %h
// CHECK-NEXT: : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>,
// CHECK-NEXT: tensor<3xf64>)
%step2, %bc1, %bc2 = optim.advance %step, %h, %h, %h, %h : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf64>)

// SGD, without and with momentum, which counts the steps of its parameter
// CHECK: %p0 = optim.sgd %p, %g, %h, %h : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>
// GENERIC: %p0 = "optim.sgd"(%p, %g, %h, %h) <{nesterov = false, maximize = false}> : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>
%p0 = optim.sgd %p, %g, %h, %h : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>
// CHECK: %p1, %buf1 = optim.sgd %p, %g, %h, %h, %m, %h, %h, %step1 {index = 0, nesterov = true, maximize = true}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>,
// CHECK-NEXT: tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
%p1, %buf1 = optim.sgd %p, %g, %h, %h, %m, %h, %h, %step1 {index = 0, nesterov = true, maximize = true} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// Adam, AdamW, and with the maximum of the second moment
// CHECK: %p2, %m2, %v2 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2 {index = 1}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT: tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
%p2, %m2, %v2 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2 {index = 1} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK: %p3, %m3, %v3 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2 {index = 2, decoupled = true}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT: tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
%p3, %m3, %v3 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2 {index = 2, decoupled = true} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK: %p4, %m4, %v4, %vmax4 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2, %vmax
// CHECK-NEXT: {index = 2, amsgrad = true, maximize = true}
// CHECK-NEXT: : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT: tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>,
// CHECK-NEXT: tensor<4x8xf32>, tensor<4x8xf32>)
%p4, %m4, %v4, %vmax4 = optim.adam %p, %g, %m, %v, %h, %h, %h, %h, %h, %bc1, %bc2, %vmax {index = 2, amsgrad = true, maximize = true} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// Rules that are formulas: the scalars of a group from the counters and the hyperparameters, and the update of one parameter
// CHECK: %step3, %clr, %eps, %decay = optim.scalars %step, %h, %h, %h, %h {rule = "adagrad"}
// CHECK-NEXT: : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf32>,
// CHECK-NEXT: tensor<3xf32>, tensor<3xf32>)
// GENERIC: %step3, %clr, %eps, %decay = "optim.scalars"(%step, %h, %h, %h, %h) <{rule = "adagrad", flags = []}> :
%step3, %clr, %eps, %decay = optim.scalars %step, %h, %h, %h, %h {rule = "adagrad"} : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
// CHECK: %p5, %sum5 = optim.update %p, %g, %v, %clr, %eps, %decay {index = 1, rule = "adagrad", flags = ["maximize"]}
%p5, %sum5 = optim.update %p, %g, %v, %clr, %eps, %decay {index = 1, rule = "adagrad", flags = ["maximize"]} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
