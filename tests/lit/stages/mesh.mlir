// A step of two processes: gradients are written into a bucket, their mean is one launch, and the status goes along.
// RUN: aicf-opt --stage plan --mesh dp=2 %S/../../../examples/train_step.mlir | filecheck %s
// RUN: aicf-opt --stage plan --target sm_90 --mesh dp=2 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=GPU
// RUN: aicf-opt --stage plan --mesh dp=2 --zero 1 --rank 1 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=ZERO
// RUN: aicf-opt --stage plan --target sm_90 --mesh dp=2 --zero 1 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=ZERO
// RUN: aicf-opt --stage plan --mesh dp=2 --zero 2 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=OWN
// RUN: aicf-opt --stage plan --target sm_90 --mesh dp=2 --zero 2 --rank 1 %S/../../../examples/train_step.mlir | filecheck %s --check-prefix=OWN
// RUN: not aicf-opt --stage plan --mesh dp=2 --rank 1 %S/../../../examples/train_step.mlir 2>&1 | filecheck %s --check-prefix=RANK
// RUN: not aicf-opt --stage plan --zero 1 %S/../../../examples/train_step.mlir 2>&1 | filecheck %s --check-prefix=ALONE
// RUN: not aicf-opt --stage plan --mesh dp=0 %S/../../../examples/train_step.mlir 2>&1 | filecheck %s --check-prefix=COUNT

// CHECK:      plan.slot @bucket in @temp[{{[0-9]+}}] : memref<3610xf32>
// CHECK:      plan.launch @{{.*}} -> out(@dw{{.*}})
// CHECK:      plan.launch @{{.*}} all_reduce_status x(@bucket) status(@failed) -> y(@bucket.mean)
// CHECK-NEXT: statuses(@status.of_ranks) {group = "dp", ranks = 2} workspace @{{.*}}
// CHECK-NEXT: check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// CHECK-NOT:  all_{{gather|reduce}}
// CHECK-NOT:  copy
// CHECK:      predicate not @failed

// GPU:      plan.launch @{{.*}} "all_reduce_status_cuda" all_reduce_status x(@bucket) status(@failed) -> y(@bucket.mean)
// GPU-NEXT: statuses(@status.of_ranks) {group = "dp", ranks = 2}
// GPU-NEXT: plan.launch @{{.*}} "check_ranks_cuda" check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// COUNT: expected a name and a number of processes such as dp=2, got 'dp=0'

// Nothing that outlives the step is written before the vote.
// ZERO:     all_reduce x(@bucket) -> y(@bucket.mean)
// ZERO-NOT: predicate not @failed
// ZERO-NOT: next) -> y(@part
// ZERO:     all_gather_status x(@part{{.*}}) status(@failed) after(@bucket.mean) ->
// ZERO-NEXT: y(@part.of_ranks) statuses(@status.of_ranks)
// ZERO:     check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// New parameters are read from the gathered memory, so nothing holds them twice. The optimizer writes where the gather reads.
// ZERO:     copy{{.*}} x(@view{{.*}}) -> y(@{{.*}}) predicate not @failed

// No rank has the mean of all 3610 gradients.
// OWN-NOT:  memref<3610xf32>
// OWN:      all_reduce x(@reshape) -> y(@reshape.mean)
// OWN:      all_reduce x(@bucket) after(@reshape.mean) -> y(@bucket.mean)
// OWN-NOT:  predicate not @failed
// OWN:      all_gather_status x(@part{{.*}}) status(@failed) after(@bucket.mean) ->
// OWN-NEXT: y(@part.of_ranks) statuses(@status.of_ranks)
// OWN:      check_ranks status(@failed) of_ranks(@status.of_ranks) -> status(@failed)
// OWN:      copy{{.*}} x(@view{{.*}}) -> y(@{{.*}}) predicate not @failed
// ALONE: --zero is for --mesh: it divides what several processes keep
// RANK: --rank is for --zero: without it all processes have one step
