// Every rule of the verifiers of optim, broken once.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected step of type tensor<nxf32> with n > 0, got tensor<3xi64>}}
%s = optim.advance %bad : tensor<3xi64>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected step' of type tensor<3xf32>, got tensor<4xf32>}}
%s = optim.advance %step : (tensor<3xf32>) -> tensor<4xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected (step) -> (step') or (step, beta1, beta2, bc1_pin, bc2_pin) -> (step', bc1_inv, bc2_inv), got 2 operands and 2 results}}
%s, %b = optim.advance %step, %h : (tensor<3xf32>, tensor<f64>) -> (tensor<3xf32>, tensor<f64>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected beta2 of type tensor<f64>, got tensor<f32>}}
%s, %b, %c = optim.advance %step, %h, %e, %h, %h : (tensor<3xf32>, tensor<f64>, tensor<f32>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf64>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected bc2_inv of type tensor<3xf64>, got tensor<f64>}}
%s, %b, %c = optim.advance %step, %h, %h, %h, %h : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<f64>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected g of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%p1 = optim.sgd %p, %q, %h, %h : (tensor<4x8xf32>, tensor<8x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected p of element type f16, bf16, f32 or f64, got tensor<4x8xi64>}}
%p1 = optim.sgd %i, %i, %h, %h : (tensor<4x8xi64>, tensor<4x8xi64>, tensor<f64>, tensor<f64>) -> tensor<4x8xi64>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected lr of type tensor<f64>, got tensor<f32>}}
%p1 = optim.sgd %p, %p, %e, %h : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f64>) -> tensor<4x8xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected momentum operands for nesterov = true, got none}}
%p1 = optim.sgd %p, %p, %h, %h {nesterov = true} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected (p, g, lr, weight_decay) -> (p') or (p, g, lr, weight_decay, buf, momentum, dampening, step') -> (p', buf'), got 5 operands and 1 results}}
%p1 = optim.sgd %p, %p, %h, %h, %p : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>) -> tensor<4x8xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected buf of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %q, %h, %h, %step {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<8x4xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected step of type tensor<nxf32> with n > 0, got tensor<3xi64>}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %p, %h, %h, %bad {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xi64>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected buf' of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %p, %h, %h, %step {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected m of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%p1, %m1, %v1 = optim.adam %p, %p, %q, %p, %h, %h, %h, %h, %h, %c, %c {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected eps of type tensor<f64>, got tensor<f32>}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %e, %h, %c, %c {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f32>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected operand vmax and result vmax' exactly if amsgrad = true, got amsgrad = true, 11 operands and 3 results}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %c {index = 0, amsgrad = true} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected operand vmax and result vmax' exactly if amsgrad = true, got amsgrad = false, 12 operands and 4 results}}
%p1, %m1, %v1, %x1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %c, %p {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected v' of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %c {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected index exactly beside step', got none}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %p, %h, %h, %step : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected index exactly beside step', got 1}}
%p1 = optim.sgd %p, %p, %h, %h {index = 1} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>) -> tensor<4x8xf32>

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected index of an element of step' tensor<3xf32>, got 3}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %p, %h, %h, %step {index = 3} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %step, %bad = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xi64>)
// expected-error@below {{expected index of an element of step' tensor<3xf32>, got -1}}
%p1, %b1 = optim.sgd %p, %p, %h, %h, %p, %h, %h, %step {index = -1} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{property 'index' expected in operation 'optim.adam'}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %c : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected index of an element of bc1_inv tensor<3xf64>, got 3}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %c {index = 3} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected bc1_inv of type tensor<nxf64>, got tensor<f64>}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %h, %c {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>, tensor<4x8xi64>)
%h, %e, %c = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf64>)
// expected-error@below {{expected bc2_inv of type tensor<3xf64>, got tensor<f64>}}
%p1, %m1, %v1 = optim.adam %p, %p, %p, %p, %h, %h, %h, %h, %h, %c, %h {index = 0} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<f64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected rule to be one of adadelta, adagrad, adamax, asgd, lion, nadam, radam, rmsprop, rprop, got sgd}}
%a, %b, %c, %d = optim.scalars %step, %h, %h, %h, %h {rule = "sgd"} : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected flags among maximize, got centered}}
%a, %b, %c, %d = optim.scalars %step, %h, %h, %h, %h {rule = "adagrad", flags = ["centered"]} : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected (step, lr, lr_decay, eps, weight_decay) -> (step, clr, eps, weight_decay), got 2 operands and 1 results}}
%a = optim.scalars %step, %h {rule = "adagrad"} : (tensor<3xf32>, tensor<f64>) -> tensor<3xf32>

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected eps of type tensor<f64>, got tensor<f32>}}
%a, %b, %c, %d = optim.scalars %step, %h, %h, %e, %h {rule = "adagrad"} : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected clr of one element of f32, or all of f64, for each of tensor<3xf32>, got tensor<3xf64>}}
%a, %b, %c, %d = optim.scalars %step, %h, %h, %h, %h {rule = "adagrad"} : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf32>, tensor<3xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected (p, g, sum, clr, eps, weight_decay) -> (p, sum), got 3 operands and 1 results}}
%a = optim.update %p, %p, %p {index = 0, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected sum of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%a, %b = optim.update %p, %p, %q, %step, %step, %step {index = 0, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected sum' of type tensor<4x8xf32>, got tensor<8x4xf32>}}
%a, %b = optim.update %p, %p, %p, %step, %step, %step {index = 0, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected clr of type tensor<nxf32> or tensor<nxf64>, got tensor<f64>}}
%a, %b = optim.update %p, %p, %p, %h, %h, %h {index = 0, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected eps of type tensor<3xf32>, got tensor<3xf64>}}
%a, %b = optim.update %p, %p, %p, %step, %wide, %step {index = 0, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf64>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)

// -----

%p, %q = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x4xf32>)
%h, %e, %step, %wide = "test.op"() : () -> (tensor<f64>, tensor<f32>, tensor<3xf32>, tensor<3xf64>)
// expected-error@below {{expected index of an element of clr tensor<3xf32>, got 3}}
%a, %b = optim.update %p, %p, %p, %step, %step, %step {index = 3, rule = "adagrad"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
