// Announced messages are checked by line and text; one that is missing, or not announced, fails.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics
// RUN: sed s/reluu/rellu/ %s | not aicf-opt --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK: <stdin>:[[# @LINE + 2]]:6: error: unexpected error: dialect nn has no operation 'nn.rellu'
%x = "test.op"() : () -> tensor<4xf32>
%y = nn.reluu %x : tensor<4xf32> // expected-error {{has no operation 'nn.reluu'; did you mean nn.relu}}

// -----

// expected-error@+1 {{value %late is used but never defined}}
"test.op"(%late) : (tensor<4xf32>) -> ()

// -----

"test.op"(%late) : (tensor<4xf32>) -> ()
// expected-error@above {{'test.op' uses %late before}}
%late = "test.op"() : () -> tensor<4xf32>
