// The order of what topK gives.
#pragma once

namespace popops {

enum class SortOrder { NONE, ASCENDING, DESCENDING };

}  // namespace popops
