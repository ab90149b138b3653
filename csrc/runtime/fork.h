// Threads and device contexts do not survive fork(): who started before it must refuse to work after it.
#pragma once

namespace aicf {

// Grows by one in each forked child; compare with the value remembered at creation. Costs one load, unlike
// getpid().
int fork_generation();

}  // namespace aicf
