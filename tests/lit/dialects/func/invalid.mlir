// What holds for whole functions: definitions before uses, and labels that fit together.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

func.func @late(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@below {{'nn.add' uses %z before 'nn.relu' defines it}}
  %y = nn.add %x, %z : tensor<4xf32>
  %z = nn.relu %y : tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// -----

func.func @itself(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@below {{'nn.add' uses %y before 'nn.add' defines it}}
  %y = nn.add %x, %y : tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// -----

// expected-error@below {{argument 0 of @role: expected aicf.role to be one of input, param, buffer, state, host_scalar, status, got "weight"}}
func.func @role(%x: tensor<4xf32> {aicf.role = "weight", aicf.name = "x"}) {
  func.return
}

// -----

// expected-error@below {{argument 0 of @nameless: expected an aicf.name beside aicf.role = "param", got none}}
func.func @nameless(%x: tensor<4xf32> {aicf.role = "param"}) {
  func.return
}

// -----

// expected-error@below {{argument 1 of @same: expected one input named "x", got a second}}
func.func @same(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"}, %y: tensor<4xf32> {aicf.role = "input", aicf.name = "x"}) {
  func.return
}

// -----

// expected-error@below {{result 0 of @which: expected aicf.of to be one of param, state: each has a "x"}}
func.func @which(%x: tensor<4xf32> {aicf.role = "param", aicf.name = "x"}, %y: tensor<4xf32> {aicf.role = "state", aicf.name = "x"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @of: expected the update to name a host_scalar, got "x"}}
func.func @of(%x: tensor<4xf32> {aicf.role = "param", aicf.name = "x"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "x", aicf.of = "host_scalar"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @no_update: expected aicf.of beside aicf.role = "update" only}}
func.func @no_update(%x: tensor<f32> {aicf.role = "param", aicf.name = "x"}) -> (tensor<f32> {aicf.role = "loss", aicf.name = "x", aicf.of = "param"}) {
  func.return %x : tensor<f32>
}

// -----

// expected-error@below {{expected aicf.role, aicf.name and aicf.of to be strings, got 1 : i64}}
func.func @number(%x: tensor<4xf32> {aicf.role = 1}) {
  func.return
}

// -----

// expected-error@below {{result 0 of @result_role: expected aicf.role to be one of loss, grad, update, output, status, got "param"}}
func.func @result_role(%x: tensor<4xf32>) -> (tensor<4xf32> {aicf.role = "param", aicf.name = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @grad: expected the grad to name a param, got "x"}}
func.func @grad(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @update: expected the update to name an argument, got "y"}}
func.func @update(%x: tensor<4xf32> {aicf.role = "state", aicf.name = "x"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "y"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @type: expected the type of "w", tensor<4xf32>, got tensor<f32>}}
func.func @type(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %l: tensor<f32>) -> (tensor<f32> {aicf.role = "update", aicf.name = "w"}) {
  func.return %l : tensor<f32>
}

// -----

// expected-error@below {{argument 0 of @integers: expected a param to be a tensor of f16, bf16, f32 or f64, got tensor<4xi64>}}
func.func @integers(%w: tensor<4xi64> {aicf.role = "param", aicf.name = "w"}) {
  func.return
}

// -----

// expected-error@below {{result 1 of @twice: expected one update named 'p', got a second}}
func.func @twice(%p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}, tensor<4xf32> {aicf.role = "update", aicf.name = "p"}) {
  func.return %p, %p : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error@below {{result 1 of @losses: expected one output named 'loss', got a second}}
func.func @losses(%p: tensor<f32>) -> (tensor<f32> {aicf.role = "loss"}, tensor<f32> {aicf.role = "output", aicf.name = "loss"}) {
  func.return %p, %p : tensor<f32>, tensor<f32>
}

// -----

// expected-error@below {{argument 0 of @status: expected a status of type tensor<3xi64>, got tensor<i32>}}
func.func @status(%s: tensor<i32> {aicf.role = "status", aicf.name = "failed"}) {
  func.return
}

// -----

// expected-error@below {{argument 0 of @two: expected one status, got 2}}
func.func @two(%s: tensor<3xi64> {aicf.role = "status", aicf.name = "s"}, %t: tensor<3xi64> {aicf.role = "status", aicf.name = "t"}) {
  func.return
}

// -----

// expected-error@below {{result 0 of @unasked: expected an argument with aicf.role = "status", got none}}
func.func @unasked(%s: tensor<3xi64>) -> (tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  func.return %s : tensor<3xi64>
}

// -----

// expected-error@below {{@dropped: expected the status among the results too, got none}}
func.func @dropped(%s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  func.return
}

// -----

// expected-error@below {{result 0 of @batch: expected the update of a param, buffer, state, host_scalar, got one of the input "x"}}
func.func @batch(%x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "x"}) {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error@below {{result 0 of @text: expected the update of a param, buffer, state, host_scalar, got one of the literal "c"}}
func.func @text(%c: tensor<4xf32> {aicf.role = "buffer", aicf.name = "c", aicf.literal})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "c"}) {
  func.return %c : tensor<4xf32>
}

// -----

// expected-error@below {{expected 1 dictionaries of labels, got 2}}
"func.func"() <{sym_name = "labels", function_type = (f32) -> (), arg_attrs = [{}, {}]}> ({
^bb0(%x: f32):
  "func.return"() : () -> ()
}) : () -> ()
