// RUN: aicf-opt %s --canonicalize --cse --dce | filecheck %s
// RUN: aicf-opt %s --decompose | filecheck %s --check-prefix=GONE

// Two equal gradients stay two, and one whose values nobody reads goes. Without differentiation they are nothing.
// CHECK-LABEL: func.func @twice
// CHECK:         nn.custom_gradient of(%r) wrt(%w)
// CHECK:         nn.custom_gradient of(%r) wrt(%w)
// CHECK-NOT:     nn.custom_gradient
// CHECK:         nn.mul %a, %b
// GONE-LABEL:  func.func @twice
// GONE-NEXT:     %r = nn.round %w : tensor<4xf32>
// GONE-NEXT:     %p = nn.mul %r, %r : tensor<4xf32>
// GONE-NEXT:     func.return %p
func.func @twice(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> tensor<4xf32> {
  %r = nn.round %w : tensor<4xf32>
  %a = nn.custom_gradient of(%r) wrt(%w) : tensor<4xf32> {
  ^bb0(%da: tensor<4xf32>):
    %x = nn.sign %da : tensor<4xf32>
    train.yield %x : (tensor<4xf32>) -> ()
  }
  %b = nn.custom_gradient of(%r) wrt(%w) : tensor<4xf32> {
  ^bb0(%db: tensor<4xf32>):
    %x = nn.sign %db : tensor<4xf32>
    train.yield %x : (tensor<4xf32>) -> ()
  }
  %unread = nn.custom_gradient of(%r) wrt(%w) : tensor<4xf32> {
  ^bb0(%dc: tensor<4xf32>):
    train.yield %dc : (tensor<4xf32>) -> ()
  }
  %p = nn.mul %a, %b : tensor<4xf32>
  func.return %p : tensor<4xf32>
}
