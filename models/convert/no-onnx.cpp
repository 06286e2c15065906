// The build has no ONNX library; see onnx.cpp.
#include "models/convert/onnx.h"

namespace gt {

void save_onnx(const std::string & path, const ModelFile &) {
    throw Error(
        path + ": this program was built without ONNX; install libonnx-dev and libprotobuf-dev, "
               "then configure and build it again"
    );
}

}  // namespace gt
