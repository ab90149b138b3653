#include "device/libraries/found.h"

#include "device/libraries/cublaslt.h"
#include "device/libraries/cudnn.h"

namespace aicf {

size_t version_of(Library library) {
  if (library == Library::CublasLt) return cublaslt::available() ? cublaslt::library()->version() : 0;
  if (library == Library::Cudnn) return cudnn::available() ? cudnn::library()->version() : 0;
  return 0;
}

Libraries found_libraries() {
  Libraries found;
  for (const LibraryRow& row : kLibraries)
    if (version_of(row.library) != 0) found = found.with(row.library);
  return found;
}

}  // namespace aicf
